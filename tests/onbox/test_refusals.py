"""What parts of the runner refuse, each by itself: a journal that can't be written, a place that is another one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.runner import lease, off, records
from sweepstack.onbox.runner.attempt import Attempt
from sweepstack.onbox.runner.lease import Watcher
from sweepstack.onbox.runner.main import must_be_the_place
from sweepstack.onbox.runner.records import Fatal, Journal
from sweepstack.onbox.runner.workers import SharedJournal, who
from tests.onbox.harness import Box, around


def test_an_event_that_did_not_reach_the_disk_is_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not in the journal must not happen; after a sync that failed, a later one proves nothing."""
    journal = Journal(tmp_path / "journal.jsonl")

    def bad(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(records.os, "fsync", bad)
    with pytest.raises(Fatal, match=r"the journal can't be written: .*Input/output error") as failed:
        journal.append("runner-started", pid=1)
    assert failed.value.args[0] == 6


def test_half_a_line_is_taken_back_and_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    journal, write = Journal(path), os.write
    journal.append("runner-started", pid=1)
    before = path.read_bytes()
    monkeypatch.setattr(records.os, "write", lambda file, data: write(file, data[:9]))
    with pytest.raises(Fatal, match="its disk is full"):
        journal.append("cell-dropped", cell="a", reason="")
    assert path.read_bytes() == before


def test_a_journal_that_another_has_written_to_is_not_the_last_writer_s(tmp_path: Path) -> None:
    first = Journal(tmp_path / "journal.jsonl")
    assert first.is_last_writer()
    Journal(tmp_path / "journal.jsonl").append("runner-started", pid=2)
    assert not first.is_last_writer()


def test_a_journal_that_became_shorter_stops_a_worker(tmp_path: Path) -> None:
    """Lines are gone that others follow: what they said is not known any more."""
    path, journal = tmp_path / "journal.jsonl", SharedJournal(tmp_path, "a", who("a"), lambda _: False)
    journal.append("runner-started", pid=1)
    size = path.stat().st_size
    journal.append("setup-started", setup="x")
    os.truncate(path, size)
    with pytest.raises(Fatal, match="has become shorter") as failed:
        journal.append("runner-started", pid=1)
    assert failed.value.args[0] == 4


@pytest.mark.parametrize(
    ("facts", "place", "refused"),
    [
        (None, None, ""),  # no box of a host
        ({}, None, ""),
        ({"shown": {"mnt/other": ["/fs", "id-1"]}}, None, ""),
        ({"shown": {"mnt/durable": ["/fs", "id-1"]}}, {"id": "id-1"}, ""),
        (
            {"shown": {"mnt/durable": ["/fs", "id-1"]}},
            {"id": "id-2"},
            "at /fs is id-2, and this box was made with id-1",
        ),
        ({"shown": {"mnt/durable": ["/fs", "id-1"]}}, None, "is not mounted at /fs"),
        ({"shown": {"mnt/durable": ["/fs", "id-1"]}}, {}, "is not mounted at /fs"),
        ([], {"id": "id-1"}, "so the durable tier is not known"),
    ],
)
def test_cells_are_sealed_on_the_place_that_the_box_was_made_with(
    tmp_path: Path, facts: Any, place: Any, refused: str
) -> None:
    """On another file system under the same name they would be lost, or lie among those of another sweep."""
    (tmp_path / "mnt/durable").mkdir(parents=True)
    for path, content in (("box.json", facts), ("mnt/durable/place.json", place)):
        if content is not None:
            (tmp_path / path).write_text(json.dumps(content))
    with pytest.raises(Fatal, match=refused) if refused else contextlib.nullcontext():
        must_be_the_place(tmp_path, "mnt/durable")


def test_what_can_not_be_ended_starts_nothing(box: Box) -> None:
    """Two attempts of a cell would write to the same checkpoints."""
    box.add("a")
    assert box.start(script=around(box, "runner.end_cells = lambda *_: [7]")).ended() == 5
    assert "can't be ended: [7]" in box.log()
    assert box.events("cell-started") == []


@pytest.mark.parametrize("text", [None, "", "[]", '{"pid": 7}'])
def test_of_an_attempt_without_a_process_no_leader_is_known(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "cells/a/1").mkdir(parents=True)
        (tmp_path / "cells/a/1/pid").write_text(text)
    assert Attempt.leader(tmp_path, "a", 1) == {}


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    """Of a box whose lease is over."""
    home = tmp_path / "box/data/sweep"
    home.mkdir(parents=True)
    needed = {"schema": 1, "identity": "i", "box": "b", "native_id": "n", "generation": 1, "durable": "mnt"}
    spec = {**needed, "python": "python3", "artifacts": [], "lease": {"seconds": 0, "how": {}, "kills": []}}
    (home / "spec.json").write_text(json.dumps(spec))
    return Watcher(home)


def test_a_watcher_tells_and_ends_nothing_while_a_runner_is_at_work(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was to tell of ends cells next: `cells that a killed runner left behind`."""
    monkeypatch.setattr(lease, "LOCK_SECONDS", 0.0)
    with open(watcher.home / "runner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not watcher._tell("cells do nothing")
        assert not (watcher.home / "journal.jsonl").exists()
    assert watcher._tell("cells do nothing")
    assert watcher._tell("cells do nothing"), "it is told, so what follows may be done"
    assert len((watcher.home / "journal.jsonl").read_text().splitlines()) == 1
    monkeypatch.setattr(watcher.lease, "over", lambda _: False)
    assert not watcher._tell("a look came")


def test_a_watcher_of_a_box_that_is_gone_ends(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(watcher.home)
    real, opened = os.open, list[Any]()

    def once(*words: Any) -> int:
        assert not opened, "it looks for ever"
        opened.append(words)
        return real(*words)

    monkeypatch.setattr(lease.os, "open", once)
    with pytest.raises(FileNotFoundError):
        watcher._lock()


@pytest.mark.parametrize("why", ["another box is at work", "a runner is at work", "there is something else to do"])
def test_a_try_that_was_none_says_so_and_is_not_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """It does not count as one: the next comes when it may, and not after the pause that follows a try."""
    monkeypatch.setattr(off, "LOCK_SECONDS", 0.0)
    home, other = tmp_path / "box/data/sweep", tmp_path / "other/data/sweep"
    for folder in (home, other):
        folder.mkdir(parents=True)
    asked = {"by": "ssh", "native": "off", "command": f"touch {tmp_path}/off"}
    busy = {"another box is at work": other, "a runner is at work": home}.get(why)
    with open((busy or tmp_path) / "runner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert off.issue(home, asked, lambda: busy is None, 1, 0.0) is False
    assert not (home / "journal.jsonl").exists()
    assert not (tmp_path / "off").exists()
    assert off.issue(home, asked, bool, 1, 0.0) is True
    assert (tmp_path / "off").exists()
