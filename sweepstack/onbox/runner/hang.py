"""What does nothing though it should: cells without a runner, and a runner whose main loop hangs.

A runner that hangs (on a mount that does not answer, say) holds `runner.lock`, so that no one else may stop the box.
Its main loop touches `runner.pulse`; the watcher of the lease ends it when that has not changed for STUCK_SECONDS and
nothing on the box works. What counts as work is what the patrol would call so, and what the runner itself reads or
writes: a sealer may be at work. Time is counted by the watcher's own rounds, so that a box which was frozen or asleep
for a while ends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sweepstack.onbox.common.processes import Process, scan, start_of
from sweepstack.onbox.runner.patrol import IDLE_CPU, IDLE_GPU, tree_of
from sweepstack.onbox.runner.resources import gpus, usage

PULSE = "runner.pulse"
STUCK_SECONDS = 1800.0
"""Unless spec.json has `stuck_seconds`."""
ROUND_SECONDS = 60.0
"""What one round of the watcher counts at most."""
IDLE_BYTES = 1 << 16
"""Below so many bytes a second, a runner neither seals nor copies."""
PULSE_SECONDS = 1.0
KILL_SECONDS = 30.0
"""So long a runner may take to end after SIGKILL."""


def boot_time() -> float:
    """Seconds that no change of the wall clock reaches, and that go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Beat:
    """The runner's side: touches the pulse. Call it often; never raises."""

    def __init__(self, home: Path) -> None:
        self._path, self._due = home / PULSE, 0.0

    def __call__(self) -> None:
        at = time.monotonic()
        if at >= self._due:
            self._due = at + PULSE_SECONDS
            with contextlib.suppress(OSError):
                self._path.touch()


class LeftBehind:
    """Whether processes of cells that have no runner still work, as the patrol would judge it. The next runner would
    end them, and start their cells again from the checkpoints."""

    def __init__(self) -> None:
        self._cpu, self._at, self._busy = -1.0, 0.0, 0.0
        self._wrote: tuple[object, ...] = ()

    def idle(self, left: Sequence[Process], folders: Sequence[Path], seconds: float) -> bool:
        """Whether they have neither used a CPU or a GPU to speak of, nor changed a file in `folders`, for so long; call
        it often."""
        at, cpu = boot_time(), sum(one.cpu for one in usage({process.session for process in left}).values())
        wrote = tuple(tree_of(folder) for folder in folders)
        computes = abs(cpu - self._cpu) >= IDLE_CPU * max(at - self._at, 0.1)
        if self._cpu < 0 or computes or wrote != self._wrote or any((gpu["util"] or 0) >= IDLE_GPU for gpu in gpus()):
            self._busy = at
        self._cpu, self._at, self._wrote = cpu, at, wrote
        return at - self._busy >= seconds


class Hang:
    """Whether the runner hangs and nothing works. For one thread, which looks in each of its rounds."""

    def __init__(self, home: Path) -> None:
        self._home, self._at = home, boot_time()
        self._seen, self._quiet, self._still = self._mark(), 0.0, 0.0
        self._moved: tuple[float, int, tuple[object, ...]] = (0.0, 0, ())

    def look(self, cells: Callable[[], Sequence[Process]], folders: Callable[[], Sequence[Path]]) -> None:
        """One round. `cells`: finds the processes of cells and set-ups; `folders`: those of their attempts."""
        at, seen = boot_time(), self._mark()
        passed, self._at = min(at - self._at, ROUND_SECONDS), at
        self._quiet = self._quiet + passed if seen == self._seen else 0.0
        self._seen = seen
        if self._quiet == 0.0:
            self._still = 0.0
            return
        works, self._moved = self._works(cells(), folders(), passed)
        self._still = 0.0 if works else self._still + passed

    def why(self, seconds: float, still: float) -> str:
        """Why the runner has to be ended: no pulse for `seconds`, and no work for `still`; "" while it must not."""
        if self._quiet < seconds or self._still < still:
            return ""
        return f"its runner hung for {self._quiet:.0f} s, and nothing worked for {self._still:.0f} s"

    def end(self, grace: float) -> bool:
        """Ends the runner: SIGTERM, `grace` seconds, SIGKILL. Blocks. False when it is still alive, or is not known."""
        try:
            record = json.loads((self._home / "runner.pid").read_bytes())
            pid, start = int(record["pid"]), str(record["start_ticks"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, KILL_SECONDS)):
            ends = time.monotonic() + seconds
            if not _alive(pid, start):
                return True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            while _alive(pid, start) and time.monotonic() < ends:
                time.sleep(0.1)
        return not _alive(pid, start)

    def _works(
        self, cells: Sequence[Process], folders: Sequence[Path], passed: float
    ) -> tuple[bool, tuple[float, int, tuple[object, ...]]]:
        runner = self._runner()
        used = usage({process.session for process in cells if process.session != runner})
        cpu = sum(one.cpu for one in used.values())
        own = [one.pid for one in scan() if runner in (one.session, one.parent) and one.session not in used]
        copied = sum(_copied(pid) for pid in own if pid != os.getpid())  # the watcher is a child of it, too
        moved = cpu, copied, tuple(tree_of(folder) for folder in folders)
        was_cpu, was_copied, was = self._moved
        works = abs(cpu - was_cpu) >= IDLE_CPU * max(passed, 0.1) or abs(copied - was_copied) >= IDLE_BYTES * passed
        return works or moved[2] != was or any((gpu["util"] or 0) >= IDLE_GPU for gpu in gpus()), moved

    def _runner(self) -> int:
        """Its pid, and its session. What copies to a bucket is a child of it, in a session of its own."""
        try:
            return int(json.loads((self._home / "runner.pid").read_bytes())["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return -1

    def _mark(self) -> tuple[int, int, bytes]:
        """The pulse, and the runner that it is of."""
        try:
            runner = (self._home / "runner.pid").read_bytes()
            status = (self._home / PULSE).stat()
        except OSError:
            return 0, 0, b""
        return status.st_mtime_ns, status.st_ino, runner


def _copied(pid: int) -> int:
    """Bytes that a process has read and written so far; 0 where that can't be read."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))
    except (OSError, ValueError, IndexError):
        return 0


def _alive(pid: int, start: str) -> bool:
    """Whether it runs; a zombie has ended: its lock is free."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX" and start_of(pid) == start
