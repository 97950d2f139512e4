"""Workers that share a queue: real processes that drain it, are killed, halted and proved dead meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.commands.confirm import worker as worker_ended
from sweepstack.cli.output import Out
from sweepstack.core.journal import Journal
from sweepstack.core.records import Cell
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import canonical_json, digest_of, sha256_hex
from sweepstack.onbox.common.errors import No, Unreachable
from sweepstack.onbox.common.locks import owner_of, state_of
from sweepstack.onbox.common.processes import stat_fields
from sweepstack.onbox.runner.records import Fatal
from sweepstack.onbox.runner.workers import Fenced, Proofs, SharedJournal, begin, who
from tests.onbox.harness import INTERPRETER, SECONDS, Box

ONCE = "mkdir {control}/$SWEEPSTACK_CELL || touch {control}/twice-$SWEEPSTACK_CELL; echo 1 > {{out}}/result.json"
ROOM = {"bytes": 0, "inodes": 0}


class Shared:
    """A box and its workers."""

    def __init__(self, box: Box) -> None:
        self.box, self.env = box, dict(os.environ)
        self.live: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, **env: str) -> subprocess.Popen[bytes]:
        argv = [INTERPRETER, str(self.box.runner / "runner.py"), str(self.box.home), "--worker", name]
        self.live[name] = subprocess.Popen(argv, env={**self.env, **env}, stderr=subprocess.DEVNULL)
        return self.live[name]

    def halt(self, name: str) -> None:
        """It does nothing more from here on: the system call that it was in may end after the signal was sent."""
        self.live[name].send_signal(signal.SIGSTOP)
        how = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
        self.wait(lambda: os.waitid(os.P_PID, self.live[name].pid, how))

    def ended(self, name: str) -> int:
        return self.live[name].wait(SECONDS)

    def journal(self) -> Journal:
        return self.box.journal()

    def say_ended(self, name: str) -> subprocess.CompletedProcess[bytes]:
        argv = [INTERPRETER, str(self.box.runner / "runner.py"), str(self.box.home), "--worker-ended", name]
        return subprocess.run([*argv, "--saw", "it is gone", "--by", "ann"], capture_output=True, timeout=SECONDS)

    def count(self, event: str) -> Counter[str]:
        return Counter(str(one.get("cell", one["worker"])) for one in self.journal().entries if one["event"] == event)

    def sealed(self) -> int:
        """Also those that a worker had sealed when it was killed: the next one finds them so."""
        return sum(cell.state == "sealed" for cell in self.journal().cells.values())

    def wait(self, what: Callable[[], Any]) -> None:
        ends = time.monotonic() + SECONDS
        while not what():
            assert time.monotonic() < ends, self.said()
            time.sleep(0.02)

    def said(self) -> str:
        return "\n".join(path.read_text() for path in self.box.home.glob("workers/*/runner.log"))


@pytest.fixture
def shared(make_box: Callable[..., Box]) -> Iterator[Shared]:
    found = Shared(make_box(shared={}, artifacts=[], min_free=ROOM, patrol_seconds=30))
    yield found
    for one in found.live.values():
        with contextlib.suppress(ProcessLookupError):
            one.send_signal(signal.SIGCONT)
        one.kill()
        one.wait()


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return stat_fields(pid)[0] not in "ZX"
    return False


def fill(shared: Shared, count: int) -> None:
    for number in range(count):
        shared.box.add(f"c{number}", ONCE.format(control=shared.box.control), n=number)


def test_a_worker_takes_cells_by_priority_whatever_order_it_would_choose_else(shared: Shared) -> None:
    fill(shared, 5)
    shared.box.set(priority=[{"cell": "c3"}, {"n": 1}])
    shared.start("w1")
    assert shared.ended("w1") == 0, shared.said()
    begun = [str(one["cell"]) for one in shared.journal().entries if one["event"] == "cell-started"]
    assert begun[:2] == ["c3", "c1"]
    assert sorted(begun[2:]) == ["c0", "c2", "c4"]


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.proof), 8])
def test_they_drain_one_queue_and_none_runs_twice(shared: Shared, workers: int) -> None:
    fill(shared, 40)
    for number in range(workers):
        shared.start(f"w{number}")
    assert {shared.ended(f"w{number}") for number in range(workers)} <= {0, 8}, shared.said()
    assert set(shared.count("cell-sealed").values()) == set(shared.count("cell-started").values()) == {1}
    assert len(shared.count("cell-sealed")) == 40
    assert not list(shared.box.control.glob("twice-*"))
    assert all(one.ended for one in shared.journal().workers.values())
    assert shared.start("w0").wait(SECONDS) == 3  # a name is one start of one worker


@pytest.mark.proof  # test_files_alone.py stays: one runner
def test_wrong_files_hold_the_cells_for_all_workers_and_one_seals_them_once_mended(shared: Shared) -> None:
    def ask(file: str) -> None:
        artifacts = [{"path": file, "load": "json"}]
        shared.box.set(artifacts=artifacts)
        for number in range(6):
            line = shared.box.line(Cell(name=f"c{number}", params={}), "echo 1 > {out}/table.json")
            shared.box.append({**line, "artifacts": digest_of(artifacts)})

    ask("model.json")
    assert shared.start("w0").wait(SECONDS) == 1
    assert shared.start("w1").wait(SECONDS) == 1
    assert shared.count("cell-started") == {"c0": 1}
    ask("table.json")
    for name in ("w2", "w3"):
        shared.start(name)
    assert {shared.ended(name) for name in ("w2", "w3")} <= {0, 8}, shared.said()
    assert shared.sealed() == 6
    assert set(shared.count("cell-started").values()) == {1}
    assert shared.count("cell-resealing") == {"c0": 1}


def test_cells_of_killed_workers_are_taken_over_and_their_processes_ended(shared: Shared) -> None:
    hold = shared.box.control / "hold"
    hold.touch()
    run = (
        f"echo $$ >> {shared.box.control}/pids; while [ -e {hold} ]; do sleep 0.05; done; echo 1 > {{out}}/result.json"
    )
    for number in range(3):
        shared.box.add(f"h{number}", run, n=number)
    fill(shared, 20)
    for number in range(3):
        shared.start(f"w{number}")
    shared.wait(lambda: len(shared.count("cell-started")) >= 3)
    pids = shared.box.control / "pids"
    shared.wait(lambda: len(pids.read_text().split()) >= 3)
    before = [int(pid) for pid in pids.read_text().split()]
    for number in range(3):
        shared.live[f"w{number}"].kill()
        shared.ended(f"w{number}")
    shared.start("later")
    shared.wait(lambda: len(shared.count("worker-ended")) == 3)
    assert not any(alive(pid) for pid in before), "an attempt of a dead worker goes on"
    hold.unlink()
    assert shared.ended("later") == 0, shared.said()
    assert shared.sealed() == 23
    attempts = {cell.name: cell.attempts for cell in shared.journal().cells.values()}
    assert [attempts[f"h{n}"] for n in range(3)] == [2, 2, 2]


def test_what_a_killed_worker_left_is_taken_before_cells_that_wait(shared: Shared) -> None:
    """By a worker that was at work all the time, once the other has written no heartbeat for long."""
    hold = shared.box.control / "hold"
    hold.touch()
    for number in range(2):
        run = f"while [ -e {hold} ]; do sleep 0.05; done; echo 1 > {{out}}/result.json"
        shared.box.add(f"h{number}", run, n=number)
    fill(shared, 4)
    for number in range(2):
        shared.start(f"w{number}")
        shared.wait(lambda: len(shared.count("cell-started")) > number)  # noqa: B023
    beat = shared.box.home / "workers" / "w0" / "patrol.jsonl"
    shared.wait(beat.exists)
    shared.live["w0"].kill()
    shared.ended("w0")
    os.utime(beat, (time.time() - 100, time.time() - 100))
    hold.unlink()
    assert shared.ended("w1") == 0, shared.said()
    started = [(e["cell"], e["worker"]) for e in shared.journal().entries if e["event"] == "cell-started"]
    assert started[:3] == [("h0", "w0"), ("h1", "w1"), ("h0", "w1")], shared.said()
    assert shared.sealed() == 6


def test_a_halted_worker_with_the_lock_is_waited_for_until_a_proof_and_fenced_when_it_goes_on(shared: Shared) -> None:
    folder = shared.box.home / "lock"
    halted = shared.start("halted")
    fill(shared, 60)

    def has_lock() -> bool:
        shared.halt("halted")
        seen = state_of(folder) if folder.exists() else None
        if seen and not seen.free and owner_of(folder, seen.number).get("worker") == "halted":
            return True
        halted.send_signal(signal.SIGCONT)
        return False

    shared.wait(has_lock)
    held = state_of(folder).number
    shared.start("other")
    shared.wait(lambda: (shared.box.home / "workers/other/worker.json").exists())
    refused = shared.say_ended("halted")  # its process is there: a person is not believed
    assert refused.returncode == 10
    assert b"runs" in refused.stderr
    assert state_of(folder).number == held
    assert not state_of(folder).free
    channel = LocalChannel(shared.box.native_id, shared.box.root, {})
    line = json.dumps({"op": "add", "cell": "none"}).encode() + b"\n"
    channel.append_locked(box_layout.QUEUE, line.replace(b"add", b"odd"), box_layout.QUEUE_LOCK)  # no wait
    record = shared.box.home / "workers/halted/worker.json"
    known = json.loads(record.read_text())
    record.write_text(json.dumps({**known, "boot": "another", "machine": ""}))  # as if it were on a host that is lost
    assert shared.say_ended("halted").returncode == 0, shared.said()
    shared.wait(lambda: state_of(folder).number > held + 3)
    halted.send_signal(signal.SIGCONT)
    assert shared.ended("halted") == 9, shared.said()
    assert shared.ended("other") in (0, 1), shared.said()
    entries = shared.journal().entries
    at = next(n for n, one in enumerate(entries) if one["event"] == "worker-ended")
    assert entries[at]["proof"] == "ann saw: it is gone"
    assert all(one["worker"] != "halted" for one in entries[at + 1 :])
    assert shared.sealed() == 60, shared.said()


def test_a_line_that_a_fenced_worker_wrote_without_the_lock_is_cut_out(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shared.box.home
    proofs = Proofs(home, who("a"), dict)
    first = SharedJournal(home, "a", who("a"), proofs.lock_owner_ended)
    second = SharedJournal(home, "b", who("b"), lambda one: one["worker"] == "a")
    looks = [first.is_ours, lambda: None]  # it is halted just after its look
    with first.turn():
        first.append("runner-started", pid=1)
        monkeypatch.setattr(first, "is_ours", lambda: looks.pop()())
        second.append("worker-ended", worker="a", proof="scheduler: gone", by="b")
        with pytest.raises(Fenced):
            first.append("cell-started", cell="c", attempt=1, config_digest="x", version="v")
    second.append("runner-started", pid=2)
    assert [one["event"] for one in shared.journal().entries] == [
        "runner-started",
        "worker-ended",
        "late-line-cut",
        "runner-started",
    ]


def test_what_is_damaged_otherwise_stops_every_worker(shared: Shared) -> None:
    journal = SharedJournal(shared.box.home, "a", who("a"), lambda _: False)
    journal.append("runner-started", pid=1)
    journal.close()
    path = shared.box.home / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"pid":1', b'"pid":2'))
    assert shared.start("w").wait(SECONDS) == 4


def test_a_torn_line_of_a_killed_worker_is_cut(shared: Shared) -> None:
    fill(shared, 2)
    shared.start("w0")
    shared.ended("w0")
    with open(shared.box.home / "journal.jsonl", "ab") as handle:
        handle.write(b'{"event":"cell-sta')
    shared.box.add("more", "echo 1 > {out}/result.json")
    shared.start("w1")
    assert shared.ended("w1") == 0, shared.said()
    assert sum(shared.count("torn-line-cut").values()) == 1


@pytest.mark.parametrize(
    ("said", "proved"),
    [
        ('{"state": "ended", "why": "NODE_FAIL"}', True),
        ('{"state": "running", "why": ""}', False),
        ('{"state": "unknown", "why": "no answer"}', False),
        ('ended {"state": "ended"}', False),
        ('{"state": "ended"}', False),  # no word of what proves it
        ('["ended"]', False),
        ("null", False),
        ("", False),
    ],
)
def test_only_the_scheduler_s_clear_yes_ends_a_worker_of_another_host(tmp_path: Path, said: str, proved: bool) -> None:
    me = who("here")
    os.environ["SWEEPSTACK_WORKER_JOB"] = "7_0"
    try:
        begin(tmp_path, {**who("there"), "boot": "another", "machine": "another"})
    finally:
        del os.environ["SWEEPSTACK_WORKER_JOB"]
    argv = [sys.executable, "-c", f"print({said!r})"]
    proofs = Proofs(tmp_path, me, lambda: {"native_id": "box", "shared": {"worker_state": argv}})
    assert proofs.proof("there") == ("scheduler: NODE_FAIL" if proved else "")
    assert Proofs(tmp_path, me, lambda: {"native_id": "box", "shared": {}}).proof("there") == ""
    assert proofs.proof("never was") == ""


@pytest.mark.parametrize(
    ("change", "ended"),
    [
        ({}, False),  # this very process
        ({"start": "1"}, True),  # its pid belongs to another one by now
        ({"start": "1", "space": "pid:[1]"}, False),  # in another container, whose pids mean nothing here
        ({"boot": "another"}, True),  # this machine, started anew
        ({"boot": "another", "machine": "another"}, False),
        ({"boot": "another", "machine": ""}, False),
        ({"boot": ""}, False),
        ({"start": ""}, False),
    ],
)
def test_what_a_host_proves_of_its_own_workers(tmp_path: Path, change: dict[str, str], ended: bool) -> None:
    me = {**who("here"), "machine": "this"}
    begin(tmp_path, {**me, "worker": "there", **change})
    proofs = Proofs(tmp_path, me, lambda: {"native_id": f"box-{os.getpid()}"})
    assert bool(proofs.proof("there")) is ended


@pytest.mark.parametrize("memory", ["it took more than it asked for: raise resources.memory", ""])
def test_a_cell_that_ends_each_worker_for_want_of_memory_fails_for_good(
    make_box: Callable[..., Box], memory: str
) -> None:
    """A worker that is killed can't write that down. The next one counts it, where the scheduler says why it ended; a
    worker that was killed for another reason is no failure of its cells."""
    says = json.dumps({"state": "ended", "why": "it is FAILED", "memory": memory})
    state = {"worker_state": [INTERPRETER, "-c", f"print({says!r})"]}
    shared = Shared(make_box(shared=state, artifacts=[], min_free=ROOM, retries=1))
    run = "echo 1 > {checkpoints}/n; [ $SWEEPSTACK_ATTEMPT = 3 ] || kill -9 $PPID; echo 1 > {out}/result.json"
    shared.box.add("greedy", run, n=1)
    for number in range(3):
        shared.start(f"w{number}", SWEEPSTACK_WORKER_JOB=f"7_{number}")
        code = shared.ended(f"w{number}")
    cell = shared.journal().cells["greedy"]
    if memory:
        assert (code, cell.state, cell.attempts, cell.final) == (1, "failed", 2, True), shared.said()
        assert (cell.reason, cell.failure_class, cell.saved) == (memory, "oom", True)
    else:
        assert (code, cell.state, cell.attempts) == (0, "sealed", 3), shared.said()


@pytest.mark.parametrize(
    "greedy", [True, pytest.param(False, marks=pytest.mark.proof)], ids=["one takes it all", "they take it together"]
)
def test_of_several_cells_that_end_a_worker_for_want_of_memory_each_runs_alone(
    make_box: Callable[..., Box], greedy: bool
) -> None:
    """No failure is counted of a cell that was not alone: the others would be given up for what one of them took."""
    says = json.dumps({"state": "ended", "why": "it is FAILED", "memory": "it took more than it asked for"})
    state = {"worker_state": [INTERPRETER, "-c", f"print({says!r})"]}
    shared = Shared(make_box(shared=state, artifacts=[], min_free=ROOM, retries=1, slots=2))
    there, done = shared.box.control / "b", "echo 1 > {out}/result.json"
    kills = f"while [ ! -e {there} ]; do sleep 0.05; done; kill -9 $PPID; sleep 60"
    shared.box.add("c", n=3)
    shared.box.append({"op": "drop", "cell": "c", "reason": "later", "unless_started": True})
    shared.box.add("a", kills if greedy else f"if [ $SWEEPSTACK_ATTEMPT = 1 ]; then {kills}; fi; {done}", n=1)
    shared.box.add("b", f"touch {there}; [ $SWEEPSTACK_ATTEMPT = 2 ] || sleep 60; {done}", n=2)
    for number in range(4 if greedy else 2):
        if number == 1:
            shared.box.add("c", f"sleep 1; {done}", n=3)  # which was in the queue before the others
        shared.start(f"w{number}", SWEEPSTACK_WORKER_JOB=f"7_{number}")
        code = shared.ended(f"w{number}")
    cells, failed = shared.journal().cells, shared.box.events("cell-failed")
    assert (cells["b"].state, cells["c"].state) == ("sealed", "sealed"), shared.said()
    assert (shared.count("cell-started")["b"], code) == (2, int(greedy)), shared.said()
    if greedy:
        assert [(one["cell"], one["class"], one["final"]) for one in failed] == [
            ("a", "oom", False),
            ("a", "oom", True),
        ]
    else:
        assert (cells["a"].state, failed) == ("sealed", [])
    held: set[str] = set()
    for entry in shared.journal().entries:
        name, event = entry.get("cell"), entry["event"]
        if event == "cell-started":
            assert not held or entry["attempt"] == 1, f"{name} began beside {held}"
            assert not {one for one in held if one != "c"} or name == "b", f"{name} began beside {held}"
            held.add(name)
        elif event in ("cell-sealed", "cell-failed"):
            held.discard(name)
        elif event == "worker-ended":
            held.clear()


@pytest.mark.parametrize(("said", "proved"), [("ended", True), ("unknown", False), ("running", False)])
def test_a_host_proves_nothing_of_the_other_nodes_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, proved: bool
) -> None:
    """Its process here is gone. Whether ranks elsewhere have ended, the scheduler says; the lock was its process's."""
    me = {**who("here"), "machine": "this"}
    dead = {**me, "worker": "there", "start": "1"}
    monkeypatch.setenv("SWEEPSTACK_WORKER_JOB", "7_0")
    monkeypatch.setenv("SWEEPSTACK_WORKER_NODES", json.dumps({"nodes": {"n1": "10.0.0.1", "n2": ""}, "start": []}))
    begin(tmp_path, dead)
    argv = [sys.executable, "-c", f'print(\'{{"state": "{said}", "why": "so"}}\')']
    proofs = Proofs(tmp_path, me, lambda: {"native_id": f"box-{os.getpid()}", "shared": {"worker_state": argv}})
    assert ("scheduler: so" in proofs.proof("there")) is proved
    assert proofs.lock_owner_ended(dead), "it can't write any more"
    assert not proofs.left_here("there"), "so a person may say that it has ended"


