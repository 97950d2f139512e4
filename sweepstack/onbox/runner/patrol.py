"""The patrol: writes a line now and then on each attempt's progress and on the box's resources.

The line has a verdict for each attempt. It is for people and proves nothing.

    starting   nothing was written yet
    working    the log, the output or the checkpoints grew within the stall interval
    slow       they did not, but it uses a CPU or a GPU
    hung       it showed no progress for a whole interval, and used neither CPU nor GPU

It neither restarts nor ends anything: `job.on_hang` says what happens then (`limits`).

The watcher of the lease judges by the same measures what is left when no patrol writes: cells without a runner
(`LeftBehind`), and a runner whose main loop hangs (`Hang`). A runner that hangs (on a mount that does not answer, say)
holds `runner.lock`, so that no one else may stop the box. Its main loop touches `runner.pulse`; the watcher ends it
when that has not changed for STUCK_SECONDS and nothing on the box works. What counts as work is what the patrol would
call so, and what the runner itself reads or writes: a sealer may be at work. Time is counted by the watcher's own
rounds, so that a box which was frozen or asleep for a while ends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common.cgroup import memory
from sweepstack.onbox.common.processes import Process, scan, start_of
from sweepstack.onbox.runner.attempt import Attempt
from sweepstack.onbox.runner.cards import GpuHealth, Unseen, Usage, gpus, holders, in_the_way, usage
from sweepstack.onbox.runner.cards import alarms as held_by_others
from sweepstack.onbox.runner.disk import DiskUse, Lack, Room, Trend, hint, room_at
from sweepstack.onbox.runner.records import now

PATROL = "patrol.jsonl"
PATROL_SECONDS, STALL_SECONDS = 30.0, 600.0
FIRST_SECONDS = 60.0
SETTLE_SECONDS = 5.0
"""A start or an end gives a new line at once, but not sooner than this after the last line."""
IDLE_CPU, IDLE_GPU = 0.03, 5
"""Below this share of a core and this percentage of a GPU, a process only waits: watchdog threads run in hung jobs,
too."""
FULL, MEMORY_FULL = 0.95, 0.90
HOT, THROTTLED = 83, 0.70
"""A GPU from so many degrees on, and below this share of its highest clock, is slowed down by its heat."""
MAX_FILES = 10_000
MAX_BYTES = 8 << 20

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


class Growth:
    """What the patrol has seen of one attempt so far."""

    def __init__(self, at: float) -> None:
        self.seen: tuple[int, ...] = ()
        self.wrote_at = self.busy_at = self.looked_at = at
        self.cpu, self.wrote = 0.0, False


class AttemptVerdict(NamedTuple):
    """The patrol's verdict on one attempt."""

    verdict: str
    why: str


