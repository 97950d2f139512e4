"""Runs a box's queue of cells, one in each slot, and seals their files on the durable tier.

    python runner.py SWEEP            SWEEP: the folder of spec.json and queue.jsonl, `<box>/data/sweep`
    python runner.py SWEEP --watch    stops the box once its lease is over: `lease`
    python runner.py SWEEP --worker NAME, one of several that share the queue: `worker`

Python 3.8+, standard library only; `launch.ship` sends all of this folder. The code, command and environment of a
started cell never change; after a final failure a newer version of it in the queue starts with a count of 0.
Checkpoints are kept by config and version, so a cell goes on only from its own, or in the folder that its line names.
An exit code of 0 proves nothing: a cell is done when its files were copied to the durable tier, read back there, and
renamed to their final name.
A full disk is no failure: no cell starts until there is room again, and the runner waits for that.

Exit codes:
  0      the queue is drained: every cell is sealed or dropped
  1      drained, but a cell failed for good or was refused, or a line of the queue can't be read; cells that have not
         begun may wait, since one left the wrong files (`common.files_hold`)
  2      SWEEP, spec.json or the durable tier can't be used; nothing was started
  3      another runner is at work here
  4      the journal is damaged before its last line; nothing was started
  5      a process of an earlier runner's cell can't be ended; nothing was started
  6      the journal or the queue can't be read or written; running cells were ended, the next runner goes on with them
  7      drained, but the setup of some cells failed: they are still pending, and the next runner tries it again
  8, 9   only of a worker that shares the queue: `worker`
  70     a defect of the runner; else as 6
  128+n  signal n came: it was passed on to the cells; the next runner goes on with them

Before it begins, it checks that the durable tier is the place of the host that the box was made with. It ends an
attempt at the job's timeout, or when it hangs; and a queue that stands still when the lease is over, so that the box
can stop.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import fsync_directory, write_atomically
from sweepstack.onbox.common.locks import take
from sweepstack.onbox.common.next_version import checkpoint_name
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, signal_group, start_of
from sweepstack.onbox.runner.attempt import Attempt, Ended, SealableAttempt
from sweepstack.onbox.runner.cell_processes import end_cells, end_children
from sweepstack.onbox.runner.cut_checkpoint import any_there
from sweepstack.onbox.runner.disk import DiskGate
from sweepstack.onbox.runner.ending import Endings
from sweepstack.onbox.runner.lease import WATCH, Lease, Starter, Watcher
from sweepstack.onbox.runner.longer import beginnings
from sweepstack.onbox.runner.off import power_off, queued
from sweepstack.onbox.runner.patrol import STALL_SECONDS, Patrol
from sweepstack.onbox.runner.probe import gpus_asked
from sweepstack.onbox.runner.records import LOCK_SECONDS, Entry, Fatal, Journal, Queue, outcome, say
from sweepstack.onbox.runner.remains import Children
from sweepstack.onbox.runner.schedule import Schedule
from sweepstack.onbox.runner.sealing import CellFailure
from sweepstack.onbox.runner.setup import Setups
from sweepstack.onbox.runner.spec import GRACE_SECONDS, Spec
from sweepstack.onbox.runner.upload import Uploads

LOOK_SECONDS = 1.0
"""The queue is read at least so often."""
KILL_SECONDS = 5.0
SEALERS = 4
MOST_WAITING = 64
"""So many cells wait at once for what they left running; they don't keep others from being sealed."""


