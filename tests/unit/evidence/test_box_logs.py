"""A box's own logs: their ends are copied beside the journal, masked, and what is in the way fails no pull."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from sweepstack.channel import prefetch
from sweepstack.evidence import box_logs
from sweepstack.evidence import pull as pull_module
from sweepstack.evidence.box_logs import MOST_BYTES, copied_logs, read_copied_log
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.pull import BoxPull, BoxSource, pull_all
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import EvidenceError, Unreachable
from tests.unit.evidence.test_unsealed import attempt, fail
from tests.unit.evidence.world import IDENTITY, Box, World

SETUP = digest_of("pip install x")
SECRET = "hunter2hunter2"


def write(box: Box, path: str, data: bytes) -> Path:
    target = box.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return target


def here(world: World) -> dict[str, bytes]:
    root = world.store.root / "box-logs"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def pull(world: World, channel: Channel | None = None) -> BoxPull:
    box = world.box
    (done,) = pull_all([BoxSource(box.name, box.generation, channel or box.channel)], IDENTITY, world.store)
    return done


def test_runner_and_set_up_are_copied_beside_the_journal(world: World) -> None:
    box = world.box
    write(box, box_layout.RUNNER_LOG, b"begins\n")
    setup = write(box, box_layout.setup_log(SETUP), b"Collecting x\n")
    write(box, f"{box_layout.SETUP_LOGS}/1234.pid", b"{}")
    write(box, f"{box_layout.SETUP_LOGS}/.hidden.log", b"no")
    box.log("setup-failed", setup=SETUP, code="c", stage="commands", reason="exit code 1")
    assert box_logs.due(world.store, "box-0", 1, box.journal)
    done = pull(world)
    assert (done.problem, done.warnings) == ("", ())
    assert here(world) == {"box-0-g1/runner.log": b"begins\n", f"box-0-g1/setup-{setup.name}": b"Collecting x\n"}
    assert not box_logs.due(world.store, "box-0", 1, box.journal)
    shutil.rmtree(box.root)
    kept = copied_logs(world.store, "box-0", 1)
    assert [log.path for log in kept.logs] == [box_layout.RUNNER_LOG, box_layout.setup_log(SETUP)]
    assert read_copied_log(world.store, kept, kept.logs[1]) == b"Collecting x\n"


def test_those_of_the_workers_come_the_last_ones(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    box = world.box
    monkeypatch.setattr(box_logs, "WORKERS", 5)
    for number in range(3):
        for name in ("runner.log", "patrol.jsonl", "worker.json"):
            path = write(box, f"{box_layout.WORKERS}/7_{number}.0/{name}", f"{name} of {number}".encode())
            os.utime(path, (number, number))
    os.utime(write(box, f"{box_layout.JOB_LOGS}/7_0.log", b"begins on n1\n"), (9, 9))
    write(box, f"{box_layout.JOB_LOGS}/batch.sh", b"#!/bin/sh\n")
    done = pull(world)
    assert (done.problem, done.warnings) == ("", ())
    last = {f"workers-7_{n}.0-{name}" for n in (1, 2) for name in ("runner.log", "patrol.jsonl")}
    assert here(world).keys() == {f"box-0-g1/{name}" for name in (*last, "jobs-7_0.log")}


def test_a_long_log_is_cut_from_the_front_and_says_so(world: World) -> None:
    log = b"".join(b"line %d\n" % number for number in range(60_000))
    write(world.box, box_layout.RUNNER_LOG, log)
    pull(world)
    start = len(log) - MOST_BYTES
    notice = b"[sweepstack] the first %d bytes of this log are not in this copy\n" % start
    assert here(world)["box-0-g1/runner.log"] == notice + log[-MOST_BYTES:]
    kept = copied_logs(world.store, "box-0", 1)
    assert kept.logs[0].start == start
    assert read_copied_log(world.store, kept, kept.logs[0]) == log[-MOST_BYTES:]


def test_secrets_are_masked_also_one_that_the_cut_goes_through(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    box = world.box
    write(box, box_layout.SECRETS, json.dumps({"TOKEN": SECRET, "SHORT": "abc"}).encode())
    monkeypatch.setattr(box_logs, "MOST_BYTES", 40)
    monkeypatch.setattr(pull_module, "LOG_BYTES", 40)
    monkeypatch.setattr(pull_module, "LOG_END_BYTES", 40)
    text = f"first\n{SECRET}\nuse {SECRET} abc or another\n".encode()
    write(box, box_layout.RUNNER_LOG, text)
    attempt(box, world.cells[0], 1, {"log.txt": text})
    fail(box, world.cells[0], 1)
    pull(world)
    kept = copied_logs(world.store, "box-0", 1)
    of_cell = world.store.root / f"unsealed/{world.cells[0].name}/box-0-g1-1/log.txt"
    for copy in (read_copied_log(world.store, kept, kept.logs[0]) or b"", of_cell.read_bytes()):
        assert len(copy) == 40
        assert copy.endswith(b"\nuse ************** abc or another\n")
        assert copy[:5] == b"*****", "the end of a secret whose beginning was cut off"


def test_what_can_not_be_read_is_a_warning_and_the_cells_come(world: World) -> None:
    world.run()
    write(world.box, box_layout.setup_log(SETUP), b"Collecting x\n")
    (world.box.root / box_layout.RUNNER_LOG).mkdir()
    done = pull(world)
    assert done.problem == ""
    (warning,) = done.warnings
    assert box_layout.RUNNER_LOG in warning
    assert {result.state for result in done.results} == {"pulled"}
    assert list(here(world)) == [f"box-0-g1/setup-{Path(box_layout.setup_log(SETUP)).name}"]


def test_without_the_secrets_no_log_is_copied_and_the_pull_goes_on(world: World) -> None:
    world.run()
    write(world.box, box_layout.RUNNER_LOG, b"begins\n")
    write(world.box, box_layout.SECRETS, b"{")
    done = pull(world)
    assert done.problem == ""
    assert "so no log is copied" in done.warnings[0]
    assert here(world) == {}


@pytest.mark.parametrize("silent", ["tails", "read"])
def test_a_box_that_falls_silent_is_asked_for_its_logs_again(
    world: World, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    box, channel = world.box, world.box.channel
    write(box, box_layout.setup_log(SETUP), b"Collecting x\n")
    box.log("setup-started", setup=SETUP, code="c")

    def cut(path: str, *_: object, limit: int = 0, **__: object) -> bytes:
        if silent == "read" and path != box_layout.RUNNER_LOG:
            return LocalChannel.read(channel, path)
        raise Unreachable("cut off")

    monkeypatch.setattr(channel, silent, cut)
    assert pull(world, channel).problem == "cut off"
    assert box_logs.due(world.store, "box-0", 1, box.journal)


def test_logs_whose_record_can_not_be_written_are_a_warning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write(world.box, box_layout.RUNNER_LOG, b"begins\n")

    def full(*_: object) -> None:
        raise EvidenceError("the disk is full")

    monkeypatch.setattr(world.store, "write_record", full)
    found = box_logs.copy(world.box.channel, copied_logs(world.store, "box-0", 1), world.store, "")
    assert found.problems == ("what was copied of its logs is not on record: the disk is full",)


def test_an_earlier_copy_stays_where_the_log_can_not_be_read_any_more(world: World) -> None:
    log = write(world.box, box_layout.RUNNER_LOG, b"begins\n")
    pull(world)
    log.unlink()
    log.mkdir()
    assert pull(world).warnings
    assert here(world) == {"box-0-g1/runner.log": b"begins\n"}
    assert [one.path for one in copied_logs(world.store, "box-0", 1).logs] == [box_layout.RUNNER_LOG]


def test_logs_come_also_where_the_journal_or_the_record_does_not_read(world: World) -> None:
    write(world.box, box_layout.RUNNER_LOG, b"begins\n")
    world.box.journal_file.write_bytes(b"nonsense\n")
    record = world.store.root / "records/box-logs/box-0-g1.json"
    record.parent.mkdir(parents=True)
    record.write_bytes(b"\0" * 80)
    done = pull(world)
    assert done.problem
    assert here(world) == {"box-0-g1/runner.log": b"begins\n"}
    assert copied_logs(world.store, "box-0", 1).logs


def test_evidence_without_copies_of_logs_reads(world: World) -> None:
    """As an older version left it."""
    assert copied_logs(world.store, "box-0", 1).logs == ()


class Counting(LocalChannel):
    """A way to a box on which each round trip counts."""

    def __init__(self, box: Box) -> None:
        super().__init__(box.native_id, box.root, {})
        self.trips: list[str] = []
        self.known: list[str] = []

    def prefetch(self, questions: Sequence[prefetch.Question]) -> None:
        self.trips.append("prefetch")
        self.known = [question.verb + str(question.args) for question in questions]

    def asked(self, question: prefetch.Question) -> None:
        if question.verb + str(question.args) in self.known:
            self.known.remove(question.verb + str(question.args))
        else:
            self.trips.append(question.verb)

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        self.asked(prefetch.read(path))
        return super().read(path, offset=offset, limit=limit)

    def tails(self, paths: Sequence[str], most: int) -> dict[str, tuple[int, bytes]]:
        self.asked(prefetch.tails(paths, most))
        return super().tails(paths, most)

    def walk(self, folders: Sequence[str], **how: object) -> object:  # type: ignore[override]
        self.asked(prefetch.walk(folders, **how))  # type: ignore[arg-type]
        return super().walk(folders, **how)  # type: ignore[arg-type]


def test_they_come_in_the_round_trip_of_the_journal(world: World) -> None:
    write(world.box, box_layout.RUNNER_LOG, b"begins\n")
    world.box.log("setup-started", setup=SETUP, code="c")
    channel = Counting(world.box)
    pull(world, channel)
    assert channel.trips == ["prefetch"]
    write(world.box, box_layout.setup_log(SETUP), b"Collecting x\n")
    channel.trips.clear()
    pull(world, channel)
    assert channel.trips == ["prefetch", "tails"], "one more for logs that are new"
    channel.trips.clear()
    pull(world, channel)
    assert channel.trips == ["prefetch"]


def test_the_patrol_comes_with_the_logs(world: World) -> None:
    """So the report of a sweep that is over has GPUs, memory and disk."""
    write(world.box, box_layout.PATROL, b'{"time": "2026-11-21T09:00:00+00:00"}\n')
    world.box.log("setup-started", setup=SETUP, code="c")
    channel = Counting(world.box)
    pull(world, channel)
    (kept,) = [log for log in copied_logs(world.store, "box-0", 1).logs if log.path == box_layout.PATROL]
    assert b"2026-11-21" in (read_copied_log(world.store, copied_logs(world.store, "box-0", 1), kept) or b"")


def test_a_box_that_does_not_answer_any_more_ends_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_logs, "LAST_SECONDS", 0.1)
    never = threading.Event()

    def silent() -> Channel:
        never.wait(30)
        raise Unreachable("it does not answer")

    try:
        (problem,) = box_logs.copy_last(silent, Evidence(world.uri), "box-0", 1)
    finally:
        never.set()
    assert "were not copied within" in problem


def test_what_keeps_the_last_copy_from_being_made_is_said(world: World) -> None:
    def gone() -> Channel:
        raise Unreachable("it does not answer")

    assert box_logs.copy_last(gone, Evidence(world.uri), "box-0", 1) == (
        "its logs were not copied: it does not answer",
    )
    (problem,) = box_logs.copy_last(lambda: world.box.channel, Evidence(f"{world.uri}-moved"), "box-0", 1)
    assert "evidence-moved is not there" in problem
