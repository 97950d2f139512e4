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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.locks import is_held, take
from sweepstack.onbox.common.processes import Process, end_all
from sweepstack.onbox.runner.attempt import Attempt
from sweepstack.onbox.runner.cell_processes import of_cells
from sweepstack.onbox.runner.off import AGAIN_SECONDS, Sign, at_work, issue
from sweepstack.onbox.runner.patrol import STALL_SECONDS, STUCK_SECONDS, Beat, Hang, LeftBehind, boot_time
from sweepstack.onbox.runner.records import LOCK_SECONDS, Fatal, Journal, say
from sweepstack.onbox.runner.spec import GRACE_SECONDS, Spec

LOOKED, LOCK, WATCH = "looked", "lease.lock", "--watch"
LOOK_SECONDS = 15.0
"""The longest time between two looks of the watcher."""
TAKE_SECONDS = 2 * LOOK_SECONDS
"""So long a new watcher waits for the one before it, which ends when another runner was started."""
NOTE_BYTES = 256
"""Of `lease.lock`: room that is set aside for why the lease can't be looked after, for a disk that is full then.
`status` reads it; blank where all is well."""
SOON_SECONDS = 300.0
"""At most, after a look that could not be made."""
LAST_PAUSE = 6 * 3600.0
"""Between tries that come after all of `off_again_seconds`: the box goes on billing, so it never gives up."""


class Lease:
    """How long ago the last look was, by this process: it begins to count when it is made. For one thread."""

    def __init__(self, home: Path) -> None:
        self._looked = Sign(home / LOOKED)

    def over(self, spec: Mapping[str, Any]) -> bool:
        """Whether `spec` has a lease, and it has run out."""
        age, seconds = self._looked.age(), seconds_of(spec)
        return seconds is not None and age >= seconds


