"""The lease: a box that has nothing to do, and that no command looks at, stops itself.

A bill then ends without any laptop, pipeline or watcher. spec.json says it as `lease`:

    seconds   how long after the last look; a look is a change of the file `looked`, which commands touch
    how       `by: ssh` with a `command`, or `by: key` with `requests` to the vendor (`vendor_stop`); empty: no way
    kills     the tiers that a stop wipes

It stops the box and never destroys it. The watcher is a process of its own, which outlives the runner:

    python runner.py SWEEP --watch
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.locks import is_held, take
from sweepstack.onbox.common.processes import Process
from sweepstack.onbox.runner.attempt import Attempt
from sweepstack.onbox.runner.cell_processes import end_cells, of_cells
from sweepstack.onbox.runner.off import AGAIN_SECONDS, at_work, issue
from sweepstack.onbox.runner.patrol import IDLE_CPU, STALL_SECONDS
from sweepstack.onbox.runner.records import LOCK_SECONDS, Fatal, Journal, say
from sweepstack.onbox.runner.resources import usage
from sweepstack.onbox.runner.spec import Spec

LOOKED, LOCK, WATCH = "looked", "lease.lock", "--watch"
LOOK_SECONDS = 15.0
"""The longest time between two looks of the watcher."""
TAKE_SECONDS = 2 * LOOK_SECONDS
"""So long a new watcher waits for the one before it, which ends when another runner was started."""
GRACE_SECONDS = 20.0
"""As the runner's, unless spec.json has `grace_seconds`."""
LAST_PAUSE = 6 * 3600.0
"""Between tries that come after all of `off_again_seconds`: the box goes on billing, so it never gives up."""


