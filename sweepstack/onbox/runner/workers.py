"""The workers of a box that several share: who this one is, and what proves that another has ended.

An end is proved by

- this host: the worker's process is not there any more, or the host was started anew since. What its cells left running
  here is ended first;
- the scheduler: a program that spec.json names (`shared.worker_state`) says `ended` of the worker's job;
- a person: `sweepctl confirm worker`.

All else is unknown, and unknown is never ended: a worker on a host that does not answer may still compute.

Their journal is one chain, to which each appends in its turn (`SharedJournal`). In a turn a worker has the lock of the
box (`locks.LinkLock`), has read all that others appended, and writes what follows from that. A cell is its worker's
from the line `cell-started` on, until the journal has that worker's end: its own `runner-stopped`, or `worker-ended`
with a proof, which another wrote. No time frees a cell.

A worker whose end stands in the journal writes nothing more: it looks for that before each line. One that was halted
between that look and its write leaves a line that does not follow; who has the lock then cuts it out.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.box_layout import CELL_NAME, SEALED
from sweepstack.onbox.common.canonical import canonical_json, sha256_hex, write_json_atomically
from sweepstack.onbox.common.cell_durations import Took
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.locks import LinkLock
from sweepstack.onbox.common.nodes import Allocation
from sweepstack.onbox.common.processes import start_of, stat_fields
from sweepstack.onbox.runner.attempt import Attempt
from sweepstack.onbox.runner.cell_processes import end_cells
from sweepstack.onbox.runner.records import Fatal, Journal, Progress, now, say

WORKERS, RECORD = "workers", "worker.json"
NAME = re.compile(CELL_NAME)
JOB, TRY, ENDS = "SWEEPSTACK_WORKER_JOB", "SWEEPSTACK_WORKER_TRY", "SWEEPSTACK_WORKER_ENDS"
NODE_SCRATCH = "SWEEPSTACK_NODE_SCRATCH"
ASK_SECONDS = 20.0
"""The scheduler's answer about one worker takes no longer, else it is unknown."""
AGAIN_SECONDS = 10.0
"""It is asked about one worker no more often."""
LOOKS, LOOK_AGAIN_SECONDS = 4, 2.0
"""It is asked so often why a worker ended, while it takes that worker for running still."""
LEFT_SECONDS = 10.0
"""Between SIGTERM and SIGKILL of what a dead worker's cells left running here."""

WAIT_SECONDS = 3600.0
"""So long a line waits for its turn, where the owner of the lock neither goes on nor can be proved to have ended."""
STOP_SECONDS = 30.0
"""The same for a worker that is told to stop."""
LOCK = "lock"
_OVER = (*SEALED, "cell-dropped")


def who(worker: str) -> dict[str, Any]:
    """What tells this process from every other one: `worker`; `host` (its name); `machine` (a digest of what stays over
    a restart, "" where that is not known); `boot`, `space` (the kernel's start, and its space of pids); `pid`,
    `start`."""
    return {
        "worker": worker,
        "host": socket.gethostname(),
        "machine": _machine(),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "space": _pid_space(),
        "pid": os.getpid(),
        "start": start_of(os.getpid()),
    }


def begin(home: Path, me: Mapping[str, Any]) -> Path:
    """Writes who this worker is. Returns its folder. Raises Fatal: each start of a worker needs a name of its own."""
    folder = home / WORKERS / str(me["worker"])
    try:
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir()
        asked = {"job": os.environ.get(JOB, ""), "try": os.environ.get(TRY, ""), "ends": os.environ.get(ENDS, "")}
        program = os.path.abspath(sys.argv[0])
        write_json_atomically(folder / RECORD, {**me, **asked, **_nodes(), "began": now(), "program": program})
    except FileExistsError:
        raise Fatal(3, f"worker {me['worker']} was here before: a start of a worker needs a name of its own") from None
    except OSError as error:
        raise Fatal(6, f"{folder} can't be written: {error}") from error
    return folder


def _nodes() -> dict[str, Any]:
    """All hosts on which processes of this worker's cells may run, where it has an allocation of several. Raises
    OSError where that does not read: then an end of this worker could not be proved."""
    try:
        found = Allocation.of_environment()
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(f"its allocation does not read: {error}") from error
    return {"nodes": list(found.nodes)} if found is not None else {}


