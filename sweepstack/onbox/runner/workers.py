"""The workers of a box that several share: who this one is, and what proves that another has ended.

An end is proved by

- this host: the worker's process is not there any more, or the host was started anew since. What its cells left running
  here is ended first;
- the scheduler: a program that spec.json names (`shared.worker_state`) says `ended` of the worker's job;
- a person: `sweepctl confirm worker`.

All else is unknown, and unknown is never ended: a worker on a host that does not answer may still compute.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.nodes import Allocation
from sweepstack.onbox.common.processes import start_of, stat_fields
from sweepstack.onbox.runner.attempt import Attempt
from sweepstack.onbox.runner.cell_processes import end_cells
from sweepstack.onbox.runner.records import Fatal, now, say
from sweepstack.onbox.runner.shared_journal import SharedJournal

WORKERS, RECORD = "workers", "worker.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
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

    def runs(self, worker: str) -> str:
        """What shows that a worker runs; "" where that is not known."""
        try:
            record = json.loads((self._home / WORKERS / worker / RECORD).read_bytes())
        except (OSError, ValueError):
            return ""
        if self._process_ended(record) == "":
            return f"process {record.get('pid')} of host {record.get('host')}"
        said = self._asked(record)
        return f"the scheduler says so: {said['why']}" if said["state"] == "running" else ""

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
        """What the scheduler says of a worker's job: `state`, `why` and `memory`; unknown where it does not say."""
        argv = (self._spec().get("shared") or {}).get("worker_state") or []
        if argv and record.get("job"):
            asked = [*map(str, argv), str(record["job"]), str(record.get("try", ""))]
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, subprocess.SubprocessError):
                done = subprocess.run(
                    asked, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=ASK_SECONDS, cwd=self._home
                )
                said = json.loads(done.stdout)
                if said["state"] in ("running", "ended"):
                    more = str(said.get("memory", ""))  # a program that an older version sent does not say that
                    return {"state": str(said["state"]), "why": str(said["why"]), "memory": more}
        return {"state": "unknown", "why": "", "memory": ""}


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