class Runner:
    """One run of the runner on one box. Use it once, from the main thread."""

    def __init__(self, home: Path) -> None:
        self.home = self.folder = home
        self.scratch = home.parent.parent / "scratch" / "sweep"
        self._lock = self._be_the_only_one()
        self.spec = Spec(home / "spec.json")
        spec = self.spec()
        self._must_be_meant(spec)
        self.watcher = Starter(home)
        self.watcher.beat(spec)  # before anything that a mount could keep from returning, or that ends this runner
        self.box = str(spec["native_id"])
        if os.environ.get(BOX_ID_VARIABLE, self.box) != self.box:
            raise Fatal(2, f"{home}/spec.json is box {self.box}'s, and this is {os.environ[BOX_ID_VARIABLE]}")
        durable = home.parent.parent / spec["durable"]
        must_be_the_place(home.parent.parent, str(spec["durable"]))
        if not durable.is_dir():
            raise Fatal(2, f"the durable tier is not there: {durable}")
        self.cells = durable / spec["identity"] / "cells"
        self.checkpoints = durable / spec["identity"] / "checkpoints"
        for folder in (self.cells, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (durable, durable / spec["identity"]):
            fsync_directory(folder)
        self.journal = self._open_journal()
        fsync_directory(home)
        queue = Queue(home / "queue.jsonl", shared="shared" in spec)
        left = lambda cell, number: SealableAttempt.read(home / "cells" / cell / str(number)) is not None  # noqa: E731
        self.schedule = Schedule(queue, self.journal, self.cells, spec["identity"], left)
        self.running: dict[str, Attempt] = {}
        self.finishing: dict[str, tuple[Attempt, Future[None]]] = {}
        self.stop, self.signals, self.patrol = 0, 0, Patrol(home, self.folder, self.journal.ended, self._wake)
        self.standstill, self.lease_over = Standstill(home), ""
        self.not_copied: dict[str, Any] = {}
        self.drained_at = 0  # the length of the queue file, in bytes, when all of it was done
        self.syncs: list[Future[None]] = []
        self.pool, self.patient = ThreadPoolExecutor(SEALERS + 1), ThreadPoolExecutor(MOST_WAITING)
        self.wake_read, self.wake_write = os.pipe()
        for end in (self.wake_read, self.wake_write):
            os.set_blocking(end, False)
        self.gate = DiskGate(home, self.cells, self.scratch, self.journal, self.schedule.announce, self._wake)
        named = str(spec["identity"]), self.owner
        self.uploads = Uploads(self.cells, self.checkpoints, *named, self.journal, self._wake)
        self.setups = Setups(home, self.journal, self.schedule.announce, self._wake, self.uploads)
        self.children = Children(self.box)
        self.begins = beginnings(self.cells, self.checkpoints, self._wake)
        ends = self.gate, self.running, self._wake, self.uploads, self.setups.code
        self.endings = Endings(self.box, self.cells, self.journal, *ends, lambda: self.stop != 0, self.children)

    # -- set-up

    def _be_the_only_one(self) -> int:
        """Takes runner.lock, which is held until this process ends. Raises Fatal when another runner holds it."""
        lock = os.open(self.home / "runner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not take(lock, LOCK_SECONDS):
            raise Fatal(3, f"another runner is at work in {self.home}")
        record = json.dumps({"pid": os.getpid(), "start_ticks": start_of(os.getpid())})
        try:
            write_atomically(self.home / "runner.pid", record.encode("ascii") + b"\n")
        except OSError as error:
            raise Fatal(6, f"runner.pid can't be written: {error}") from error
        return lock

    def _must_be_meant(self, spec: dict[str, Any]) -> None:
        if "shared" in spec:
            raise Fatal(2, "several workers share this queue: start one with --worker NAME")

    @property
    def owner(self) -> str:
        """Whose the sets of checkpoints are that this runner copies to a bucket."""
        return self.box

    def _open_journal(self) -> Journal:
        return Journal(self.home / "journal.jsonl")

    def _end_leftovers(self) -> None:
        """Ends processes that earlier runners left: two attempts of a cell would write to the same checkpoints."""
        leaders = self.setups.leaders()
        for name, progress in self.journal.cells.items():
            if progress.state == "started":
                leaders.update(Attempt.leader(self.home, name, progress.attempt))
        grace = float(self.spec().get("grace_seconds", GRACE_SECONDS))
        left = end_cells(self.box, None, leaders, grace)
        if left:
            raise Fatal(5, f"processes of an earlier runner's cells can't be ended: {left}")

    # -- the loop

    def run(self) -> int:
        """Runs until the queue is drained or a signal comes. Returns the exit code; raises Fatal."""
        self._end_leftovers()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        try:
            while not self.stop:
                self._collect()
                self._take_in()
                while self._reseal_one() or self._start_one():
                    pass
                if not (self._busy() or self._waits() or self.uploads.copies.owes()) and self._drained():
                    self.uploads.stop()
                    return self._rest(self.schedule.verdict())
                self._end_standstill()
                self._wait(LOOK_SECONDS)
            return self._stopped()
        except BaseException:
            self._end_cells()
            raise

    def _end_standstill(self) -> None:
        """Ends this run when the lease is over and nothing moves: the watcher then stops the box."""
        if not (self.stop or self.finishing or self._waits()):
            blocked = self.gate.blocked is not None
            why = self.standstill.why(self.spec(), self.running, self.patrol, blocked=blocked)
            if why:
                say(f"the lease is over, and {why}: the runner ends")
                self.stop, self.lease_over = signal.SIGTERM, why

    def _rest(self, verdict: int) -> int:
        """Called when the queue is drained: issues the box's power-off, if the spec asks for it. Returns the exit
        code."""
        self.watcher.beat(self.spec())  # a short queue may be drained before the first beat
        if verdict in (0, 1):  # else cells still wait until a person repairs their set-up
            power_off(self.home, self.spec(), self.journal, self.drained_at, lambda: self.stop != 0)
        return verdict

    def _on_stop(self, number: int, _frame: Any) -> None:
        self.stop, self.signals = number, self.signals + 1

    def _wait(self, seconds: float) -> None:
        """Sleeps until a child ends, a sealer is done or a signal comes; `seconds` at most."""
        spec = self.spec()
        self.uploads.copies.beat(spec)
        self.watcher.beat(spec)
        self.patrol.beat(self.running, spec, self.gate.blocked, self.uploads.backlog())
        due = [attempt.kill_at - time.monotonic() for attempt in self.running.values() if attempt.kill_at is not None]
        select.select([self.wake_read], [], [], max(0.0, min([seconds, self.patrol.due - time.monotonic(), *due])))
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake_read, 4096)

    def _collect(self) -> None:
        """Gives ended attempts to the sealers, kills those whose grace is over, and handles the sealers' results."""
        for name, attempt in list(self.running.items()):
            code = attempt.process.poll()
            if code is not None:
                del self.running[name]
                if code:  # before its slot is free: another cell would begin on a node that is lost
                    self.setups.look_at_nodes_again(attempt.entry, self.spec())
                own = {other.process.pid for other in self.running.values()}
                attempt.holds_slot = self.children.may_remain(name, attempt.process.pid, attempt.out, own)
                pool = self.patient if attempt.holds_slot else self.pool
                future = pool.submit(self.endings.finish, attempt, code)
                self.finishing[name] = attempt, future
                future.add_done_callback(lambda _: self._wake())
            elif attempt.kill_at is not None and time.monotonic() >= attempt.kill_at:
                signal_group(attempt.process.pid, signal.SIGKILL)
                attempt.kill_at += KILL_SECONDS
            elif attempt.kill_at is None and attempt.watch is not None and attempt.watch.look():
                say(f"{name}: {attempt.watch.found}; it is ended")
                self._ask_to_end(attempt)
            elif attempt.kill_at is None:
                hung, still = self.patrol.hung(attempt)
                waits = bool(self.schedule.ready) and self.gate.blocked is None  # else no cell could use a free slot
                ended = limit_attempt(
                    attempt, self.spec(), hung, name in self.schedule.again, still, waits, name in self.schedule.ends
                )
                if ended is not None:
                    mark_ended(attempt, ended)
                    self._ask_to_end(attempt)
        stages = self.setups.collect(self.spec())
        if "mounts" in stages:  # some of the cells may have come back from the bucket
            self._end_dropped(self.schedule.look_again(self._busy()))
        begun = bool(self.begins and self.begins.news())  # always asked: `Beginnings.ready` waits for it
        if self.uploads.copies.collect() or begun or stages:
            self.schedule.settled = False
        if self.setups.shipped_again():
            self._end_dropped(self.schedule.release(self._busy()))
        for sync in [sync for sync in self.syncs if sync.done()]:
            self.syncs.remove(sync)
            sync.result()
        for name, (_, future) in list(self.finishing.items()):
            if future.done():
                del self.finishing[name]
                future.result()
                self._touch(name)
        unjudged = not all(attempt.judged for attempt, _ in self.finishing.values())
        if self.schedule.unjudged and not unjudged:
            self.schedule.settled = False
        self.schedule.unjudged = unjudged
        self.children.reap({attempt.process.pid for attempt in self.running.values()})

    def _busy(self) -> set[str]:
        return {*self.running, *self.finishing}

    def _waits(self) -> bool:
        """Whether a cell is to start once something is ready."""
        return self.setups.busy or self.uploads.copies.busy_with > 0 or bool(self.begins and self.begins.busy)

    def _take_in(self) -> None:
        """Handles new lines of the queue; ends cells that were dropped."""
        self._end_dropped(self.schedule.take_in(self._busy()))

    def _touch(self, name: str) -> None:
        self._end_dropped(self.schedule.touch([name], self._busy()))

    def _end_dropped(self, dropped: dict[str, str]) -> None:
        for name, reason in dropped.items():
            if name in self.finishing:
                self.finishing[name][0].dropped = reason  # ends its wait; where it is being sealed, it is too late
            attempt = self.running.get(name)
            if attempt is not None and attempt.dropped is None:
                attempt.dropped = reason
                self._ask_to_end(attempt)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self.wake_write, b"\0")

    def _start_one(self) -> bool:
        """Starts one more cell if one may start and a slot is free. False when it started none."""
        spec = self.spec()
        slots = max(1, int(spec.get("slots") or 1))
        used = {attempt.slot for attempt in self.running.values()}
        used |= {attempt.slot for attempt, _ in self.finishing.values() if attempt.holds_slot}
        free = [slot for slot in range(slots) if slot not in used]
        if not self.schedule.ready or self.schedule.settled or not free or self.stop:
            return False
        if gpus_asked(spec) and not self.patrol.has_looked():
            return False
        if len(self.finishing) >= slots + SEALERS or not self.gate.is_open(spec, len(self.running)):
            return False
        with self._queue_locked() as locked:  # a cell is taken out before or after this, not meanwhile
            attempt = self._claim(spec, free[0]) if locked else None
        if attempt is None:
            return False
        name = attempt.entry.cell
        try:
            self.uploads.copies.must_begin(name)
            if self.begins:
                self.begins.must_begin(name)
            attempt.start()
        except (CellFailure, OSError) as error:
            self.endings.failed(attempt, None, error, "", isinstance(error, CellFailure))
            self._touch(name)
        else:
            self.running[name] = attempt
            self.syncs.append(self.pool.submit(self.journal.sync))  # only a power cut could lose the line, and the cell
        return True

    def _reseal_one(self) -> bool:
        """Begins to seal the files of one more cell that its files failed before, if other artifacts are asked for now.
        It takes no slot. False when it began none."""
        spec = self.spec()
        if not self.schedule.to_reseal or self.stop or len(self.finishing) >= SEALERS:
            return False
        if not self.gate.is_open(spec, len(self.running)):
            return False
        with self.journal.turn(LOCK_SECONDS) as mine:
            entry = self.schedule.pop_to_reseal(self._busy()) if mine else None
            if entry is None:
                return False
            number = self.journal.cells[entry.cell].attempt
            attempt = Attempt(self.home, self.checkpoints, self.scratch, spec, entry, number, 0, 0)
            left = SealableAttempt.read(attempt.folder)
            if left is None:  # just now its files went away: it is trained
                self._touch(entry.cell)
                return False
            self.schedule.announce()
            self.journal.append("cell-resealing", cell=entry.cell, attempt=number, version=entry.version)
        future = self.pool.submit(self.endings.reseal, attempt, left)
        self.finishing[entry.cell] = attempt, future
        future.add_done_callback(lambda _: self._wake())
        return True

    def _claim(self, spec: dict[str, Any], slot: int) -> Attempt | None:
        self._take_in()
        return self._claim_next(spec, slot)

    def _may_start(self, entry: Entry, spec: dict[str, Any]) -> bool | None:
        """See `Schedule.pop`."""
        ready = self.setups.ready(entry, spec)
        if not ready:
            return ready
        cell, folder = entry.cell, self.checkpoints / entry.cell / entry.checkpoints
        begin = ("previous", checkpoint_name(entry.config, entry.origin)) if entry.origin else ("", "")
        copied = self.uploads.copies.ready(cell, folder, *begin, most=max(1, int(spec.get("slots") or 1)))
        if not copied or not entry.source[0]:
            return copied
        return self.begins.ready(entry) if self.begins else False

    def _claim_next(self, spec: dict[str, Any], slot: int) -> Attempt | None:
        first = spec.get("priority") or ()
        entry = self.schedule.pop(self._busy(), lambda entry: self._may_start(entry, spec), first)
        if entry is None:
            return None
        known = self.journal.cells[entry.cell]
        number, threads = known.attempt + 1, known.threads.get(entry.version)
        if entry.checkpoints_of and any_there(self.checkpoints / entry.cell / entry.checkpoints) is False:
            entry = entry._replace(checkpoints_of=())  # it begins at 0: there is nothing to go on from
        attempt = Attempt(self.home, self.checkpoints, self.scratch, spec, entry, number, slot, threads)
        attempt.environment = self.setups.environment(entry, spec)
        step = attempt.checkpoint_step()
        self.schedule.announce()
        self.journal.append(
            "cell-started",
            wait=False,
            cell=entry.cell,
            attempt=number,
            config_digest=entry.config,
            code=entry.code,
            version=entry.version,
            retry=entry.retry,
            work=entry.work,
            **({"folder": entry.folder} if entry.folder else {}),
            **attempt.origin(),
            **({"setup": entry.prepared} if entry.setup else {}),
            **({"checkpoint_step": step} if step is not None else {}),
            **({"threads": attempt.threads} if attempt.threads else {}),
            argv=attempt.argv,
            slot=slot,
        )
        return attempt

    @contextlib.contextmanager
    def _queue_locked(self) -> Iterator[bool]:
        lock = os.open(self.home / "queue.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            yield take(lock, LOCK_SECONDS)
        finally:
            os.close(lock)

    def _drained(self) -> bool:
        """Whether the queue is done. Then releases runner.lock while the queue is locked: a command that appends later
        sees that no runner is at work."""
        with self._queue_locked() as locked:
            if not locked:
                return False
            self._take_in()
            if self.schedule.to_reseal or (self.schedule.ready and not self.schedule.settled):
                return False
            self.drained_at = queued(self.home)
            os.close(self._lock)
            return True

    # -- the end

    def _ask_to_end(self, attempt: Attempt) -> None:
        signal_group(attempt.process.pid, signal.SIGTERM)
        if attempt.kill_at is None:
            attempt.kill_at = time.monotonic() + float(attempt.spec.get("grace_seconds", GRACE_SECONDS))

    def _stopped(self) -> int:
        """Ends all that runs, and writes its own end down. Returns the exit code."""
        code = self._end_running()
        if self.schedule.announced:
            more: dict[str, Any] = {"why": "lease", "reason": self.lease_over} if self.lease_over else {}
            self.journal.append("runner-stopped", signal=signal.Signals(self.stop).name, **more, **self.not_copied)
        return code

    def _end_running(self) -> int:
        """Passes the signal on to the cells, waits for them and the sealers, and lets what they saved be copied. A
        second signal ends the grace."""
        number = self.stop
        for attempt in self.running.values():
            attempt.stopped = True
            self._ask_to_end(attempt)
        self.setups.stop(signal.SIGTERM)
        self.uploads.wind_up()
        grace = float(self.spec().get("grace_seconds", GRACE_SECONDS))
        deadline = time.monotonic() + grace + 2 * KILL_SECONDS
        patient = True
        while True:
            if patient and self.signals > 1:
                patient = False
                for attempt in self.running.values():
                    attempt.kill_at = time.monotonic()
            self._collect()
            if not (self.running or self.finishing or self.setups.busy) or time.monotonic() > deadline:
                break
            if not patient or time.monotonic() > deadline - 2 * KILL_SECONDS:
                self.setups.stop(signal.SIGKILL)
                self.uploads.stop()
            self._wait(LOOK_SECONDS)
        self._copy_once_more(deadline)
        return 128 + number

    def _copy_once_more(self, deadline: float) -> None:
        """The last copy of checkpoints, within the grace; a second signal ends it. `not_copied` has what is left."""
        self.uploads.copies.last()
        while not self.uploads.copies.done and time.monotonic() < deadline and self.signals < 2:
            self._wait(LOOK_SECONDS)
        self.uploads.stop()
        left = self.uploads.copies.left()
        if left:
            self.not_copied = {"not_copied": left}

    def _end_cells(self) -> None:
        self.setups.stop(signal.SIGKILL)
        self.uploads.stop()
        end_children([attempt.process for attempt in self.running.values()], GRACE_SECONDS)


def main(argv: list[str]) -> int:
    """Runs the queue of the box whose SWEEP folder is `argv[1]`. Returns the exit code."""
    return outcome(lambda: _run(argv))


def _run(argv: list[str]) -> int:
    if len(argv) not in (2, 3) or argv[2:] not in ([], [WATCH]) or not Path(argv[1]).is_dir():
        raise Fatal(2, "one argument: the folder of spec.json and queue.jsonl")
    home = Path(os.path.abspath(argv[1]))  # links unresolved: the box's root is found by the names
    return Watcher(home).run() if argv[2:] else Runner(home).run()


STALLS = 3
"""A hung cell is ended after so many stall intervals if other cells wait for its slot, unless `on_hang` says
otherwise."""


def limit_attempt(
    attempt: Attempt,
    spec: Mapping[str, Any],
    hung: str,
    again: bool,
    still: float = 0.0,
    waits: bool = False,
    ends: bool = False,
) -> Ended | None:
    """Why a running attempt is to be ended now; None when it goes on. It is ended when `timeout_seconds` is over; or
    when the patrol calls it hung (`hung`: the patrol's reason, else "") and `on_hang` is `retry` or `drop`, or a person
    asked for the cell `again` (in any case where that `ends` it), or it showed no progress for `STALLS` intervals
    (`still`: seconds) while another cell `waits` for its slot. The current spec counts, not the one at its start.
    """
    most = float(spec.get("timeout_seconds") or 0)
    if most and attempt.seconds() > most:
        return Ended("timeout", f"it took longer than job.timeout ({most:g} s) and was ended", False)
    if ends:
        return Ended("stopped", "it was ended to run again (sweepctl retry)", False)
    if hung and again:
        return Ended("hung", f"hung, and was ended to run again (sweepctl retry): {hung}", False)
    policy = spec.get("on_hang")
    if hung and policy in ("retry", "drop"):
        given_up = "; given up (job.on_hang: drop)" if policy == "drop" else ""
        return Ended("hung", f"hung, and was ended: {hung}{given_up}", policy == "drop")
    if hung and waits and still >= STALLS * float(spec.get("stall_seconds", STALL_SECONDS)):
        return Ended("hung", f"hung, and was ended as other cells wait for its slot: {hung}", False)
    return None


def mark_ended(attempt: Attempt, ended: Ended) -> None:
    """Marks the attempt as ended, and logs it. What it does within its grace does not count."""
    attempt.ended = ended
    say(f"{attempt.entry.cell} attempt {attempt.number}: {ended.reason}")


FACTS, PLACE, SHOWN = "box.json", "place.json", "shown"
MEND = "mount it in the platform's console, or start the host again, then run `pulumi up`"


def must_be_the_place(box: Path, mount: str) -> None:
    """Raises Fatal when the place that the box was made with is not there now. After a restart of the host its file
    system may not be mounted: cells sealed into the empty mount point would be lost with the host."""
    try:
        shown = json.loads((box / FACTS).read_bytes()).get(SHOWN) or {}
    except FileNotFoundError:
        return  # no box of a host: the platform mounts what it has
    except (OSError, ValueError, AttributeError) as error:
        raise Fatal(2, f"{box / FACTS} can't be read, so the durable tier is not known: {error}") from error
    if mount not in shown:
        return
    folder, expected = shown[mount]
    try:
        found = json.loads((box / mount / PLACE).read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Fatal(2, f"the durable tier is not mounted at {folder}: {MEND} ({error})") from error
    if found != expected:
        raise Fatal(2, f"the durable tier at {folder} is {found}, and this box was made with {expected}: {MEND}")


class Standstill:
    """Whether the lease is over and nothing moves. For the main thread."""

    def __init__(self, home: Path) -> None:
        self._lease = Lease(home)

    def why(self, spec: Mapping[str, Any], running: Mapping[str, Attempt], patrol: Patrol, *, blocked: bool) -> str:
        """Why the runner has to end; "" while it must not. `blocked`: nothing new can start. For a runner that seals
        nothing and sets nothing up just now. A cell that works is never ended: the box is needed."""
        if not self._lease.over(spec):
            return ""
        if running:
            return "each cell that runs is hung" if all(patrol.hung(one)[0] for one in running.values()) else ""
        return "nothing runs, and nothing can start" if blocked else ""
