"""One of several workers that take cells from the queue of one box.

    python runner.py SWEEP --worker NAME    NAME is one start of one worker, and never used again
    python runner.py SWEEP --worker NAME --begin stdin    the same, once a line comes there: its program is read before
    python runner.py SWEEP --worker-ended NAME --saw TEXT --by PERSON    a person says that it has ended

Each is a process of its own, on any host that shares the box's folder. It is the runner of `main`, but for what
follows from the others. It holds the journal's turn while it takes a cell (`SharedJournal`). It does not wait for
cells of others: where nothing is left to take, and where a worker is quiet for long, it looks whether their workers
have ended (`workers.Proofs`), takes what those left, and else ends. A set-up that another worker runs it waits for.

The environment says of its allocation: SWEEPSTACK_WORKER_JOB and _TRY (what the scheduler calls it), _ENDS (when it
ends, in seconds since 1970, or empty), SWEEPSTACK_NODE_SCRATCH (a folder of this host alone, or empty).

Exit codes beside those of `main`:
  3      a worker of this name was here before
  8      cells remain, and other workers have them
  11     cells remain that would not end within what is left of this allocation: a new one takes them
  9      this worker's end was taken for proved: it wrote nothing more
Of `--worker-ended`, which then wrote nothing down:
  10     the worker runs, or something of its cells does
  12     another part of it (a pod, on a node of its own) is not known to have ended
With SIGUSR1 the end of the allocation is near: as SIGTERM, and the journal has `why: wall`.

Once cells were measured, a worker takes long ones first: else the last ones keep one worker at work while the others
have ended. But a slow worker that took the longest cell would itself be the last. So a worker takes the longest cell
that it ends before all cells can be through, however they were shared out; where it can't end any so early, the
shortest. Cells that are expected to take the same time are taken in the queue's order, and so are all of them while
none was measured. What a worker left that has ended comes before all others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.box_layout import WORKER_LOG
from sweepstack.onbox.common.cell_durations import Durations, durations
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, WORKER_VARIABLE, signal_group
from sweepstack.onbox.runner.attempt import Attempt
from sweepstack.onbox.runner.cell_processes import end_cells
from sweepstack.onbox.runner.cut_checkpoint import any_there
from sweepstack.onbox.runner.disk import left_by_ended, remove
from sweepstack.onbox.runner.ending import is_final
from sweepstack.onbox.runner.main import KILL_SECONDS, LOOK_SECONDS, Runner
from sweepstack.onbox.runner.nodes import LOST_UNTIL
from sweepstack.onbox.runner.patrol import PATROL, PATROL_SECONDS
from sweepstack.onbox.runner.records import Entry, Fatal, Journal, Queue, outcome, say
from sweepstack.onbox.runner.spec import GRACE_SECONDS, Spec
from sweepstack.onbox.runner.workers import (
    ENDS,
    NAME,
    NODE_SCRATCH,
    STOP_SECONDS,
    WORKERS,
    Fenced,
    Proofs,
    SharedJournal,
    begin,
    who,
)

TURN_SECONDS = 2.0
"""So long the main loop waits for its turn before it looks after its cells again."""
CLEAR_PAUSES = (0.0, 0.5, 5.0)
"""Before each look for the scratch of workers that ended: a process that was just ended may still be there."""
PROVE_SECONDS = 30.0
"""Between two looks whether the worker has ended that runs a set-up which this one waits for."""
QUIET = 3.0
"""A worker that wrote no heartbeat for so many of their intervals may have ended: only then is it asked about before a
cell is taken, or each worker would ask the scheduler about all others at each cell."""
SHORT = 11
"""The exit code of a worker that has too little time left for the cells that it could take."""
SLACK = 1.2
SEALING_SECONDS = 10.0
"""A cell is expected to take SLACK times what is estimated by those that were sealed, and this for its files."""


class Worker(Runner):
    """One run of one worker. Use it once, from the main thread."""

    journal: SharedJournal

    def __init__(self, home: Path, name: str) -> None:
        self.name, self._me = name, who(name)
        self._pending: list[str] = []
        self._claimed, self._proved_at, self._verdict = 0, time.monotonic(), 8
        self._late, self._short = 0, (0, 0)
        self._ends = _number(os.environ.get(ENDS, ""))
        super().__init__(home)
        self.proofs.journal = self.journal
        self.order = Order(self.schedule.queue, self.journal)
        self.gate.left = self._left_scratch

    # -- set-up

    def _be_the_only_one(self) -> int:
        self.folder = begin(self.home, self._me)
        log = os.open(self.folder / WORKER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        scratch = os.environ.get(NODE_SCRATCH)
        # A folder of its own: what is in it, no other worker prunes or uses.
        self.scratch = (Path(scratch) if scratch else self.scratch.parent) / "sweep" / "workers" / self.name
        try:
            self.scratch.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Fatal(2, f"its scratch folder can't be made: {error}") from error
        return log

    def _must_be_meant(self, spec: dict[str, Any]) -> None:
        if not isinstance(spec.get("shared"), dict):
            raise Fatal(2, "no workers share this queue: start its runner without --worker")

    @property
    def owner(self) -> str:
        return f"{self.box}.{self.name}"

    def _open_journal(self) -> Journal:
        self.proofs = Proofs(self.home, self._me, self.spec)
        return SharedJournal(self.home, self.name, self._me, self.proofs.lock_owner_ended)

    def _end_leftovers(self) -> None:
        """Looks for workers that have ended with cells in their hands; what they left on this host is ended."""
        self._look_for_ended()
        signal.signal(signal.SIGUSR1, self._on_stop)
        threading.Thread(target=self._clear_scratch, daemon=True).start()  # which may take minutes

    def _left_scratch(self) -> list[Path]:
        return left_by_ended(self.scratch, self.home / WORKERS, self.journal.ended)

    def _clear_scratch(self) -> None:
        """Removes what workers that have ended left on this host: on a long array it would fill the disk, also for the
        jobs of others."""
        for pause in CLEAR_PAUSES:
            time.sleep(pause)
            for folder in self._left_scratch():
                size = remove(folder)
                if not folder.exists():
                    say(f"removed the scratch of {folder.name}, which has ended: {size} bytes")

    def run(self) -> int:
        try:
            return super().run()
        except Fenced:
            self._kill_cells()
            raise
        finally:
            self.journal.close()

    def _kill_cells(self) -> None:
        """At once: another worker may run them already."""
        for attempt in self.running.values():
            signal_group(attempt.process.pid, signal.SIGKILL)
        self._own_left(0.0)

    def _own_left(self, grace: float) -> list[int]:
        return end_cells(self.box, None, {}, grace, self.name)

    # -- the loop

    def _on_stop(self, number: int, frame: Any) -> None:
        super()._on_stop(number, frame)
        self.journal.stop_at = time.monotonic() + STOP_SECONDS

    def _take_in(self) -> None:
        if not self._pending and time.monotonic() - self.journal.last_turn < LOOK_SECONDS:
            return
        with self.journal.turn(TURN_SECONDS) as held:
            if held:
                self._read_all()

    def _read_all(self) -> None:
        """In a turn: judges what the queue and other workers said."""
        if self.journal.moved:
            self.journal.moved, self.schedule.settled = False, False
        pending, self._pending = self._pending, []
        self._end_dropped(self.schedule.touch(pending, self._busy()))
        self._end_dropped(self.schedule.take_in(self._busy()))

    def _touch(self, name: str) -> None:
        self._pending.append(name)  # in the next turn: it is short of one for itself

    def _start_one(self) -> bool:
        if self._short[0]:
            self.order.learn()  # by what other workers measured since, some may fit
        if self._none_fits() or not self.journal.alone.isdisjoint(self._busy()):
            return False
        if self.schedule.ready and any(map(self._is_quiet, self.journal.holders())):
            self._look_for_ended()  # its cells come first
        return super()._start_one()

    def _is_quiet(self, worker: str) -> bool:
        try:
            age = time.time() - (self.home / WORKERS / worker / PATROL).stat().st_mtime
        except OSError:
            return False
        return age > QUIET * float(self.spec().get("patrol_seconds", PATROL_SECONDS))

    def _may_start(self, entry: Entry, spec: dict[str, Any]) -> bool | None:
        if entry.cell in self.journal.alone and self._busy():
            return None
        if not self._fits(entry.cell, spec):
            self._late += 1
            return None
        return super()._may_start(entry, spec)

    def _fits(self, cell: str, spec: dict[str, Any]) -> bool:
        """Whether a cell is expected to end within this allocation. The first one may always try: a cell that is longer
        than any allocation goes on from its checkpoints."""
        took = self.journal.took
        if self._ends is None or not self._claimed or not took:
            return True
        seconds = self.order.seconds(cell)
        needs = SLACK * (took[len(took) // 2] if seconds is None else seconds) + SEALING_SECONDS
        return time.time() + needs + float(spec.get("grace_seconds", GRACE_SECONDS)) < self._ends

    def _none_fits(self) -> bool:
        """Whether the last claim found that all cells that wait are too long for what is left, and none came since."""
        return self._short == (len(self.schedule.ready), self.order.learned)

    @contextlib.contextmanager
    def _queue_locked(self) -> Iterator[bool]:
        yield True  # whose lock is flock, which other hosts may not see: who appends waits for the journal's turn

    def _claim(self, spec: dict[str, Any], slot: int) -> Attempt | None:
        self.order.learn()
        with self.journal.turn(TURN_SECONDS) as held:
            if not held:
                return None
            self._read_all()
            self.order.arrange(self.schedule.ready, max(1, int(spec.get("slots") or 1)))
            self._late = 0
            attempt = self._claim_next(spec, slot)
        self._claimed += attempt is not None
        if attempt is None and self._late == len(self.schedule.ready):
            self._short = self._late, self.order.learned
        return attempt

    # -- the end

    def _drained(self) -> bool:
        """Whether nothing is left for this worker. Then its end is in the journal, written in the same turn in which it
        read the queue: a line that is appended later finds that this worker has ended."""
        if self._look_for_ended():
            return False
        with self.journal.turn(TURN_SECONDS) as held:
            if not held:
                return False
            self._read_all()
            settled = self._none_fits() or (self.schedule.settled and not self._waits_for_setup())
            if self.schedule.to_reseal or (self.schedule.ready and not settled):
                return False
            open_cells = self.schedule.open_cells()
            held_back = self.schedule.held
            rest = [name for name in open_cells if name not in held_back]
            short = bool(self.schedule.ready) and self._late > 0
            self._verdict = SHORT if short else 8 if rest else self.schedule.verdict()
            if not self._own_left(KILL_SECONDS):
                self._say_end("wall" if short else "nothing to take")
        return True

    def _rest(self, verdict: int) -> int:
        return self._verdict

    def _waits_for_setup(self) -> bool:
        return any(self.journal.prepared_elsewhere(setup) == "" for setup in list(self.journal.preparing))

    def _look_for_ended(self) -> bool:
        """Writes down which workers are proved to have ended with something in their hands. False when none is."""
        if self._waits_for_setup() and time.monotonic() - self._proved_at < PROVE_SECONDS:
            return False
        self._proved_at = time.monotonic()
        proved = {worker: proof for worker in self.journal.holders() if (proof := self.proofs.proof(worker))}
        if not proved:
            return False
        memory = {worker: self.proofs.memory(worker) for worker in proved}
        with self.journal.turn() as _:
            for worker, proof in proved.items():
                if worker not in self.journal.ended:
                    self.schedule.announce()
                    more: dict[str, Any] = {"memory": memory[worker]} if memory[worker] else {}
                    self.journal.append("worker-ended", worker=worker, proof=proof, by=self.name, **more)
                    say(f"worker {worker} has ended ({proof}): its cells are taken on")
                    if memory[worker]:
                        self._out_of_memory(worker, memory[worker])
        return True

    def _out_of_memory(self, worker: str, reason: str) -> None:
        """Counts what ended a worker as a failure of the cell that it had: else one that needs too much would end one
        worker after the other. Of several cells it is not known which it was, and all of them together may have been
        too much. So none counts, and each runs alone from then on (`SharedJournal.alone`): the next such end has one
        cell, and counts.
        """
        held = self.journal.cells_of(worker)
        if len(held) > 1:
            say(
                f"{', '.join(held)}: one of them, or all together, took too much memory: each runs alone now ({reason})"
            )
            return
        for name, attempt in held.items():
            cell = self.journal.cells[name]
            final = is_final("oom", cell.failures[cell.version] + 1, int(self.spec().get("retries", 2)))
            details: dict[str, Any] = {"exit_code": None, "reason": reason, "class": "oom", "final": final}
            folder = cell.checkpoints
            saved = any_there(self.checkpoints / name / folder) if folder else None
            details.update({"checkpoints": saved} if saved is not None else {})
            self.journal.append("cell-failed", cell=name, attempt=attempt, **details)
            say(f"{name} attempt {attempt} failed{' for good' if final else ''} (oom): {reason}")

    def _say_end(self, why: str, **more: Any) -> None:
        if self.schedule.announced:
            self.journal.append("runner-stopped", why=why, **more)

    def _stopped(self) -> int:
        code = self._end_running()
        if self.running or self.finishing or self.setups.busy or self._own_left(KILL_SECONDS) or self._lost_part():
            say("something of this worker can't be ended: its own end is left to be proved")
            return code
        number = signal.Signals(self.stop)
        self._say_end("wall" if number == signal.SIGUSR1 else "signal", signal=number.name, **self.not_copied)
        return code

    def _lost_part(self) -> bool:
        """Whether a part of a cell that this worker holds may still run on a node that is lost."""
        for cell, attempt in self.journal.cells_of(self.name).items():
            with contextlib.suppress(OSError, ValueError):
                if float((self.home / "cells" / cell / str(attempt) / LOST_UNTIL).read_text()) > time.time():
                    return True
        return False


def ended(home: Path, name: str, saw: str, by: str) -> int:
    """Writes down that a person saw the end of a worker. Refused where this host or the scheduler proves that it runs,
    or where the scheduler has to be told of each part of it, and lacks one. Blocks until it has the journal's turn.
    Raises Fatal."""
    me = who("")
    spec = Spec(home / "spec.json")
    proofs = Proofs(home, me, spec)

    def lock_owner_ended(record: Any) -> bool:
        return record.get("worker") == name or proofs.lock_owner_ended(record)

    why, lacks = proofs.runs(name)
    if lacks:
        raise Fatal(12, lacks)
    if why:
        raise Fatal(10, f"{name} runs: {why}; nothing was written down")
    journal = proofs.journal = SharedJournal(home, "", me, lock_owner_ended)
    try:
        proved = proofs.proof(name)  # which ends what its cells left running here
        if not proved and proofs.left_here(name):
            raise Fatal(10, f"{name} runs on: processes of its cells can't be ended; nothing was written down")
        with journal.turn():
            if name not in journal.begun and not (home / "workers" / name).is_dir():
                raise Fatal(2, f"no worker {name} was here")
            if name not in journal.ended:
                journal.append(
                    "worker-ended", worker=name, proof="; ".join(filter(None, [f"{by} saw: {saw}", proved])), by=by
                )
        return 0
    finally:
        journal.close()


def main(argv: list[str]) -> int:
    """Runs one worker, or writes down the end of one. Returns the exit code."""
    return outcome(lambda: _run(argv))


def _run(argv: list[str]) -> int:
    if not Path(argv[1]).is_dir():
        raise Fatal(2, f"{argv[1]} is no folder")
    home, words = Path(os.path.abspath(argv[1])), argv[2:]
    flags = dict(zip(words[::2], words[1::2]))
    name = flags.get("--worker") or flags.get("--worker-ended") or ""
    if not NAME.fullmatch(name) or len(words) % 2:
        raise Fatal(2, f"no name of a worker: {' '.join(words)}")
    if "--worker-ended" in flags:
        return ended(home, name, flags.get("--saw", ""), flags.get("--by", ""))
    if flags.get("--begin") == "stdin" and not sys.stdin.readline():
        raise Fatal(2, "what it waited for did not come")
    box = str(Spec(home / "spec.json")()["native_id"])
    if os.environ.get(WORKER_VARIABLE) != name:  # its own processes are found by it, from the first moment of each
        os.environ.update({WORKER_VARIABLE: name, BOX_ID_VARIABLE: os.environ.get(BOX_ID_VARIABLE, box)})
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.argv])
    return Worker(home, name).run()


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


GROWTH = 1.5
"""Estimates are made anew once so many times as many cells were measured."""
SHARE = 16
"""The waiting cells are arranged anew once this part of them was taken."""


class Order:
    """The order of one worker's claims. `learned`: how often estimates were made. For the thread of the main loop."""

    def __init__(self, queue: Queue, journal: SharedJournal) -> None:
        self.learned = 0
        self._queue, self._journal = queue, journal
        self._known: Durations | None = None
        self._seconds: dict[str, float] = {}
        self._learn_at, self._left = 1, 0

    def learn(self) -> None:
        """Estimates anew what cells take, if enough were measured since. Takes a tenth of a second for 10,000
        cells: so not in a turn of the journal."""
        times = self._journal.times
        if len(times) >= self._learn_at:
            self._learn_at, self._left = int(len(times) * GROWTH) + 1, 0
            self._known = durations({name: self._params(name) for name in self._queue.cells}, list(times.values()))
            self._seconds.clear()
            self.learned += 1

    def seconds(self, name: str) -> float | None:
        """What a cell is expected to take on this worker; None while no cell of the queue was measured."""
        return None if self._known is None else self._of(name) / self._known.speed(self._journal.worker)

    def arrange(self, ready: deque[str], slots: int) -> None:
        """Puts the cell first that this worker is to take next."""
        self._left -= 1
        if self._known is None or len(ready) < 2 or self._left > 0:
            return
        self._left = len(ready) // SHARE
        ordered = sorted(ready, key=self._of, reverse=True)
        limit = max(self._limit(ordered, slots), self._of(ordered[-1]))
        first = bisect_left([-self._of(name) for name in ordered], -limit)
        ready.clear()
        ready.extend(ordered[first:])
        ready.extend(reversed(ordered[:first]))
        begun = [name for name in ready if self._journal.cells[name].state == "started"]
        for name in begun:  # which a worker left that has ended
            ready.remove(name)
        ready.extendleft(reversed(begun))

    def _limit(self, ordered: list[str], slots: int) -> float:
        """Seconds of the longest cell that this worker ends before all can be through, on a worker of speed 1."""
        assert self._known is not None
        at_work = self._journal.begun.keys() - self._journal.ended | {self._journal.worker}
        speeds = [self._known.speed(worker) for worker in at_work]
        rest = sum(map(self._of, ordered))
        for name, cell in self._journal.cells.items():
            if cell.state == "started" and cell.worker in at_work:
                rest += self._of(name) / 2  # of a cell that runs half is left, on average
        bound = max(rest / (sum(speeds) * slots), self._of(ordered[0]) / max(speeds))
        return bound * self._known.speed(self._journal.worker)

    def _of(self, name: str) -> float:
        found = self._seconds.get(name)
        if found is None:
            assert self._known is not None
            found = self._seconds[name] = self._known.of(self._params(name))
        return found

    def _params(self, name: str) -> dict[str, object]:
        """Those of its newest version: of one cell all versions have the same."""
        lines = self._queue.cells.get(name, [])
        entries = [] if isinstance(lines, str) else [line for line in lines if isinstance(line, Entry)]
        return entries[-1].params if entries else {}