class Proofs:
    """Finds out which workers have ended. `journal`: given once it is open, since its lock asks here, too. For the
    thread that holds the journal's turn, or waits for it."""

    journal: SharedJournal | None = None

    def __init__(self, home: Path, me: Mapping[str, Any], spec: Callable[[], Mapping[str, Any]]) -> None:
        self._home, self._me, self._spec = home, me, spec
        self._next: dict[str, float] = {}

    def lock_owner_ended(self, record: Mapping[str, Any]) -> bool:
        """For `LinkLock`: whether the process of this record can't go on with the lock."""
        worker = str(record.get("worker", ""))
        if not worker:  # a command: it is proved by its host alone
            return bool(self._process_ended(record))
        if self.journal is not None and worker in self.journal.ended:
            return True  # it looks for its end in the journal before it writes
        return bool(self.proof(worker) or (self._has_several(worker) and self._process_ended(record)))

    def proof(self, worker: str) -> str:
        """What proves that this worker has ended; "" where nothing does. May block: for the scheduler's answer, and for
        the end of what its cells left here."""
        try:
            record = json.loads((self._home / WORKERS / worker / RECORD).read_bytes())
        except (OSError, ValueError):
            return ""
        here = self._process_ended(record)
        if here is None:  # on another host
            return self._scheduler(worker, record)
        if not here or not self._left_nothing(worker, record):
            return ""
        if not self._has_several(worker):
            return here
        elsewhere = self._scheduler(worker, record)  # this host knows nothing of the worker's other nodes
        return f"{here}; {elsewhere}" if elsewhere else ""

    def runs(self, worker: str) -> tuple[str, str]:
        """What shows that a worker runs; and which part of it is not proved to have ended, where the scheduler takes a
        person's word for each. "" where nothing does."""
        try:
            record = json.loads((self._home / WORKERS / worker / RECORD).read_bytes())
        except (OSError, ValueError):
            return "", ""
        if self._process_ended(record) == "":
            return f"process {record.get('pid')} of host {record.get('host')}", ""
        said = self._asked(record)
        return f"the scheduler says so: {said['why']}" if said["state"] == "running" else "", said["lacks"]

    def memory(self, worker: str) -> str:
        """Of a worker that is proved to have ended: that the scheduler ended it for want of memory, in its words; ""
        where it does not say so. Blocks: a scheduler may know it only once it knows of the end, too."""
        try:
            record = json.loads((self._home / WORKERS / worker / RECORD).read_bytes())
        except (OSError, ValueError):
            return ""
        for look in range(LOOKS):
            if look:
                time.sleep(LOOK_AGAIN_SECONDS)
            said = self._asked(record)
            if said["state"] != "running" or said["memory"]:
                break
        return said["memory"]

    def left_here(self, worker: str) -> bool:
        """Whether it ran on this host and its process is gone, and something of its cells can't be ended."""
        try:
            record = json.loads((self._home / WORKERS / worker / RECORD).read_bytes())
        except (OSError, ValueError):
            return False
        return bool(self._process_ended(record)) and not self._left_nothing(worker, record)

    def _has_several(self, worker: str) -> bool:
        """Whether processes of its cells may run on more hosts than the worker's own."""
        try:
            return len(json.loads((self._home / WORKERS / worker / RECORD).read_bytes()).get("nodes") or []) > 1
        except (OSError, ValueError, AttributeError):
            return False

    def _process_ended(self, record: Mapping[str, Any]) -> str | None:
        """What this host knows of a process: "" that it runs, or may run; None: nothing."""
        try:
            if record["boot"] and record["boot"] == self._me["boot"]:
                if not record["space"] or record["space"] != self._me["space"]:
                    return None  # another container: its pids mean nothing here
                if not record["start"] or _runs(int(record["pid"]), str(record["start"])):
                    return ""
                return f"host {record['host']}: its process {record['pid']} is gone"
            if record["boot"] and record["machine"] and record["machine"] == self._me["machine"]:
                return f"host {record['host']} was started anew since"
        except (KeyError, TypeError, ValueError):
            pass
        return None

    def _left_nothing(self, worker: str, record: Mapping[str, Any]) -> bool:
        """Ends what a worker's cells left running on this host. False where that can't be done, or be seen."""
        if record["boot"] != self._me["boot"]:
            return True
        leaders: dict[int, str] = {}
        for cell, attempt in (self.journal.cells_of(worker) if self.journal is not None else {}).items():
            leaders.update(Attempt.leader(self._home, cell, attempt))
        try:
            left = end_cells(str(self._spec()["native_id"]), None, leaders, LEFT_SECONDS, worker)
        except Unreachable as error:
            say(str(error))
            return False
        if left:
            say(f"worker {worker} has ended, and processes of its cells can't be ended: {left}")
        return not left

    def _scheduler(self, worker: str, record: Mapping[str, Any]) -> str:
        if time.monotonic() < self._next.get(worker, 0.0):
            return ""
        said = self._asked(record)
        self._next[worker] = time.monotonic() + AGAIN_SECONDS
        return f"scheduler: {said['why']}" if said["state"] == "ended" else ""

    def _asked(self, record: Mapping[str, Any]) -> dict[str, str]:
        """What the scheduler says of a worker's job: `state`, `why`, `memory`, `lacks`; unknown where it does not say.
        A program that an older version sent may not say the last two."""
        found = {"state": "unknown", "why": "", "memory": "", "lacks": ""}
        argv = (self._spec().get("shared") or {}).get("worker_state") or []
        if argv and record.get("job"):
            asked = [*map(str, argv), str(record["job"]), str(record.get("try", ""))]
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, subprocess.SubprocessError):
                done = subprocess.run(
                    asked, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=ASK_SECONDS, cwd=self._home
                )
                said = json.loads(done.stdout)
                if said["state"] in ("running", "ended"):
                    found.update(state=str(said["state"]), why=str(said["why"]), memory=str(said.get("memory", "")))
                found["lacks"] = str(said.get("lacks", ""))
        return found


