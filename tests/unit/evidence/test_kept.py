"""Whatever becomes of what was copied, no copy of it is lost to an older or another one."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.core.journal import Journal
from sweepstack.evidence import box_logs, pull
from sweepstack.evidence.box_logs import copied_logs
from sweepstack.evidence.changing_copies import log_goes_on, put, write_once
from sweepstack.evidence.object_store import FolderStore
from sweepstack.evidence.unsealed import of_box
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceChanged
from tests.killing import killed_at
from tests.unit.evidence.test_unsealed import attempt, bring, fail
from tests.unit.evidence.world import World

MOST = 40
"""Bytes of the end of a log that are copied, here."""
ACTS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 60)),
    st.tuples(st.just("begin anew"), st.integers(0, 60)),
    st.tuples(st.just("cut"), st.integers(0, 60)),
    st.tuples(st.just("copy"), st.just(0)),
    st.tuples(st.sampled_from(["look late", "write late"]), st.just(1)),
    st.tuples(st.just("die"), st.integers(1, 8)),
)
Acts = list[tuple[str, int]]


class Copying:
    """A log that grows, is cut and begun anew; two computers that copy its end, one of which is late."""

    def __init__(self, folder: Path) -> None:
        self.store = FolderStore(f"file://{socket.gethostname()}{folder}", folder)
        self.log, self.count, self.said = b"", 0, list[tuple[int, bytes]]()
        self.late = (0, b"")

    def play(self, act: str, number: int) -> None:
        if act in ("append", "begin anew"):
            self.count += 1
            lines = b"".join(b"%d.%d\n" % (self.count, line) for line in range(number))
            self.log = (self.log if act == "append" else b"") + lines
        elif act == "cut":
            self.log = self.log[:number]
        elif act == "look late":
            self.late = self.end
        elif act == "write late":
            self.write(self.late)
        else:
            with killed_at(number or None):
                self.write(self.end)

    @property
    def end(self) -> tuple[int, bytes]:
        return max(len(self.log) - MOST, 0), self.log[-MOST:]

    def write(self, part: tuple[int, bytes]) -> None:
        text = box_logs._notice(part[0]) + part[1]
        put(self.store, "box-logs/box-0-g1/runner.log", text, box_logs._goes_on)
        self.said.append(part)

    def check(self) -> None:
        held = [box_logs._part(path.read_bytes()) for path in self.store.root.rglob("*.log*") if path.name[0] != "."]
        for part in self.said:
            assert any(log_goes_on(part, copy) for copy in held), part


def played(folder: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.evidence.changing_copies.EDGE", 0)  # no secret is masked here
    place = folder / str(sum(1 for _ in folder.iterdir()))
    place.mkdir()
    copying = Copying(place)
    for act in acts:
        copying.play(*act)
        copying.check()


@settings(max_examples=50)
@given(acts=st.lists(ACTS, min_size=6, max_size=15))
def test_no_copy_of_a_log_is_lost(tmp_path: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, acts, monkeypatch)


@pytest.mark.proof  # the test above plays 50 of them
@settings(max_examples=2000)
@given(acts=st.lists(ACTS, min_size=3, max_size=40))
def test_no_copy_of_a_log_is_ever_lost(tmp_path: Path, acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, acts, monkeypatch)


def test_a_later_copy_of_another_computer_stays(tmp_path: Path) -> None:
    store = FolderStore("", tmp_path)
    assert put(store, "a/log", b"one\ntwo\n") == b"one\ntwo\n"
    assert put(store, "a/log", b"one\n") == b"one\ntwo\n"
    assert (tmp_path / "a/log").read_bytes() == b"one\ntwo\n"


def test_one_who_is_faster_each_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore("", tmp_path)
    write = store.write
    theirs = iter(range(100))

    def first(key: str, data: bytes, *, over: str | None = None) -> str:
        write("a/log", b"theirs %d" % next(theirs)) if key == "a/log" else None
        return write(key, data, over=over)

    monkeypatch.setattr(store, "write", first)
    with pytest.raises(EvidenceChanged):
        put(store, "a/log", b"ours")
    assert len(list((tmp_path / "superseded/a").iterdir())) > 5, "and each of theirs that was seen is kept"


def log_of(world: World, data: bytes) -> list[bytes]:
    """What the evidence has of the runner's log after the box has this, the newest first."""
    box, root = world.box, world.store.root
    (box.root / box_layout.RUNNER_LOG).write_bytes(data)
    found = box_logs.copy(box.channel, copied_logs(world.store, "box-0", 1), world.store, "")
    assert found.problems == ()
    (log,) = found.logs
    copies = [box_logs.read_copied_log(world.store, found, log) or b""]
    return copies + [path.read_bytes() for path in sorted(root.glob("superseded/box-logs/box-0-g1/*"))]