def seconds_of(spec: Mapping[str, Any]) -> float | None:
    """The lease in seconds; None where there is none, or it can't be read."""
    try:
        return max(0.0, float((spec.get("lease") or {})["seconds"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _way(spec: Mapping[str, Any]) -> dict[str, Any]:
    """How the box is stopped; empty where there is no way."""
    return dict((spec.get("lease") or {}).get("how") or {})


class Starter:
    """Starts the watcher where spec.json has a lease and none is at work, and shows it that the runner goes on. For
    the runner's main loop; never raises."""

    def __init__(self, home: Path) -> None:
        self._home, self._due, self._pulse = home, 0.0, Beat(home)
        self._child: subprocess.Popen[bytes] | None = None

    def beat(self, spec: Mapping[str, Any]) -> None:
        """Call it often."""
        at = time.monotonic()
        if seconds_of(spec) is None:
            return
        self._pulse()
        if at < self._due:
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


class Watcher:
    """Stops the box once its lease is over and nothing is left to do. One for each box: `lease.lock`."""

    def __init__(self, home: Path) -> None:
        self.home, self.lease = home, Lease(home)
        self.spec = Spec(home / "spec.json")
        self._tries, self._next, self._told, self._untold = 0, 0.0, "", ""
        self._left, self._last, self._failed = LeftBehind(), b"", 0
        self._hang = Hang(home)
        self._file: int | None = None
        """`lease.lock`, once it is taken."""

    def run(self) -> int:
        """Watches until spec.json has no lease any more, or another runner was started, which has its own watcher."""
        with contextlib.suppress(OSError):
            (self.home / LOOKED).touch(exist_ok=True)
        self.lease = Lease(self.home)
        lock = self._lock()
        try:
            mine = self._runner()
            if not take(lock, TAKE_SECONDS):
                return 3
            self._file = lock
            self._note("")
            while seconds_of(self.spec()) is not None and self._runner() == mine:
                try:
                    self._round()
                except Exception as error:  # with no runner left, no one would start another watcher
                    self._could_not(error)
                time.sleep(self._pause())
            self._note("")
            return 0
        finally:
            os.close(lock)

    def _lock(self) -> int:
        """`lease.lock`, open; waits while no file can be opened. Raises FileNotFoundError when the box is gone."""
        while True:
            try:
                return os.open(self.home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                raise
            except OSError as error:
                say(f"no watcher of the lease yet: {error}")
                time.sleep(LOOK_SECONDS)

    def _pause(self) -> float:
        return min(LOOK_SECONDS, max(0.1, (seconds_of(self.spec()) or 0.0) / 20))

    def _runner(self) -> bytes:
        """Which runner was started last; while that can't be read, what was read before."""
        try:
            self._last = (self.home / "runner.pid").read_bytes()
        except FileNotFoundError:
            self._last = b""
        except OSError:
            pass  # to end for that would leave the bill without an end
        return self._last

    def _round(self) -> None:
        """One look. Raises what keeps it from being made just now."""
        if _way(self.spec()).get("by") == "key":  # now: when the lease is over the disk may not be readable
            import sweepstack.onbox.runner.vendor  # noqa: F401
        runs = self._runs()
        if runs:
            self._hang.look(self._cells_alive, lambda: [folder for folder, _ in self._attempts()])
        if self.lease.over(self.spec()):
            self._ended(runs)
            return
        self._tries, self._next, self._told = 0, 0.0, ""
        self._well()
        if not runs and (left := self._cells_alive()):
            self._idle(left)  # counts from when they have no runner, not only from the end of the lease

    def _could_not(self, error: Exception) -> None:
        """No file or no process can be had, say, or the journal can't be written: tries again soon. `lease.lock` has
        why, and the journal is told once it can be."""
        self._next, self._failed = boot_time() + min(self._delay(self._failed), SOON_SECONDS), self._failed + 1
        said = error.args[1] if isinstance(error, Fatal) else f"{type(error).__name__}: {error}"
        why = f"it could not look after its lease: {said}"
        if self._untold != why:
            self._untold = why
            say(f"{why}; the watcher goes on")
            if self._file is not None and self.lease.over(self.spec()):
                self._note(why)

    def _well(self) -> None:
        if self._untold:
            self._untold, self._failed = "", 0
            self._note("")

    def _note(self, text: str) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._file, text.encode("utf-8")[:NOTE_BYTES].ljust(NOTE_BYTES), 0)

    def _delay(self, tries: int) -> float:
        """Seconds until the next try, after so many before this one."""
        delays = [float(one) for one in self.spec().get("off_again_seconds", AGAIN_SECONDS)]
        return delays[tries] if tries < len(delays) else LAST_PAUSE

    def _ended(self, runs: bool) -> None:
        """The lease is over: stops the box, or tells once why it stays."""
        spec = self.spec()
        asked = _way(spec)
        if boot_time() < self._next:
            return
        if at_work(self.home):
            self._well()
            return
        if runs:
            self._runner_hangs(spec)  # else it ends what is hung by itself, and waits for what works
            return
        if self._untold:
            self._tell(self._untold)
            self._well()
        stays = why_it_stays(spec)
        if stays:
            self._tell(stays)
            return
        left = self._cells_alive()
        if left and not self._idle(left):
            self._tell("cells still run, without a runner")
            return
        if left:
            if not self._tell("cells that a killed runner left behind do nothing: they are ended"):
                return
            self._end(left)
        delay = self._delay(self._tries)
        if issue(self.home, asked, self._must_not, self._tries + 1, delay, why="lease"):
            self._tries, self._next = self._tries + 1, boot_time() + delay

    def _runner_hangs(self, spec: Mapping[str, Any]) -> None:
        """Ends a runner that hangs while nothing works, where the box may stop then. Its cells go on in the next one
        from their checkpoints, as after any kill of it."""
        still = float(spec.get("stall_seconds", STALL_SECONDS))
        why = self._hang.why(max(still, float(spec.get("stuck_seconds", STUCK_SECONDS))), still)
        if not why:
            self._well()
            return
        stays = why_it_stays(spec)
        if not stays and self._hang.end(float(spec.get("grace_seconds", GRACE_SECONDS))):
            say(f"the lease is over, and {why}: it was ended")
            self._untold = f"{why}: it was ended"
            return
        self._untold = f"{why}, and it could not be ended" if not stays else f"{why}; {stays}"
        self._note(self._untold)  # the journal is the runner's, as long as it lives

    def _must_not(self) -> bool:
        """Asked under runner.lock: whether a look came meanwhile."""
        return not self.lease.over(self.spec()) or bool(self._cells_alive())

    def _runs(self) -> bool:
        """Whether a runner is at work. Cells come only with one: a queue with new lines is looked at by who adds
        them."""
        try:
            lock = os.open(self.home / "runner.lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return is_held(lock)
        finally:
            os.close(lock)

    def _cells_alive(self) -> Sequence[Process]:
        """Processes of cells that a runner left behind when it was killed."""
        leaders = {pid: start for _, leader in self._attempts() for pid, start in leader.items()}
        return of_cells(str(self.spec()["native_id"]), None, leaders)

    def _attempts(self) -> Iterator[tuple[Path, dict[int, str]]]:
        """The folder of each attempt, with its first process."""
        for folder in (self.home / "cells").glob("*/[0-9]*"):
            if folder.name.isdigit():  # not one that was put aside after a power cut
                yield folder, Attempt.leader(self.home, folder.parent.name, int(folder.name))

    def _idle(self, left: Sequence[Process]) -> bool:
        """Whether these cells do nothing. It reads the box's own disk alone: a mount that hangs must not keep it on."""
        groups = {process.group for process in left}
        folders = [folder for folder, leader in self._attempts() if groups & leader.keys()]
        return self._left.idle(left, folders, float(self.spec().get("stall_seconds", STALL_SECONDS)))

    def _end(self, left: Sequence[Process]) -> None:
        """Ends these processes, and none that a runner starts meanwhile."""
        known = {(process.pid, process.start) for process in left}
        grace = float(self.spec().get("grace_seconds", GRACE_SECONDS))
        end_all(lambda: [one for one in self._cells_alive() if (one.pid, one.start) in known], grace)

    def _tell(self, why: str) -> bool:
        """Writes the event, once for each reason: a line every few seconds would fill the disk. False when a runner is
        at work, or a look came meanwhile. Raises Fatal when the journal can't be written."""
        if self._told == why:
            return True
        lock = os.open(self.home / "runner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not take(lock, LOCK_SECONDS) or not self.lease.over(self.spec()):
                return False
            with contextlib.closing(Journal(self.home / "journal.jsonl")) as journal:
                journal.append("lease-over", why=why)
            self._told = why
            say(f"the lease is over, and the box stays: {why}")
            return True
        finally:
            os.close(lock)


def why_it_stays(spec: Mapping[str, Any]) -> str:
    """Why the box must not, or can't, stop itself; "" when it may."""
    lease = spec.get("lease") or {}
    kills = [str(tier) for tier in lease.get("kills") or ()]
    if kills:
        return f"a stop wipes {' and '.join(kills)}, where its journal and its logs are"
    if not _way(spec).get("by"):
        return "no command on it ends its bill"
    return ""