def _runs(pid: int, start: str) -> bool:
    try:
        fields = stat_fields(pid)
        return fields[0] not in ("Z", "X") and fields[19] == start
    except FileNotFoundError:
        return False
    except (OSError, IndexError):
        return os.path.exists(f"/proc/{pid}")


def _pid_space() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _machine() -> str:
    """A digest of the machine's id and of the addresses of its network cards: images are cloned, cards are not."""
    cards = sorted(_read(str(path.parent / "address")) for path in Path("/sys/class/net").glob("*/device"))
    known = _read("/etc/machine-id")
    if not known or not any(cards):
        return ""
    return hashlib.sha256(" ".join([known, socket.gethostname(), *cards]).encode()).hexdigest()


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


class Fenced(Fatal):
    """The journal has this worker's end: its cells may run elsewhere already."""


class SharedJournal(Journal):
    """The journal as the worker `worker` reads and appends to it; "" reads, and appends what a person says.

    `ended`: workers whose end the journal has; `begun`: all that started, with their cells or not. `took`: seconds of
    the sealed cells, sorted; `times`: the same by cell, with the worker. `alone`: cells that run with no other on their
    worker, until they have ended: one of them, or all together, took more memory than their worker had. `moved`:
    whether a turn has read lines of others; for the caller to set back. `stop_at`: when a wait for a turn is given up
    (monotonic), once this worker is to stop. Safe to use from several threads.
    """

    def __init__(
        self, home: Path, worker: str, owner: Mapping[str, Any], ended: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        self.worker, self.moved, self.stop_at = worker, False, 0.0
        self.begun: dict[str, None] = {}
        self.preparing: dict[str, str] = {}
        self.took: list[float] = []
        self.times: dict[str, Took] = {}
        self.alone: set[str] = set()
        self.last_turn = 0.0
        self._failed: dict[str, str] = {}
        self._changed: dict[str, None] = {}
        self._depth, self._size, self._dirty, self._unsynced = 0, 0, False, False
        self._mutex = LinkLock(home / LOCK, owner, ended)
        super().__init__(home / "journal.jsonl")

    def _open(self) -> None:
        with self.turn():
            pass
        self._changed.clear()
        self._failed.clear()  # what failed before this worker began is tried again, as the next runner would

    @contextlib.contextmanager
    def turn(self, seconds: float | None = None) -> Iterator[bool]:
        """Holds the lock, with the journal read to its end. False when it is not had within `seconds`; None: raises
        Fatal when it is not had for very long. Turns of one thread may be nested. What was appended is seen by other
        hosts when the outermost ends, and is on the disk, unless all of it was not to be waited for: then `sync` does
        that. Raises Fenced, Fatal."""
        most = WAIT_SECONDS if seconds is None else seconds
        if not self._lock.acquire(timeout=most):
            if seconds is None:
                raise Fatal(6, "the journal's turn was not had: another thread of this worker waits for it")
            yield False
            return
        try:
            held = self._depth > 0 or self._begin(most)
            if not held:
                if seconds is None:
                    raise Fatal(6, f"the lock of the journal was not had; {self.holder()}")
                yield False
                return
            self._depth += 1
            try:
                yield True
            finally:
                self._depth -= 1
                if not self._depth:
                    self._end()
        finally:
            self._lock.release()

    def holder(self) -> str:
        """Who has the lock, in words."""
        one = self._mutex.owner()
        return f"{one.get('worker') or 'a command'} (host {one.get('host')}, pid {one.get('pid')}) has it"

    def is_ours(self) -> None:
        """Raises Fenced when another took this worker's end for proved. In a turn."""
        try:
            if not self._mutex.is_mine():
                raise Fenced(9, f"{self.worker}: the lock was taken over: this worker was proved to have ended")
        except OSError as error:
            raise Fatal(6, f"the journal's lock can't be read: {error}") from error

    def append(self, event: str, wait: bool = True, **details: Any) -> None:
        with self.turn():
            self.is_ours()
            entry = dict({"worker": self.worker}, **details)
            entry.update(event=event, prev=self._head, seq=self._seq + 1, time=now())
            said = sha256_hex(canonical_json(entry))
            line = canonical_json(dict(entry, hash=said)) + b"\n"
            try:
                if not self._written(line) and not self._written(line):
                    raise OSError(errno.EIO, "something writes to it without the lock")
            except OSError as error:
                raise Fatal(6, f"the journal can't be written: {error}") from error
            self._size += len(line)
            self._dirty = self._dirty or wait
            self._unsynced = True
            self._follow(entry, said)

    def _written(self, line: bytes) -> bool:
        """Writes a line. False when one of a worker whose end is on record came before it: then both are cut off."""
        written = os.write(self._file, line)
        if os.fstat(self._file).st_size == self._size + len(line):
            return True
        self.is_ours()  # else this line is the one that does not follow, and is cut out by who has the lock
        os.ftruncate(self._file, self._size)
        if written != len(line):
            raise OSError(errno.ENOSPC, "its disk is full")
        return False

    def sync(self) -> None:
        """Takes no turn: others may append meanwhile."""
        if not self._unsynced:
            return
        self._unsynced = False
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise Fatal(6, f"the journal can't be written: {error}") from error

    def changed(self) -> list[str]:
        names = list(self._changed)
        self._changed.clear()
        return names

    def elsewhere(self, progress: Progress) -> bool:
        other = progress.state == "started" and progress.worker not in ("", self.worker)
        return other and progress.worker not in self.ended

    def prepared_elsewhere(self, setup: str) -> str | None:
        if self._at_it(setup):
            return ""
        return self._failed.get(setup)

    def holders(self) -> list[str]:
        """The other workers that have a cell or a set-up now, and of which no end is known."""
        cells = [one.worker for one in self.cells.values() if self.elsewhere(one)]
        return list(dict.fromkeys([*cells, *(self.preparing[one] for one in self.preparing if self._at_it(one))]))

    def cells_of(self, worker: str) -> dict[str, int]:
        """The cells that this worker started and did not end: name → attempt."""
        return {n: one.attempt for n, one in self.cells.items() if one.state == "started" and one.worker == worker}

    def close(self) -> None:
        self._mutex.close()

    # -- in a turn

    def _at_it(self, setup: str) -> bool:
        worker = self.preparing.get(setup, "")
        return worker not in ("", self.worker) and worker not in self.ended

    def _begin(self, seconds: float) -> bool:
        try:
            if not self._mutex.take(seconds, lambda: bool(self.stop_at) and time.monotonic() > self.stop_at):
                return False
        except OSError as error:
            raise Fatal(6, f"the journal's lock can't be taken: {error}") from error
        try:
            self._read_on()
        except BaseException:
            with contextlib.suppress(OSError):
                self._mutex.give_back()
            raise
        return True

    def _end(self) -> None:
        self.last_turn = time.monotonic()
        try:
            try:
                if self._dirty:
                    self._dirty = self._unsynced = False
                    os.fsync(self._file)
            finally:
                os.close(self._file)  # an NFS client sends now what it has: before another one may read
        except OSError as error:
            raise Fatal(6, f"the journal can't be written: {error}") from error
        finally:
            try:
                self._mutex.give_back()
            except OSError as error:
                raise Fatal(6, f"the journal's lock can't be given back: {error}") from error

    def _read_on(self) -> None:
        """Opens the journal (an NFS client then asks its server), follows what is new, and cuts off what a worker that
        was killed, or was proved to have ended, left at its end."""
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            size = os.fstat(self._file).st_size
            data = os.pread(self._file, size - self._size, self._size) if size > self._size else b""
        except OSError as error:
            raise Fatal(6, f"the journal can't be read: {error}") from error
        try:
            if size < self._size:
                raise Fatal(4, f"{self._path} has become shorter; keep the file and look at it")
            self._follow_lines(data)
            if self.worker in self.ended:
                raise Fenced(9, f"{self.worker}: the journal has its end; it writes nothing more")
        except BaseException:
            os.close(self._file)
            raise

    def _follow_lines(self, data: bytes) -> None:
        *lines, torn = data.split(b"\n")
        kept, cut, begin = [], [], 0
        for line in lines:
            try:
                self._changed[self._take(line)] = None
                self.moved = True
            except ValueError as error:
                if not self._is_late(line):
                    raise Fatal(4, f"{error}; keep the file and look at it") from error
                cut.append(line)
                continue
            if cut:
                kept.append(line)
            else:
                begin += len(line) + 1
        self._changed.pop("", None)
        whole = self._size + begin
        self._size = whole + sum(len(line) + 1 for line in kept)
        if not torn and not cut:
            return
        self.is_ours()
        os.ftruncate(self._file, whole)
        self._depth += 1
        try:
            if kept:
                os.write(self._file, b"".join(line + b"\n" for line in kept))
            for line in cut:
                say(f"a line was cut out that a worker wrote after its end was proved: {line[:200]!r}")
                self.append("late-line-cut", bytes=len(line) + 1, of=_writer(json.loads(line)))
            if torn:
                self.append("torn-line-cut", bytes=len(torn))
        finally:
            self._depth -= 1

    def _is_late(self, line: bytes) -> bool:
        """Whether this line is whole, and of a worker whose end is known: it wrote it without the lock."""
        try:
            entry = json.loads(line)
            said = entry.pop("hash")
            return sha256_hex(canonical_json(entry)) == said and _writer(entry) in self.ended
        except (ValueError, KeyError, TypeError, AttributeError):
            return False

    def _follow(self, entry: dict[str, Any], said: str) -> None:
        event, worker = entry["event"], entry.get("worker", "")
        blocked = self.blocked
        super()._follow(entry, said)
        if event in _OVER or (event == "cell-failed" and entry.get("class") != "oom"):
            self.alone.discard(entry["cell"])
        if event in ("queue-blocked", "queue-unblocked") and worker != self.worker:
            self.blocked = blocked  # another worker's disks are not this one's
        elif event in ("runner-stopped", "worker-ended"):
            held = self.cells_of(worker)
            if entry.get("memory") and worker not in self.ended:
                self.alone.update(held)
            self.ended.add(worker)
            self._changed.update(dict.fromkeys(held))
        elif event == "runner-started":
            self.begun[worker] = None
        elif event == "cell-sealed" and "seconds" in entry:
            bisect.insort(self.took, float(entry["seconds"]))
            self.times[entry["cell"]] = Took(entry["cell"], worker, float(entry["seconds"]))
        elif event == "setup-started":
            self.preparing[entry["setup"]] = worker
            self._failed.pop(entry["setup"], None)
        elif event.startswith("setup-") and self.preparing.get(entry["setup"]) == worker:
            del self.preparing[entry["setup"]]  # what another worker says of it is no end of it: changed code, say
            if event == "setup-failed" and worker != self.worker:
                self._failed[entry["setup"]] = str(entry["reason"])


def _writer(entry: Mapping[str, Any]) -> str:
    return str(entry["by"] if entry["event"] == "worker-ended" else entry["worker"])