def test_a_log_that_was_begun_anew_leaves_the_copy_before(world: World) -> None:
    assert log_of(world, b"begins\nfails\n") == [b"begins\nfails\n"]
    assert log_of(world, b"begins\nfails\nends\n") == [b"begins\nfails\nends\n"]
    assert log_of(world, b"begins\n") == [b"begins\nfails\nends\n"], "cut: what it says is said there"
    assert log_of(world, b"again\n") == [b"again\n", b"begins\nfails\nends\n"]
    long = b"".join(b"line %d\n" % number for number in range(60_000))
    assert log_of(world, b"again\n" + long)[1:] == [b"begins\nfails\nends\n"]
    assert log_of(world, b"again\n" + long + b"more\n")[1:] == [b"begins\nfails\nends\n"]


def test_a_value_of_a_secret_that_became_known_is_in_no_kept_copy(world: World) -> None:
    log_of(world, b"token hunter2hunter2\n")
    (world.box.root / box_layout.SECRETS).write_text('{"TOKEN": "hunter2hunter2"}')
    assert log_of(world, b"anew\n") == [b"anew\n", b"token **************\n"]


def test_what_is_left_of_a_value_at_a_cut_is_in_no_kept_copy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_logs, "MOST_BYTES", 30)
    monkeypatch.setattr("sweepstack.evidence.changing_copies.EDGE", 0)
    assert log_of(world, b"token hunter2hunter2 and it goes on.\n") == [b"unter2hunter2 and it goes on.\n"]
    (world.box.root / box_layout.SECRETS).write_text('{"TOKEN": "hunter2hunter2"}')
    (before,) = log_of(world, b"2 is anew, and longer\n")[1:]
    assert before.endswith(b"\n************* and it goes on.\n")
    more = log_of(world, b"2 is anew, and longer\nmore\n")
    assert more == [b"2 is anew, and longer\nmore\n", before], "nothing was cut: its beginning is no rest of a value"


def test_what_a_dead_runner_left_is_still_on_record_when_its_end_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second copy of an attempt: its processes went on, and took files away."""
    monkeypatch.setattr(pull, "MOST_BYTES", 100)
    box, cell = world.box, world.cells[0]
    folder = attempt(box, cell, 1, {"log.txt": b"one\n", "out/a": b"a" * 60, "out/b": b"b", "out/c": b"old"})
    bring(world)
    (first,) = of_box(world.store, "box-0", 1).attempts
    assert ([file.path for file in first.files], first.left) == (["log.txt", "out/a", "out/b", "out/c"], ())
    (folder / "out/b").unlink()
    (folder / "out/c").write_bytes(b"new")
    (folder / "log.txt").write_bytes(b"one\ntwo\n")
    fail(box, cell, 1)
    bring(world)
    (second,) = of_box(world.store, "box-0", 1).attempts
    assert second.ended
    sizes = {file.path: file.size for file in second.files}
    assert sizes == {"log.txt": 8, "out/a": 60, "out/b": 1, "out/c": 3}
    assert second.left == (), "its own first copy takes no room from it"
    (kept,) = [path for path in world.store.root.glob("superseded/**/*") if path.is_file()]
    assert (kept.name.split(".")[0], kept.read_bytes()) == ("c", b"old")


def test_a_copied_journal_that_does_not_read_is_kept(world: World) -> None:
    world.run()
    world.pull()
    path = world.store.journal_path("box-0", 1)
    hurt = b"\0" + path.read_bytes()[1:]
    path.write_bytes(hurt)
    world.pull()
    assert isinstance(world.store.journal("box-0", 1), Journal)
    (kept,) = world.store.root.glob("superseded/journals/*")
    assert kept.read_bytes() == hurt


def test_what_is_kept_is_kept_once(tmp_path: Path) -> None:
    store: Any = FolderStore("", tmp_path)
    for _ in range(2):
        write_once(store, "superseded/x.0123456789ab", b"x")
    assert re.fullmatch(r"x\.\w{12}", os.listdir(tmp_path / "superseded")[0])
