"""Jobs of both forges for tests of `sweepctl ci`: a project in a repository, and the variables that a job has."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.steps import Result, StackResult
from tests.simulators.forges import TOKEN, Forge, serving

DIGEST = "sha256:" + "ab" * 32
HEAD, MERGE = "a" * 40, "b" * 40


def git(folder: Path, *words: str) -> str:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    env = {**os.environ, **who}
    return subprocess.run(
        ["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in a repository with a remote: the stack `a` ships `job`, `b` ships a folder elsewhere."""
    root = tmp_path / "project"
    (root / "stacks").mkdir(parents=True)
    (root / "job").mkdir()
    (root / "job/train.py").write_text("1\n")
    (root / "Pulumi.yaml").write_text("name: p\nruntime: python\nstackConfigDir: stacks\n")
    for stack, workdir in (("a", "job"), ("b", "/elsewhere")):
        (root / f"stacks/Pulumi.{stack}.yaml").write_text(
            f"config:\n  sweepstack:sweep:\n    job: {{workdir: {workdir}}}\n"
        )
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "remote.git")
    git(root, "init", "-q", "-b", "main")
    git(root, "remote", "add", "origin", str(tmp_path / "remote.git"))
    commit(root, "first")
    git(root, "push", "-q", "origin", "main")
    monkeypatch.chdir(root)
    return root


def commit(root: Path, message: str) -> str:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", message)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture(params=["github", "gitlab"])
def forge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Forge]:
    """A job of each forge: of the request 7, whose last commit is HEAD."""
    for name in [name for name in os.environ if name.startswith(("CI_", "GITHUB_", "GITLAB_"))]:
        monkeypatch.delenv(name)
    with serving(request.param) as forge:
        forge.request(7, HEAD)
        as_job(forge, monkeypatch, tmp_path, change=7)
        yield forge


def as_job(
    forge: Forge,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *,
    change: int | None = None,
    before: str = "",
    **more: Any,
) -> None:
    """The variables that the forge sets for a job: of a request, or of a push to main."""
    if forge.kind == "gitlab":
        variables = {
            "GITLAB_CI": "true",
            "CI_API_V4_URL": forge.url,
            "CI_PROJECT_ID": "1217",
            "CI_COMMIT_SHA": HEAD if change else MERGE,
            "CI_COMMIT_BEFORE_SHA": before or "0" * 40,
            "CI_DEFAULT_BRANCH": "main",
            "CI_COMMIT_BRANCH": "" if change else "main",
            "CI_MERGE_REQUEST_IID": str(change or ""),
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main" if change else "",
            "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": more.get("project", "1217") if change else "",
            "CI_JOB_URL": "https://forge.invalid/1",
            "GITLAB_TOKEN": TOKEN,
        }
    else:
        head = {"sha": HEAD, "repo": {"full_name": more.get("project", forge.repository)}}
        event = {"before": before, "repository": {"default_branch": "main"}}
        if change:
            event["pull_request"] = {"number": change, "head": head, "base": {"ref": "main"}}  # type: ignore[assignment]
        (folder / "event.json").write_text(json.dumps(event))
        variables = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": forge.url,
            "GITHUB_GRAPHQL_URL": forge.graphql,
            "GITHUB_REPOSITORY": forge.repository,
            "GITHUB_SERVER_URL": "https://forge.invalid",
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_SHA": MERGE,
            "GITHUB_REF_NAME": "main",
            "GITHUB_TOKEN": TOKEN,
        }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def left(folder: Path, *stacks: StackResult, **more: Any) -> Path:
    kind = more.pop("kind", "review")
    Result(
        kind, list(stacks), steps.worst([one.code for one in stacks]) if stacks else more.pop("code", 0), **more
    ).write(folder)
    return folder