def test_near_its_wall_a_worker_starts_nothing_that_would_not_end(shared: Shared) -> None:
    fill(shared, 30)
    shared.start("short", SWEEPSTACK_WORKER_ENDS=str(time.time() + 5))
    assert shared.ended("short") == 11, shared.said()
    assert 1 <= len(shared.count("cell-sealed")) < 30  # the first one may always try
    shared.start("long", SWEEPSTACK_WORKER_ENDS=str(time.time() + 3600))
    assert shared.ended("long") == 0, shared.said()
    assert len(shared.count("cell-sealed")) == 30


def test_near_its_wall_it_takes_what_fits_of_cells_that_differ(shared: Shared) -> None:
    """By what each is expected to take, and not by what most took: most were short, and long ones come first."""
    journal = SharedJournal(shared.box.home, "old", who("old"), lambda _: False)
    for size, seconds, count in (("long", 1000.0, 3), ("short", 0.1, 5)):
        for n in range(count):
            cell = shared.box.add(f"{size}{n}", "true", size=size, n=n)
            said = {"cell": cell.name, "attempt": 1, "config_digest": cell.config_digest}
            journal.append("cell-started", version="", code="", **said)
            journal.append("cell-sealed", seconds=seconds, manifest="", **said)
    journal.append("runner-stopped", why="nothing to take")
    journal.close()
    for size in ("long", "short"):
        for n in (7, 8, 9):
            shared.box.add(f"{size}{n}", "echo 1 > {out}/result.json", size=size, n=n)
    shared.start("w0", SWEEPSTACK_WORKER_ENDS=str(time.time() + 90))
    assert shared.ended("w0") == 11, shared.said()
    begun = [str(one["cell"]) for one in shared.box.events("cell-started") if one["worker"] == "w0"]
    assert (begun[0][:4], sorted(begun[1:])) == ("long", ["short7", "short8", "short9"])


