"""A state file that does not read: the newest copy that reads is named, and put back as it is typed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.status.engine.state import may_hold, way_back

GOOD = json.dumps({"version": 3, "checkpoint": {"stack": "t", "latest": {}}})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The state file of stack t, torn, and two copies of the engine that read: the one in `backups` is newer."""
    state = tmp_path / ".pulumi" / "stacks" / "a project" / "t.json"
    kept = tmp_path / ".pulumi" / "backups" / "a project" / "t" / "t.17.json"
    for number, (path, text) in enumerate(((Path(f"{state}.bak"), GOOD), (kept, GOOD), (state, GOOD[:20] + "\0" * 9))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1000 + number, 1000 + number))
    return state


def said(tmp_path: Path) -> list[list[str]]:
    """The commands that are named."""
    text = way_back(lambda: f"file://{tmp_path}", "t", "a project")
    return [shlex.split(part) for part in text.removeprefix(". Next: ").split("    (")[0].split(" && ")]


def test_the_newest_copy_that_reads(tmp_path: Path, file: Path) -> None:
    kept = tmp_path / ".pulumi" / "backups" / "a project" / "t" / "t.17.json"
    ((*install, of, to),) = said(tmp_path)
    assert (install, of, to) == (["install", "-b", "-m", "600"], str(kept), str(file))
    torn = file.read_bytes()
    subprocess.run([*install, of, to], check=True, timeout=60)
    assert file.read_text() == GOOD
    (before,) = [path for path in file.parent.iterdir() if path.read_bytes() == torn]
    file.write_bytes(torn)  # a second time: what was kept is not written over
    assert said(tmp_path) == [["mv", str(file), f"{file}.broken"], ["cp", str(kept), str(file)]]
    assert before.name in ("t.json~", "t.json.old")
    kept.write_text("")
    os.utime(kept, (3000, 3000))
    Path(f"{file}.broken").touch()  # of an earlier day
    assert said(tmp_path) == [["mv", str(file), f"{file}.broken-2"], ["cp", f"{file}.bak", str(file)]]


def test_where_no_copy_reads_it_is_put_aside(tmp_path: Path, file: Path) -> None:
    for copy in (tmp_path / ".pulumi").rglob("t*.json*"):
        copy.write_text("[]")
    assert said(tmp_path) == [["mv", str(file), f"{file}.broken"], ["pulumi", "stack", "init", "t"]]


def test_a_folder_in_its_place_goes_out_of_the_way_first(tmp_path: Path, file: Path) -> None:
    """The engine says that there is no such stack, and can make none there."""
    file.unlink()
    file.mkdir()
    kept = tmp_path / ".pulumi" / "backups" / "a project" / "t" / "t.17.json"
    aside = ["mv", str(file), f"{file}.broken"]
    assert said(tmp_path) == [aside, ["cp", str(kept), str(file)]]
    for copy in (kept, Path(f"{file}.bak")):
        copy.write_text("[]")
    assert said(tmp_path) == [aside, ["pulumi", "stack", "init", "t"]]


def test_nothing_is_said_of_what_reads_or_lies_elsewhere(tmp_path: Path, file: Path) -> None:
    def silent() -> str:
        raise SweepstackError("no engine")

    assert way_back(lambda: "s3://bucket", "t", "a project") == ""
    assert way_back(silent, "t", "a project") == ""
    file.write_text(GOOD)
    assert way_back(lambda: f"file://{tmp_path}", "t", "a project") == ""


def test_another_project_s_file_is_not_touched(tmp_path: Path, file: Path) -> None:
    assert way_back(lambda: f"file://{tmp_path}", "t", "another") == ""


def test_a_word_is_looked_for_without_the_engine_and_where_that_is_not_possible_it_may_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(stack: str = "t") -> bool:
        return may_hold('"policy"', stack, "p")

    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    assert said(), "pulumi login, or backend: in Pulumi.yaml"
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://bucket")
    assert said()
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    assert not said(), "no state at all"
    folder = tmp_path / ".pulumi" / "stacks" / "p"
    folder.mkdir(parents=True)
    (folder / "t.json").write_text('{"clearance": "the policy"}')
    assert not said()
    (folder / "t.json").write_text('{"policy": "x"}')
    assert said()
    assert not said("another")
    (folder.parent / "old.json").write_text('{"policy": "x"}')
    assert said("old"), "where the engine kept it before projects had folders"
    (folder / "packed.json.gz").write_bytes(b"")
    assert said("packed")
    (folder / "no-file.json").mkdir()
    assert said("no-file")
