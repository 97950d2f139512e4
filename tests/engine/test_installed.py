"""The installed wheel, as README has it: `sweepctl init`, the whole loop, and a later version that takes it over."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.commands import assert_failed, ok, run
from tests.engine.package_project import ROOT, Project, build, empty_project, tree_of
from tests.engine.test_schema import assert_whole, schema_of

pytestmark = pytest.mark.engine
STACK = "sweep-a"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with empty_project(tmp_path) as made:
        yield made


def readme() -> tuple[list[str], list[str]]:
    """The lines that README has for a repository of one's own, and those for a login and a passphrase."""
    section = (ROOT / "README.md").read_text().split("## In a repository of your own\n")[1].split("\n## ")[0]
    way, kept = (block.splitlines() for block in re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
    assert len(way) == 4
    return way, kept


def test_a_wheel_begins_a_project_whose_engine_finds_the_plugin(project: Project, tmp_path: Path) -> None:
    """README's lines behind `pip install`, with an empty home: no login, and no passphrase."""
    project.make_environment()
    project.install(build(tmp_path, "7.1.0"))
    way, _ = readme()
    begun = ok(project.shell(*way[2:3], way[3].replace("pulumi up", "pulumi preview")))
    assert "+ 8 to create" in begun.text
    assert "make up" not in begun.text + ok(project.run("sweepctl", "init", "other")).text
    assert (project.folder / "Pulumi.yaml").read_text().startswith("name: my-lab\n")
    assert ok(project.run("sweepctl", "--version")).out == "sweepctl 7.1.0\n"
    schema = schema_of(project.folder / ".venv" / "bin" / "pulumi-resource-sweepstack", tmp_path, project.env)
    assert_whole(schema)
    assert schema["version"] == "7.1.0"
    kept = {path: path.read_bytes() for path in project.folder.glob("*.*") if path.is_file()}
    assert ok(project.run("sweepctl", "init")).out.startswith("this folder is a project already, and stays as it is\n")
    assert kept == {path: path.read_bytes() for path in kept}

    launcher = project.folder / ".venv" / "bin" / "pulumi"
    launcher.write_text(launcher.read_text() + "# of version 7.0.0\n")
    assert ok(project.run("sweepctl", "init")).out.startswith(
        "wrote .venv/bin/pulumi; this folder is a project already"
    )
    assert "7.0.0" not in launcher.read_text()
    launcher.unlink()  # as for another person, who has only cloned the project
    checks = project.run("sweepctl", "doctor", "--json").json()["checks"]
    assert {check["name"] for check in checks if "sweepctl init" in check["fix"]} == {"backend", "passphrase"}


def test_another_person_clones_the_project_and_types_two_commands(project: Project, tmp_path: Path) -> None:
    """Those that `init` named. From a folder of wheels in place of PyPI, and without what the package depends on."""
    project.make_environment()
    wheel = build(tmp_path, "7.1.0")
    project.install(wheel)
    said = ok(project.run("sweepctl", "init")).out
    ok(project.shell("git init -q", "git add -A", "git -c user.name=a -c user.email=a@b commit -qm begun"))
    other = Project(tmp_path / "bob", tmp_path / "bob" / "clone", project.env | {"HOME": str(tmp_path / "bob")})
    other.base.mkdir(exist_ok=True)
    ok(project.run("git", "clone", "-q", ".", str(other.folder)))
    assert "sweepstack[examples]==7.1.0" in (other.folder / "requirements.txt").read_text()
    other.make_environment()
    way = said.partition("another person types in one, before pulumi:\n")[2].splitlines()
    made, installed = way[0].strip().split(" && ")
    begins = way[1].strip()
    assert made == "python3 -m venv .venv"
    words = f"--no-deps --no-index --find-links {wheel.parent} -r"
    first = ok(other.shell(installed.replace(".venv/bin/pip", ".venv/bin/python -m pip").replace("-r", words), begins))
    assert "next   pulumi stack select --create sweep-a\n       pulumi preview --stack sweep-a" in first.text
    then = ok(other.shell("export PATH=$PWD/.venv/bin:$PATH", "pulumi stack select --create sweep-a && pulumi preview"))
    assert "+ 8 to create" in then.text
    changed = ok(other.run("git", "status", "--porcelain", "--untracked-files=all")).out
    assert changed.split() == ["M", "stacks/Pulumi.sweep-a.yaml"], "the engine's salt alone"


@pytest.mark.proof  # the loop from a checkout: test_loop.py; states of older versions: tests/golden
def test_the_loop_of_a_wheel_and_of_its_next_version(project: Project, tmp_path: Path) -> None:
    """Each line as README has it, in one shell, `pulumi login` and a passphrase included; then the rest of the loop."""
    way, kept = readme()
    tree = tree_of(tmp_path, "7.1.0")
    project.env |= {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # 0: without it
    show = f'cp "{project.dependencies}" .venv/lib/python3*/site-packages/'
    install = way[1].replace("PATH/TO/THIS/CHECKOUT", str(tree))
    shorter = f"sed -i 's/epochs: 20/epochs: 1/; s/lr: .*$/lr: [0.1], seed: [0, 1]}}/' stacks/Pulumi.{STACK}.yaml"
    ok(project.shell(way[0], show, install, way[2], shorter, *kept, way[3]))
    shutil.rmtree(tree)
    without = project.run("pulumi", "up", "--stack", STACK)
    assert_failed(without, "passphrase")
    project.env |= {"PULUMI_CONFIG_PASSPHRASE": "a long one"}
    assert (tmp_path / "home" / "states" / ".pulumi" / "stacks").is_dir()
    assert not (tmp_path / "home" / ".local" / "share" / "sweepstack" / "state" / ".pulumi").exists()

    ok(project.run("sweepctl", "wait", "--stack", STACK, "--timeout", "200s"))
    refused = project.run("pulumi", "destroy", "--stack", STACK, "--yes")
    assert refused.rc != 0
    assert "REFUSED. Nothing was deleted." in refused.text
    assert "Outputs:" not in refused.text
    checks = project.run("sweepctl", "doctor", "--stack", STACK, "--json").json()["checks"]
    assert [check for check in checks if check["verdict"] == "fail"] == []

    project.install(build(tmp_path, "7.2.0"))
    assert ok(project.run("sweepctl", "--version")).out == "sweepctl 7.2.0\n"
    preview = ok(project.run("pulumi", "preview", "--stack", STACK, "--expect-no-changes"))
    assert "0 of 2 cells verified" in preview.text
    ok(project.run("sweepctl", "pull", "--stack", STACK))
    verified = ok(project.run("sweepctl", "verify", "--stack", STACK, "--json")).json()
    ok(project.run("sweepctl", "approve", "--stack", STACK, verified["receipt"]))
    ok(project.run("pulumi", "up", "--stack", STACK, "--yes"))
    ok(project.run("pulumi", "destroy", "--stack", STACK, "--yes"))
    assert "everything that bills is known to a state" in ok(project.run("sweepctl", "audit")).text
    assert len(ok(project.run("sweepctl", "results", "--stack", STACK, "--json")).json()["cells"]) == 2


def test_in_a_checkout_there_is_nothing_to_begin(tmp_path: Path) -> None:
    said = run([str(ROOT / ".venv" / "bin" / "sweepctl"), "init"], cwd=tmp_path, env=dict(os.environ))
    assert said.rc == 1
    assert "this sweepctl is of a checkout, which is a project already" in said.err
    assert f"cd {ROOT}" in said.err
    assert list(tmp_path.iterdir()) == []