def test_the_wall_s_signal_ends_it_as_a_stop_and_its_cells_are_free(shared: Shared) -> None:
    shared.box.add("slow", "trap 'exit 3' TERM; while :; do sleep 0.05; done")
    worker = shared.start("w0")
    shared.wait(lambda: shared.count("cell-started"))
    worker.send_signal(signal.SIGUSR1)
    assert shared.ended("w0") == 128 + signal.SIGUSR1
    last = shared.journal().entries[-1]
    assert (last["event"], last["why"]) == ("runner-stopped", "wall")
    shared.start("w1")
    shared.wait(lambda: shared.count("cell-started")["slow"] == 2)


def test_the_scratch_of_workers_that_ended_here_is_removed_and_of_no_other(shared: Shared, tmp_path: Path) -> None:
    """On a node that many workers use one after the other it would fill the disk. Kept is that of a worker that may
    live, of one whose processes go on whatever the journal says, of one elsewhere, and of other boxes."""
    node = tmp_path / "node"
    there, env = node / "sweep" / "workers", {"SWEEPSTACK_NODE_SCRATCH": str(node)}
    stays = f"echo big > $SWEEPSTACK_SCRATCH/big; touch {shared.box.control}/$SWEEPSTACK_CELL; "
    stays += "[ $SWEEPSTACK_ATTEMPT = 2 ] || sleep 600; echo 1 > {out}/result.json"
    for number, name in enumerate(("killed", "halted")):
        shared.box.add(name, stays, n=number)
        shared.start(name, **env)
        shared.wait(lambda name=name: (shared.box.control / name).exists())  # type: ignore[misc]
    shared.halt("halted")
    shared.live["killed"].kill()
    ended = {"ended": {}, "elsewhere": {"host": "n9"}, "goes-on": {}, "mounted": {}, "linked": {}}
    begin(shared.box.home, who("unknown"))
    journal = SharedJournal(shared.box.home, "w", who("w"), lambda _: False)
    for name, change in ended.items():
        begin(shared.box.home, {**who(name), **change})
        journal.append("worker-ended", worker=name, proof="ann saw it", by="ann")
    journal.close()
    (there / "linked").symlink_to(tmp_path)
    for name in ("ended", "elsewhere", "goes-on", "mounted", "unknown", "of-another-box"):
        (there / name / "cell" / "1").mkdir(parents=True)
        (there / name / "cell" / "1" / "big").write_text("big")
    held = there / "mounted" / "cell" / "1"
    subprocess.run(["mount", "--bind", str(shared.box.volume), str(held)], check=True)
    goes_on = subprocess.Popen(["sleep", "600"], env={**os.environ, "SWEEPSTACK_WORKER": "goes-on"})
    try:
        shared.box.add("other", "echo 1 > {out}/result.json", n=7)
        shared.start("next", **env)
        shared.wait(lambda: not (there / "killed").exists() and not (there / "ended").exists())
        shared.wait(lambda: "other" in shared.count("cell-sealed"))
        kept = {path.name for path in there.iterdir()}
        stay = {"halted", "elsewhere", "goes-on", "mounted", "unknown", "of-another-box", "linked", "next"}
        assert kept == stay, shared.said()
        assert (there / "halted" / "halted" / "1" / "big").exists()
        assert list(shared.box.volume.iterdir()), "what is mounted there was removed"
        assert "removed the scratch of killed, which has ended" in shared.said()
    finally:
        goes_on.kill()
        goes_on.wait()
        subprocess.run(["umount", str(held)], check=True)


