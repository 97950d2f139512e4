"""Scenario B07: an `up` with newer on-box code and newer job code under a live queue changes no file that is in use."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from sweepstack.channel import agent_source
from tests.unit.launch.support import Site


def digests(folder: Path) -> dict[str, tuple[str, int, int]]:
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_ino,
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_b07_files_of_a_live_runner_and_its_cells_never_change(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site.hold("a")
    site.launch("a")
    site.until_state("running", "a")
    home = site.root / "data" / "sweep"
    (first,) = home.glob("runner-*")
    command = Path(f"/proc/{runner_pid(site)}/cmdline").read_bytes().split(b"\0")
    assert os.fsencode(first / "runner.py") in command
    codes = {path.name for path in (home / "code").iterdir()}
    before = digests(first), {name: digests(home / "code" / name) for name in codes}
    newer = tmp_path / "sweepstack"  # a newer one on the laptop
    shutil.copytree(agent_source.ONBOX, newer / "onbox")
    (newer / "__init__.py").touch()
    with (newer / "onbox" / "runner" / "main.py").open("a") as file:
        file.write("\n# newer\n")
    monkeypatch.setattr(agent_source, "ONBOX", newer / "onbox")
    (site.job / "more.txt").write_text("newer job code")
    done = site.launch("a", "b")
    assert "b" in done.appended
    assert not done.started_runner
    assert (digests(first), {name: digests(home / "code" / name) for name in codes}) == before
    assert len(list(home.glob("runner-*"))) == 2
    assert len(list((home / "code").iterdir())) == 2
    site.release()
    site.drained()
    assert site.states() == {"a": "sealed", "b": "sealed"}
    assert (digests(first), {name: digests(home / "code" / name) for name in codes}) == before


def runner_pid(site: Site) -> int:
    return int(json.loads(site.runner_pid())["pid"])