class Patrol:
    """Writes patrol.jsonl. `due`: when the next line is due (monotonic). It looks in a thread of its own: a network
    mount that hangs must not block the queue."""

    def __init__(
        self,
        home: Path,
        folder: Path | None = None,
        ended: Container[str] = (),
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`folder`: where the file is; `home` unless it is of one worker of several. `ended`: those whose end is known,
        now and later. `wake`: called when the first line is there."""
        self.due, self._ended, self._wake = 0.0, ended, wake
        self._home, self._path = home, (folder or home) / PATROL
        self._pool = ThreadPoolExecutor(1)
        self._line: Future[None] | None = None
        self._last = 0.0
        self._names: tuple[set[tuple[str, int]], bool] = set(), False
        self._growth: dict[tuple[str, int], Growth] = {}
        self._kills: int | None = None
        self._gpus = 0
        self._unseen = Unseen()
        self._health, self._use = GpuHealth(), DiskUse(home)
        self._trends = {"disk": Trend(), "inodes": Trend()}
        self._hung: dict[tuple[str, int], tuple[str, float]] = {}

    def has_looked(self) -> bool:
        """Whether there is a first line, or was time enough for it: what a GPU holds can be told from what its first
        cell takes only by a look before that."""
        return self._line is not None and (self._line.done() or time.monotonic() > self._last + FIRST_SECONDS)

    def hung(self, attempt: Attempt) -> tuple[str, float]:
        """Why the last line calls an attempt hung ("" if it does not), and for how many seconds it showed no
        progress."""
        return self._hung.get((attempt.entry.cell, attempt.number), ("", 0.0))

    def beat(
        self,
        running: Mapping[str, Attempt],
        spec: Mapping[str, Any],
        blocked: Lack | None,
        uploads: Mapping[str, Any] | None = None,
    ) -> None:
        """Begins a line if one is due; call it often. Never blocks, never raises."""
        at = time.monotonic()
        self._unseen.busy([device for attempt in running.values() for device in attempt.devices], at)
        names = {(name, attempt.number) for name, attempt in running.items()}, blocked is not None
        if names != self._names:
            self.due = min(self.due, self._last + SETTLE_SECONDS)
        if at < self.due:
            return
        stall = float(spec.get("stall_seconds", STALL_SECONDS))
        self.due = at + max(0.1, min(float(spec.get("patrol_seconds", PATROL_SECONDS)), stall))
        if self._line is not None and not self._line.done():
            return
        first, self._last, self._names = self._line is None, at, names
        self._line = self._pool.submit(self._write, dict(running), dict(spec), stall, blocked, uploads)
        if first:
            self._line.add_done_callback(lambda _: self._wake())

    # -- in the thread

    def _write(
        self,
        running: dict[str, Attempt],
        spec: Mapping[str, Any],
        stall: float,
        blocked: Lack | None,
        uploads: Mapping[str, Any] | None,
    ) -> None:
        with contextlib.suppress(OSError):
            line = json.dumps(self._look(running, spec, stall, blocked, uploads))
            if self._path.exists() and self._path.stat().st_size > MAX_BYTES:
                os.replace(self._path, self._path.with_name("patrol.1.jsonl"))
            with open(self._path, "a") as handle:
                handle.write(line + "\n")

    def _look(
        self,
        running: dict[str, Attempt],
        spec: Mapping[str, Any],
        stall: float,
        blocked: Lack | None,
        uploads: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        at, found, room, memory_now = time.monotonic(), gpus(), room_at(self._home), memory()
        used = usage([attempt.process.pid for attempt in running.values()])
        known, self._growth = self._growth, {}
        lines, alarms, hung = [], [], {}
        for name, attempt in running.items():
            growth = known.get((name, attempt.number)) or Growth(attempt.began)
            self._growth[name, attempt.number] = growth
            own = [gpu for gpu in found if str(gpu["index"]) in attempt.devices]
            line = self._attempt(attempt, growth, used.get(attempt.process.pid), own, at, stall)
            lines.append(line)
            if line["verdict"] == "hung":
                alarms.append(f"{name} hung: {line['why']}")
                hung[name, attempt.number] = str(line["why"]), at - max(growth.wrote_at, growth.busy_at)
        self._hung = hung
        alarms += [*self._disk(room, blocked, spec, at), *self._alarms(memory_now, found), *self._health.look(found)]
        groups = [attempt.process.pid for attempt in running.values()]
        seen = holders(groups, running, ended=self._ended) if found else []
        taken = {device for attempt in running.values() for device in attempt.devices}
        self._unseen.look(found, seen, at)
        others = in_the_way(seen)
        alarms += held_by_others(found, others, taken, self._unseen.bytes)
        if uploads and uploads["why"]:
            count = len(uploads["cells"])
            alarms.append(f"{count} cells ({uploads['bytes'] / 1e9:.2f} GB) wait for the bucket: {uploads['why']}")
        return {
            "time": now(),
            "schema": 2,
            "running": lines,
            "disk_free": room.free if room else None,
            "inodes_free": room.inodes_free if room else None,
            "disk": {
                "free": room.free if room else None,
                "total": room.total if room else None,
                "inodes_free": room.inodes_free if room else None,
                "inodes_total": room.inodes_total if room else None,
            },
            "memory": memory_now,
            "gpus": found,
            "holders": others,
            "alarms": alarms,
            "blocked": blocked.facts() if blocked else None,
            **({"uploads": uploads} if uploads else {}),
        }

    def _attempt(
        self, attempt: Attempt, growth: Growth, used: Usage | None, own: list[dict[str, Any]], at: float, stall: float
    ) -> dict[str, Any]:
        log, out, checkpoint = _size(attempt.log), tree_of(attempt.out), tree_of(attempt.checkpoint)
        seen = (log, *out, *checkpoint)
        if (growth.seen and seen != growth.seen) or (not growth.seen and (log or out[0])):
            growth.wrote_at, growth.wrote = at, True
        growth.seen = seen
        share = abs(used.cpu - growth.cpu) / max(0.001, at - growth.looked_at) if used else 0.0
        if share >= IDLE_CPU or any((gpu["util"] or 0) >= IDLE_GPU for gpu in own):
            growth.busy_at = at
        growth.cpu, growth.looked_at = used.cpu if used else 0.0, at
        verdict = verdict_on(growth, at, stall, share)
        return {
            "cell": attempt.entry.cell,
            "attempt": attempt.number,
            "pid": attempt.process.pid,
            "cpu_seconds": round(used.cpu, 1) if used else None,
            "rss": used.rss if used else None,
            "log_bytes": log,
            "out_bytes": out[0],
            "quiet_seconds": round(at - growth.wrote_at, 1),
            **verdict._asdict(),
        }

    def _disk(self, room: Room | None, blocked: Lack | None, spec: Mapping[str, Any], at: float) -> list[str]:
        """What is full, or will be soon, and which folders hold it."""
        alarms = []
        if room:
            for why, free, total, name in (
                ("disk", room.free, room.total, "disk {:.0%} full"),
                ("inodes", room.inodes_free, room.inodes_total, "inodes {:.0%} used: bytes are not the matter"),
            ):
                left = self._trends[why].seconds_left(at, free, total)
                if total > 0 and free >= 0 and 1 - free / total >= FULL:
                    alarms.append(name.format(1 - free / total) + self._use.words(why, room.device, spec))
                elif left is not None:
                    what = "room on the disk" if why == "disk" else "inodes"
                    alarms.append(f"no {what} left in about {left / 3600:.1f} h, at the rate of the last hour")
        if blocked and blocked.why not in self._trends:
            alarms.append(hint(blocked))
        elif blocked and not any(alarm.startswith(blocked.why) for alarm in alarms):
            held = self._use.words(blocked.why, blocked.device, spec)
            alarms += [f"{blocked.why} of {blocked.path} too full for one more cell{held}"] if held else []
        return alarms

    def _alarms(self, memory_now: Mapping[str, int | None], found: list[dict[str, Any]]) -> list[str]:
        alarms = []
        used, limit, kills = memory_now["used"], memory_now["limit"], memory_now["oom_kills"]
        if used is not None and limit and used / limit >= MEMORY_FULL:
            alarms.append(f"memory {used / limit:.0%} of its limit: the kernel may kill")
        if kills is not None and self._kills is not None and kills > self._kills:
            alarms.append(f"the kernel killed {kills - self._kills} processes for want of memory")
        self._kills = kills
        if len(found) < self._gpus:
            alarms.append(
                f"{self._gpus - len(found)} GPUs are not seen any more: `nvidia-smi` on the box says why, or hangs; "
                "where one is lost, the machine is to be restarted, or another one rented"
            )
        self._gpus = max(self._gpus, len(found))
        for gpu in found:
            hot = (gpu["temperature"] or 0) >= HOT
            if hot and gpu["sm_clock"] and gpu["sm_clock_max"] and gpu["sm_clock"] < THROTTLED * gpu["sm_clock_max"]:
                alarms.append(f"GPU {gpu['index']} is slowed down by its heat: {gpu['temperature']} degrees")
        return alarms


def verdict_on(growth: Growth, at: float, stall: float, share: float) -> AttemptVerdict:
    """The verdict on an attempt. `at`: now (monotonic). `stall`: the interval in seconds. `share`: of a core, since the
    last look."""
    quiet, idle = at - growth.wrote_at, at - growth.busy_at
    if quiet < stall:
        return AttemptVerdict("working", "") if growth.wrote else AttemptVerdict("starting", "nothing written yet")
    if idle < stall:
        return AttemptVerdict("slow", f"no output for {quiet:.0f} s, {share:.0%} of a core in use")
    return AttemptVerdict("hung", f"no output, no CPU, no GPU for {min(quiet, idle):.0f} s")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def tree_of(folder: Path) -> tuple[int, int, int]:
    """Bytes, number and latest change of the first MAX_FILES files below a folder."""
    size = count = latest = 0
    folders = [str(folder)]
    while folders and count < MAX_FILES:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    latest = max(latest, status.st_mtime_ns)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        size, count = size + status.st_size, count + 1
    return size, count, latest


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