def boot_time() -> float:
    """Seconds that no change of the wall clock reaches, and that go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """How long ago the last look was, by this process: it begins to count when it is made. For one thread."""

    def __init__(self, home: Path) -> None:
        self._path = home / LOOKED
        self._seen, self._at = self._mark(), boot_time()

    def over(self, spec: Mapping[str, Any]) -> bool:
        """Whether `spec` has a lease, and it has run out."""
        mark = self._mark()
        if mark != self._seen:
            self._seen, self._at = mark, boot_time()
        seconds = seconds_of(spec)
        return seconds is not None and boot_time() - self._at >= seconds

    def _mark(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_ino


def seconds_of(spec: Mapping[str, Any]) -> float | None:
    """The lease in seconds; None where there is none, or it can't be read."""
    try:
        return max(0.0, float((spec.get("lease") or {})["seconds"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


class Starter:
    """Starts the watcher where spec.json has a lease and none is at work. For the runner; never raises."""

    def __init__(self, home: Path) -> None:
        self._home, self._due = home, 0.0
        self._child: subprocess.Popen[bytes] | None = None

    def beat(self, spec: Mapping[str, Any]) -> None:
        """Call it often."""
        at = time.monotonic()
        if seconds_of(spec) is None or at < self._due:
            return
        self._due = at + LOOK_SECONDS
        if self._child is not None and self._child.poll() is None:
            return
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(
                [sys.executable, os.path.abspath(sys.argv[0]), str(self._home), WATCH],
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )


class LeftBehind:
    """Whether processes of cells that have no runner still compute. The next runner would end them, and start their
    cells again from the checkpoints."""

    def __init__(self) -> None:
        self._cpu, self._at, self._busy = -1.0, 0.0, 0.0

    def idle(self, left: Sequence[Process], seconds: float) -> bool:
        """Whether they have used no CPU to speak of for so long; call it often."""
        at, cpu = boot_time(), sum(one.cpu for one in usage({process.session for process in left}).values())
        if self._cpu < 0 or abs(cpu - self._cpu) >= IDLE_CPU * max(at - self._at, 0.1):
            self._busy = at
        self._cpu, self._at = cpu, at
        return at - self._busy >= seconds


class Watcher:
    """Stops the box once its lease is over and nothing is left to do. One for each box: `lease.lock`."""

    def __init__(self, home: Path) -> None:
        self.home, self.lease = home, Lease(home)
        self.spec = Spec(home / "spec.json")
        self._tries, self._next, self._told = 0, 0.0, ""
        self._left = LeftBehind()

    def run(self) -> int:
        """Watches until spec.json has no lease any more, or another runner was started, which has its own watcher."""
        with contextlib.suppress(OSError):
            (self.home / LOOKED).touch(exist_ok=True)
        self.lease = Lease(self.home)
        lock = os.open(self.home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            mine = self._runner()
            if not take(lock, TAKE_SECONDS):
                return 3
            while seconds_of(self.spec()) is not None and self._runner() == mine:
                if self.lease.over(self.spec()):
                    self._safely_ended()
                else:
                    self._tries, self._next, self._told = 0, 0.0, ""
                time.sleep(self._pause())
            return 0
        finally:
            os.close(lock)

    def _pause(self) -> float:
        return min(LOOK_SECONDS, max(0.1, (seconds_of(self.spec()) or 0.0) / 20))

    def _runner(self) -> bytes:
        try:
            return (self.home / "runner.pid").read_bytes()
        except OSError:
            return b""

    def _safely_ended(self) -> None:
        """As `_ended`; what it did not expect is said, and it tries again: with no runner left, no one would start
        another watcher, and the box would bill on."""
        try:
            self._ended()
        except Exception as error:
            self._say(f"the lease is over, and the watcher goes on after {type(error).__name__}: {error}")
            self._tries, self._next = self._tries + 1, boot_time() + self._delay()

    def _delay(self) -> float:
        """Seconds from this try to the next one."""
        delays = [float(one) for one in self.spec().get("off_again_seconds", AGAIN_SECONDS)]
        return delays[self._tries] if self._tries < len(delays) else LAST_PAUSE

    def _ended(self) -> None:
        """The lease is over: stops the box, or tells once why it stays."""
        spec = self.spec()
        asked = dict((spec.get("lease") or {}).get("how") or {})
        if boot_time() < self._next or self._runs() or at_work(self.home):
            return  # a runner ends what is hung by itself, and waits for what works
        stays = why_it_stays(spec)
        if stays:
            self._tell(stays)
            return
        left, leaders = self._cells_alive(), self._leaders()
        if left and not self._left.idle(left, float(spec.get("stall_seconds", STALL_SECONDS))):
            self._tell("cells still run, without a runner")
            return
        if left:
            self._tell("cells that a killed runner left behind do nothing: they are ended")
            end_cells(str(spec["native_id"]), None, leaders, float(spec.get("grace_seconds", GRACE_SECONDS)))
        delay = self._delay()
        try:
            issued = issue(self.home, asked, self._must_not, self._tries + 1, delay, why="lease")
        except Fatal as error:
            self._say(f"the lease is over, and the box stays: its journal can't be written ({error.args[1]})")
            return
        if issued:
            self._tries, self._next = self._tries + 1, boot_time() + delay

    def _must_not(self) -> bool:
        """Asked under runner.lock: whether a look came meanwhile."""
        return not self.lease.over(self.spec()) or bool(self._cells_alive())

    def _runs(self) -> bool:
        """Whether a runner is at work. Cells come only with one: a queue with new lines is looked at by who adds
        them."""
        try:
            lock = os.open(self.home / "runner.lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return is_held(lock)
        finally:
            os.close(lock)

    def _cells_alive(self) -> Sequence[Process]:
        """Processes of cells that a runner left behind when it was killed."""
        return of_cells(str(self.spec()["native_id"]), None, self._leaders())

    def _leaders(self) -> dict[int, str]:
        leaders = {}
        for folder in (self.home / "cells").glob("*/[0-9]*"):
            leaders.update(Attempt.leader(self.home, folder.parent.name, int(folder.name)))
        return leaders

    def _tell(self, why: str) -> None:
        """Writes the event once for each reason: a line every few seconds would fill the disk."""
        if self._told == why:
            return
        lock = os.open(self.home / "runner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if take(lock, LOCK_SECONDS) and self.lease.over(self.spec()):
                self._told = why
                say(f"the lease is over, and the box stays: {why}")
                Journal(self.home / "journal.jsonl").append("lease-over", why=why)
        except Fatal as error:
            say(f"the journal can't be written: {error.args[1]}")
        finally:
            os.close(lock)

    def _say(self, text: str) -> None:
        if self._told != text:
            self._told = text
            say(text)


def why_it_stays(spec: Mapping[str, Any]) -> str:
    """Why the box must not, or can't, stop itself; "" when it may."""
    lease = spec.get("lease") or {}
    kills = [str(tier) for tier in lease.get("kills") or ()]
    if kills:
        return f"a stop wipes {' and '.join(kills)}, where its journal and its logs are"
    if not (lease.get("how") or {}).get("by"):
        return "no command on it ends its bill"
    return ""
