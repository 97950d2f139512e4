"""Where the code came from: the commit, and whether it says all; never a URL, never a reason to fail."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from sweepstack.launch import ship
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from tests.unit.launch.support import IDENTITY, Site, until

CODE = "sha256:" + "a" * 64


def git(folder: Path, *arguments: str) -> str:
    """Runs git as somebody."""
    who = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, env={**os.environ, **who}, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work dir below a checkout's top."""
    top = tmp_path / "paper"
    (top / "job").mkdir(parents=True)
    (top / "job" / "train.py").write_text("1\n")
    (top / "other.txt").write_text("1\n")
    git(top, "init", "-q", "-b", "main")
    git(top, "remote", "add", "origin", "https://user:hunter2@example.org/paper.git")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "one")
    return top / "job"


def test_the_commit_and_whether_it_says_all(work: Path) -> None:
    commit = git(work, "rev-parse", "HEAD")
    assert ship.git_facts(work) == {"commit": commit, "branch": "main", "dirty": False}
    (work.parent / "other.txt").write_text("2\n")
    (work / "untracked.py").write_text("x")
    assert ship.git_facts(work) == {"commit": commit, "branch": "main", "dirty": False}
    (work / "train.py").write_text("2\n")
    git(work, "checkout", "-q", "--detach")
    assert ship.git_facts(work) == {"commit": commit, "branch": None, "dirty": True}


def test_outside_of_git_nothing_is_said(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    assert ship.git_facts(plain) is None
    git(plain, "init", "-q")
    assert ship.git_facts(plain) is None  # no commit yet
    monkeypatch.setenv("PATH", str(plain))
    assert ship.git_facts(work) is None  # no git


def test_it_is_written_once_for_a_version(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "box").mkdir()
    channel = LocalChannel("local-1", tmp_path / "box", {})
    ship.record_provenance(channel, CODE, work)
    first = channel.read(box_layout.provenance_file(CODE))
    assert json.loads(first)["git"]["dirty"] is False
    assert b"hunter2" not in first
    git(work, "commit", "-q", "--allow-empty", "-m", "two")
    monkeypatch.setattr(ship, "git_facts", pytest.fail)  # nor is git asked again
    ship.record_provenance(channel, CODE, work)
    assert channel.read(box_layout.provenance_file(CODE)) == first


def test_a_sealed_cell_knows_its_commit(site: Site) -> None:
    git(site.job, "init", "-q", "-b", "main")
    git(site.job, "add", "-A")
    git(site.job, "commit", "-q", "-m", "one")
    site.launch("a")
    (volume,) = (site.folder / "platform" / "volumes").glob("volume-*")
    path = volume / "content" / IDENTITY / "cells" / "a" / "manifest.json"
    until(path.exists, lambda: f"no manifest: {site.said}")
    manifest = json.loads(path.read_bytes())
    assert manifest["provenance"]["git"] == {
        "commit": git(site.job, "rev-parse", "HEAD"),
        "branch": "main",
        "dirty": False,
    }
    assert manifest["environment"]["cores"] == os.cpu_count()
    assert manifest["environment"]["cpu"]
    assert "setup" not in manifest  # there was none