def test_one_worker_sets_up_and_the_others_wait(shared: Shared) -> None:
    done = shared.box.control / "set-up"
    setup = f"echo once >> {done}; sleep 1"
    for number in range(6):
        shared.box.add(f"s{number}", "echo 1 > {out}/result.json", more={"setup": setup}, n=number)
    for number in range(3):
        shared.start(f"w{number}")
    assert {shared.ended(f"w{number}") for number in range(3)} <= {0, 8}, shared.said()
    assert done.read_text() == "once\n"
    assert len(shared.count("cell-sealed")) == 6


def test_a_drop_waits_for_the_claim_that_may_not_have_read_it(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    home = shared.box.home
    holder = SharedJournal(home, "a", who("a"), lambda _: False)
    channel = LocalChannel(shared.box.native_id, shared.box.root, {})
    monkeypatch.setattr("sweepstack.onbox.agent.local_channel.APPEND_LOCK_SECONDS", 0.3)
    drop = b'{"cell":"c","op":"drop","reason":"x","unless_started":true}\n'
    with holder.turn(), pytest.raises(Unreachable, match=r"worker a .* has held its lock"):
        channel.append_locked(box_layout.QUEUE, drop, box_layout.QUEUE_LOCK)
    channel.append_locked(box_layout.QUEUE, drop, box_layout.QUEUE_LOCK)


def test_a_runner_and_a_worker_know_whose_box_it_is(shared: Shared, make_box: Callable[..., Box]) -> None:
    argv = [INTERPRETER, str(shared.box.runner / "runner.py"), str(shared.box.home)]
    assert subprocess.run(argv, timeout=SECONDS, stderr=subprocess.DEVNULL).returncode == 2
    alone = Shared(make_box())
    assert alone.start("w").wait(SECONDS) == 2


def test_a_line_that_does_not_follow_is_damage_where_its_worker_may_live(shared: Shared) -> None:
    home = shared.box.home
    journal = SharedJournal(home, "a", who("a"), lambda _: False)
    journal.append("runner-started", pid=1)
    entry = {"event": "cell-started", "cell": "c", "prev": "0" * 64, "seq": 1, "time": "x", "worker": "b"}
    with open(home / "journal.jsonl", "ab") as handle:
        handle.write(canonical_json({**entry, "hash": sha256_hex(canonical_json(entry))}) + b"\n")
    with pytest.raises(Fatal) as refused:
        journal.append("runner-started", pid=1)
    assert refused.value.args[0] == 4


def test_a_person_says_it_and_is_refused_while_it_runs(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    channel = LocalChannel(shared.box.native_id, shared.box.root, {})
    target: Any = SimpleNamespace(stack="dev")
    platform = SimpleNamespace(channel=lambda *_: channel)
    entry = SimpleNamespace(name="box-0", native_id="", account="", context=lambda: SimpleNamespace(platform=platform))
    monkeypatch.setattr(worker_ended, "find_box", lambda *_: entry)
    monkeypatch.setattr(worker_ended, "way_to", lambda *_: channel)
    shared.box.add("slow", "while :; do sleep 0.05; done")
    worker = shared.start("w0")
    shared.wait(lambda: shared.count("cell-started"))
    with pytest.raises(No, match="w0 runs: process"):
        worker_ended.confirm(target, Statement("box-0", "it is gone", "ann", which="w0"), Out(as_json=False))
    with pytest.raises(No, match="no worker other was on box-0"):
        worker_ended.confirm(target, Statement("box-0", "it is gone", "ann", which="other"), Out(as_json=False))
    assert not shared.count("worker-ended")
    worker.kill()
    worker.wait()
    assert worker_ended.confirm(target, Statement("box-0", "it is gone", "ann", which="w0"), Out(as_json=False)) == 0
    assert "w0 has ended (ann saw: it is gone)" in capsys.readouterr().out
    assert shared.journal().workers["w0"].ended.startswith("ann saw: it is gone; host ")
    leader = json.loads((shared.box.home / "cells" / "slow" / "1" / "pid").read_bytes())["pid"]
    assert not alive(leader), "what it left runs on"
