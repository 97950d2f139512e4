"""The workflow of a release, the image and the pages of the registry, as they stand; in proof its steps are played."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweepstack.core.version import VERSION
from tests.engine.package_project import ROOT
from tests.extensions.pipelines.test_lint import actionlint, zizmor
from tests.extensions.pipelines.workflows import run_to_end

FILE = ROOT / ".github/workflows/release.yml"
WORKFLOW: dict[str, Any] = yaml.safe_load(FILE.read_text())
JOBS = WORKFLOW["jobs"]
PUBLISHING = {"provenance", "pypi", "forge", "image"}
NOT_HERE = ("scripts/setup", "docker ")
"""Steps of the dry run that a test can't play: set-up made this environment already, and no registry is in reach."""
COMMAND = re.compile(r"scripts\.release (\w+)")


def lines(job: str) -> list[str]:
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def before(job: str) -> set[str]:
    """All jobs that have to end well before this one begins."""
    needs = JOBS[job].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*(before(one) for one in direct))


def test_linters_find_nothing() -> None:
    for done in (zizmor(FILE), actionlint(FILE)):
        assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_published_but_by_a_tag_that_was_tested_and_built_twice() -> None:
    assert WORKFLOW["permissions"] == {}
    assert list(WORKFLOW[True]["push"]) == ["tags"]  # YAML 1.1 reads `on` so
    for name, job in JOBS.items():
        writes = {right for right, level in job["permissions"].items() if level == "write"}
        assert bool(writes) is (name in PUBLISHING), name
        if name in PUBLISHING:
            assert job["if"] == "github.event_name == 'push'", name
            assert before(name) >= {"test", "build", "again"}, name
            assert not any("checkout" in step.get("uses", "") for step in job["steps"]), name
    assert JOBS["pypi"]["environment"]["name"] == "pypi"
    assert JOBS["provenance"]["environment"] == "release"
    assert before("forge") >= {"pypi"}


def test_a_dry_run_at_home_has_the_steps_of_the_pipeline() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\nrelease-dry-run:\n")[1].split("\n\n")[0]
    assert sorted(COMMAND.findall(recipe)) == sorted(COMMAND.findall("\n".join([*lines("build"), *lines("again")])))


def test_each_step_of_the_image_is_a_part_that_is_there() -> None:
    text = (ROOT / "Containerfile").read_text()
    parts = re.findall(r"^RUN sh /tmp/release/image (\w+)", text, re.MULTILINE)
    script = (ROOT / "scripts/release/image").read_text()
    assert parts == ["system", "package", "engine"] == re.findall(r"^(\w+)\)", script, re.MULTILINE)
    assert len(re.findall(r"^RUN ", text, re.MULTILINE)) == len(parts)
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert allowed == ["scripts/release/image", "dist/*.whl"]


@pytest.mark.parametrize("name", ["_index.md", "installation-configuration.md"])
def test_a_page_of_the_registry_has_its_form(name: str) -> None:
    """As those of pulumi-command: a head, and choosers that are closed. Relative links would lead nowhere."""
    _, head, text = (ROOT / "docs" / name).read_text().split("---\n", 2)
    keys = yaml.safe_load(head)
    assert keys.keys() == {"title", "meta_desc", "layout"}
    assert keys["layout"] == "package"
    assert len(keys["meta_desc"]) <= 160
    assert text.count("{{< chooser") == text.count("{{< /chooser >}}")
    assert text.count("{{% choosable") == text.count("{{% /choosable %}}")
    for target in re.findall(r"\]\((.+?)\)", text):
        assert target.startswith("https://"), target
        place = re.match(r"https://github.com/sweepstack/pulumi-sweepstack/(?:blob|tree)/v([\d.]+)/([^#]+)", target)
        assert place is None or (place[1] == VERSION and (ROOT / place[2]).exists()), target


@pytest.mark.proof  # the same commands, one by one, stay in make test: test_build.py
def test_the_jobs_of_the_dry_run_end_well_in_a_fresh_clone(tmp_path: Path, offline_pip: Callable[[], None]) -> None:
    offline_pip()
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-local", "--depth", "1", f"file://{ROOT}", clone], check=True)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    played = []
    for line in [*lines("build"), *lines("again")]:
        if any(word in line for word in NOT_HERE):
            continue
        code, said = run_to_end(["bash", "-e", "-c", line], clone, {**os.environ, "TAG": ""}, 1200)
        assert code == 0, f"{line}\n{said}"
        played += COMMAND.findall(line)
    assert played == ["build", "check", "begin", "same"]
    refused, said = run_to_end(["bash", "-c", lines("build")[2]], clone, {**os.environ, "TAG": "v99.0.0"})
    assert refused == 1
    assert f"error: the tag is v99.0.0, and sweepstack/core/version.py says {VERSION}" in said
