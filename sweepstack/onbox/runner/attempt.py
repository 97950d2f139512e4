"""One attempt of one cell: its command, its environment, its process.

While it runs, its metrics are watched for the first NaN, for jobs that ask to be ended then; and its outputs are linked
into the one folder that a platform's own TensorBoard reads.

The math libraries of a cell start as many threads as its share of the CPUs that this box may use has. OpenMP and MKL
start one thread for each core that they see. In a container that is the whole host, of which the box has a slice; and
every slot does it. The threads then wait for each other, and each cell is many times slower.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.aside import set_aside
from sweepstack.onbox.common.canonical import digest_of, hex_of, write_atomically
from sweepstack.onbox.common.cgroup import cpus, oom_kills
from sweepstack.onbox.common.processes import start_of
from sweepstack.onbox.common.run_process import says
from sweepstack.onbox.common.separators import separator_of
from sweepstack.onbox.common.tracked import VARIABLE, run_id
from sweepstack.onbox.runner import nodes
from sweepstack.onbox.runner.cut_checkpoint import CheckpointFile, doubt, last_beat, newest
from sweepstack.onbox.runner.disk import SPACIOUS_BYTES, room_at
from sweepstack.onbox.runner.environment import fill, redact_file, values_of, variables
from sweepstack.onbox.runner.longer import begun_from
from sweepstack.onbox.runner.mounts import mount_variables
from sweepstack.onbox.runner.records import Entry, now, set_aside_room
from sweepstack.onbox.runner.sealing import CellFailure, Own, artifact_files, time_at
from sweepstack.onbox.runner.spec import GRACE_SECONDS, own_files

LAST_LINE, TAIL = 200, 16384
LEFT = "left.json"
LOG_ROOM = 64 << 10
"""Bytes reserved for a log, so that a program can still write its error when the disk is full."""
CHECKPOINT = re.compile(r"step-([0-9]+)-[0-9a-f]{64}\.ckpt")
CLOCK_SECONDS = 0.5
"""A clock that loses less than this during an attempt was slowed down, not set back."""
DESCRIBE_SECONDS = 30.0
DESCRIBE = """
import json, os, platform, sys
from email.parser import HeaderParser
from importlib import metadata
found = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
try:
    lines = open("/proc/cpuinfo", errors="replace").read().splitlines()
    found["cpu"] = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
except (OSError, StopIteration):
    found["cpu"] = platform.processor() or platform.machine()
for name in ("torch", "numpy", "safetensors", "jax", "tensorflow", "transformers", "scikit-learn"):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
every = {}
for one in metadata.distributions():
    try:
        text = one.read_text("METADATA") or one.read_text("PKG-INFO") or one.read_text("") or ""
        said = HeaderParser().parsestr(text.partition("\\n\\n")[0])
        every.setdefault(said["Name"] or "?", said["Version"])
    except Exception:
        every.setdefault("?", "can't be read")
folders = [path for path in sys.path if os.path.isdir(path)]
print(json.dumps([found, every, folders]))
"""
"""`one.metadata` and `one.version` would each parse a distribution's whole description: half of the time of this."""


class Ended(NamedTuple):
    """Why the runner itself ended an attempt: the kind of failure, its reason, and whether the cell is given up."""

    kind: str
    reason: str
    final: bool


AT_ONCE = 4 << 20
"""The most bytes that one look reads: the next look reads on a second later."""


class MetricsWatch:
    """Reads new lines of a metrics file (one JSON object per line, or CSV with a heading). For one thread at a time. A
    CSV that is written anew with another heading, as Lightning's is for a new column, is read from its beginning."""

    def __init__(self, out: Path, metrics: Mapping[str, Any]) -> None:
        self._path = out / str(metrics["file"])
        self._x, self._y = metrics.get("x"), list(metrics.get("y") or [])
        self._separator = separator_of(self._path.name)
        self._offset, self._rest, self._first = 0, b"", b""
        self._heading: list[str] = []
        self.found = ""

    def look(self) -> str:
        """Which metric became NaN, and where, for people; "" when none did. Never raises."""
        while not self.found:
            try:
                with open(self._path, "rb") as handle:
                    if self._separator:
                        first = handle.readline(AT_ONCE)
                        if first != self._first:
                            self._first, self._offset, self._rest, self._heading = first, 0, b"", []
                    handle.seek(self._offset)
                    data = handle.read(AT_ONCE)
            except OSError:
                break
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self.found = self.found or self._nan_in(line)
            if len(data) < AT_ONCE:
                break
        return self.found

    def last_look(self) -> str:
        """`look` for a file that no process writes to any more: its last line may lack a newline."""
        found, rest = self.look(), self._rest
        self._rest = b""
        self.found = found or self._nan_in(rest)
        return self.found

    def _nan_in(self, line: bytes) -> str:
        row = self._row(line)
        for key in self._y or list(row):
            value = row.get(key)
            if isinstance(value, str) and value.strip().lower() in ("nan", "+nan", "-nan"):
                value = math.nan
            if isinstance(value, float) and math.isnan(value):
                at = row.get(self._x) if self._x else None
                return f"{key} is NaN" + (f" at {self._x} {at}" if at is not None else "")
        return ""

    def _row(self, line: bytes) -> dict[str, Any]:
        text = line.decode("utf-8", "replace").strip()
        if not text:
            return {}
        if not text.startswith("{") and self._separator:
            words = next(csv.reader([text], delimiter=self._separator))
            if not self._heading:
                self._heading = words
                return {}
            return dict(zip(self._heading, words))
        try:
            row = json.loads(text)
        except ValueError:
            return {}
        return row if isinstance(row, dict) else {}


class Attempt:
    """An attempt, from the claim of its cell to its end.

    `kill_at`: when its grace is over (monotonic). `dropped`: the reason, if the cell was dropped while it ran. `ended`:
    why this runner ended it, upon a deadline, a hang or a person's request. `stopped`: the runner itself is ending.
    `threads`: how many its math libraries start, 0 for their own choice. `found`: the newest file of the checkpoints
    that it began with. `holds_slot`: its first process has ended, and others of it may still use the slot.
    """

    judged = False
    """Whether its files were found to be a result."""
    process: subprocess.Popen[bytes]
    watch: MetricsWatch | None = None
    environment: Future[Environment]

    def __init__(
        self,
        home: Path,
        checkpoints: Path,
        scratch: Path,
        spec: dict[str, Any],
        entry: Entry,
        number: int,
        slot: int,
        threads: int | None = None,
    ) -> None:
        """`threads`: as an earlier attempt of this version had; None: this is the first."""
        self.home, self.spec, self.entry, self.number, self.slot = home, own_files(spec, entry), entry, number, slot
        self.folder = home / "cells" / entry.cell / str(number)
        self.out, self.log = self.folder / "out", self.folder / "log.txt"
        self.checkpoint = checkpoints / entry.cell / entry.checkpoints
        self.found: CheckpointFile | None = None
        self.scratch = scratch / entry.cell / str(number)
        self.argv = ["/bin/sh", "-c", entry.run]
        self._values = values_of(entry, str(self.out), str(self.checkpoint))
        self._secret: list[str] = []
        with contextlib.suppress(CellFailure):  # said again when it is started
            self.argv[2] = fill(entry.run, self._values, shlex.quote)
        self.started_at, self.began = now(), time.monotonic()
        self.devices = self._devices()
        self.threads = share_of_cpus(spec, len(self.devices)) if threads is None else threads
        metrics = self.spec.get("metrics") or {}
        if metrics.get("stop_on_nan"):
            self.watch = MetricsWatch(self.out, metrics)
        self._kills = oom_kills()
        self.kill_at: float | None = None
        self.dropped: str | None = None
        self.ended: Ended | None = None
        self.stopped = self.holds_slot = False

    def start(self) -> None:
        """Starts it in a process group of its own. Raises CellFailure when no retry can help; OSError."""
        code = self.home / "code" / hex_of(self.entry.code)
        if not code.is_dir():
            raise CellFailure(f"its code is not on this box: {self.entry.code}")
        self.argv[2], env = fill(self.entry.run, self._values, shlex.quote), self._env()
        if self.folder.exists():  # the journal's line about it was lost in a power cut
            set_aside(self.folder, self.folder.with_name(f"{self.number}.unrecorded"))
        self.out.mkdir(parents=True)
        self._new_at, self._ahead = os.stat(self.out).st_ctime_ns, time.time() - time.monotonic()
        self.found = newest(self.checkpoint)
        for folder in (self.checkpoint, self.scratch):
            folder.mkdir(parents=True, exist_ok=True)
        self._new_there = time_at(self.checkpoint)
        command = self._command()
        with open(self.log, "xb", buffering=0) as log:
            room = room_at(self.folder)
            self._set_aside = room is not None and 0 <= room.free < SPACIOUS_BYTES
            if self._set_aside:
                set_aside_room(log.fileno(), LOG_ROOM)
            self.process = subprocess.Popen(
                command, cwd=code, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        show_in_tensorboard(self.spec, self.entry.cell, self.out)
        pid = self.process.pid
        (self.folder / "pid").write_text(json.dumps({"pid": pid, "start": start_of(pid)}) + "\n")

    def _command(self) -> list[str]:
        """What is started: the cell's own command, or what starts that on each of its nodes."""
        if nodes.count_of(self.entry) == 1:
            return self.argv
        grace = float(self.spec.get("grace_seconds", GRACE_SECONDS))
        paths = {"folder": self.folder, "out": self.out, "scratch": self.scratch, "checkpoint": self.checkpoint}
        words = self.home, self.spec, self.entry, self.argv[2], grace, len(self.devices), paths
        return [str(word) for word in nodes.several().command(*words)]

    def checkpoint_step(self) -> int | None:
        """The step of the newest checkpoint with a name of the checkpoint helper; None without one."""
        with contextlib.suppress(OSError):
            names = os.listdir(self.checkpoint)
            return max((int(found[1]) for found in map(CHECKPOINT.fullmatch, names) if found), default=None)
        return None

    def origin(self) -> dict[str, Any]:
        """The versions of the code whose checkpoints it goes on from, and the sealed copy that it began from, for
        records; empty where there are none."""
        others = [code for code in self.entry.checkpoints_of if code]
        return {**({"checkpoints_of": others} if others else {}), **begun_from(self.entry, self.checkpoint)}

    @staticmethod
    def leader(home: Path, cell: str, number: int) -> dict[int, str]:
        """The first process of an attempt: pid → its start time. Empty when that is not known."""
        try:
            record = json.loads((home / "cells" / cell / str(number) / "pid").read_bytes())
            return {int(record["pid"]): str(record["start"])}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def checkpoint_doubt(self, kind: str) -> str:
        """Why the checkpoint that it found may be what it failed at, in words; "" where not: `cut_checkpoint.doubt`."""
        beat = last_beat(self.home.parent.parent / box_layout.PATROL, self.entry.cell, self.number - 1)
        return doubt(self.found, self.checkpoint, kind, self.seconds(), beat)

    def since(self) -> tuple[int, int]:
        """When it began (ns), by the clock of the box's disk and by that of the tier: what it wrote there is younger. 0
        where that is not known, as when the clock was set back meanwhile."""
        back = time.time() - time.monotonic() < self._ahead - CLOCK_SECONDS
        return (0, 0) if back else (self._new_at, self._new_there)

    def own(self, since: tuple[int, int]) -> Own:
        """Its folders."""
        return Own(self.out, self.scratch, self.checkpoint, since)

    def changed_since_it_ended(self) -> list[str]:
        """A doubt for each artifact that was changed after its end was recorded (`SealableAttempt`): a result is what
        the job left, and not what was put there later."""
        ended, found = os.stat(self.folder / LEFT).st_ctime_ns, []
        for path in artifact_files(self.out, self.spec["artifacts"]):
            with contextlib.suppress(OSError):
                if os.stat(self.out / path).st_ctime_ns > ended:
                    found.append(f"{path} was changed after its try had ended")
        return found

    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def oom_kills(self) -> int | None:
        """How many processes the kernel killed for lack of memory since it began; None when that is not counted."""
        kills = oom_kills()
        return None if kills is None or self._kills is None else kills - self._kills

    def close_log(self, code: int) -> tuple[str, str]:
        """Writes the last line of the log. Returns why the exit code is a failure ("" for 0), and the log's end."""
        ended = f"exit code {code}"
        if code < 0 or code > 128:
            number = -code if code < 0 else code - 128
            with contextlib.suppress(ValueError):
                ended = (
                    f"killed by {signal.Signals(number).name}"
                    if code < 0
                    else f"{ended} ({signal.Signals(number).name})"
                )
        redact_file(self.log, self._secret)  # before the end is cut out: half a secret would not be found
        with open(self.log, "r+b") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
            tail = log.read()
            newline = b"" if not tail or tail.endswith(b"\n") else b"\n"
            log.write(newline + f"[sweepstack] attempt {self.number}: {ended} after {self.seconds():.1f} s\n".encode())
            if self._set_aside:
                log.truncate()  # gives it back
        text = tail.decode("utf-8", "replace")
        lines = text.strip().splitlines()
        if code == 0:
            return "", text
        return (f"{ended}: {lines[-1][:LAST_LINE]}" if lines else ended), text

    def facts(self) -> dict[str, Any]:
        """The manifest, without what sealing adds. Blocks until the environment has been described."""
        known = {"image": self.spec.get("image"), "secrets": sorted(self.spec.get("secrets") or [])}
        environment = {**self.environment.result().facts, **{key: value for key, value in known.items() if value}}
        return {
            "schema": 1,
            "identity": self.spec["identity"],
            "box": self.spec["box"],
            "native_id": self.spec["native_id"],
            "generation": self.spec["generation"],
            "cell": self.entry.cell,
            "attempt": self.number,
            "retry": self.entry.retry,
            "config_digest": self.entry.config,
            "params": self.entry.params,
            "code": self.entry.code,
            "argv": self.argv,
            "started_at": self.started_at,
            **({"setup": self.entry.prepared} if self.entry.setup else {}),
            **self.origin(),
            "provenance": self._provenance(),
            "environment": environment,
        }

    def _provenance(self) -> dict[str, Any]:
        """What was known about the code when it was shipped (its provenance file), what its nodes are, and where its
        run is in trackers."""
        several = nodes.several() if nodes.count_of(self.entry) > 1 else None
        on_nodes = {"nodes": several.result_of(self.home, self.entry, self.spec)} if several else {}
        run = run_id(self.spec["identity"], self.entry.cell)
        tracked = {name: text.replace("{run}", run) for name, text in (self.spec.get("tracked") or {}).items()}
        beside = {**on_nodes, **({"trackers": tracked} if tracked else {})}
        with contextlib.suppress(OSError, ValueError):
            known = json.loads((self.home / "provenance" / f"{hex_of(self.entry.code)}.json").read_bytes())
            if isinstance(known, dict):
                return {**known, **beside}
        return beside

    def _env(self) -> dict[str, str]:
        env = variables(self.home, self.spec, self.entry, self._values)
        self._secret = [env[name] for name in self.spec.get("secrets") or []]
        env.update(
            SWEEPSTACK_CELL=self.entry.cell,
            SWEEPSTACK_OUT=str(self.out),
            SWEEPSTACK_ATTEMPT=str(self.number),
            SWEEPSTACK_CHECKPOINT_DIR=str(self.checkpoint),
            SWEEPSTACK_SCRATCH=str(self.scratch),
            **mount_variables(self.home.parent.parent, self.spec),
        )
        if self.spec.get("tracked"):
            env.setdefault(VARIABLE, run_id(self.spec["identity"], self.entry.cell))
        env.update(thread_limits(self.threads, self.entry.run, env))
        if self.devices:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.devices)
        return env

    def _devices(self) -> list[str]:
        """The GPUs of this slot: whole ones if there are enough, else one that several slots share."""
        gpus = self.spec.get("gpus") or []
        names = [str(gpu) for gpu in (range(gpus) if isinstance(gpus, int) else gpus)]
        given = os.environ.get("SWEEPSTACK_WORKER_GPUS")  # those of its allocation, on a host that has more
        names = given.split(",") if names and given else names
        share = len(names) // max(1, int(self.spec.get("slots") or 1))
        if not names:
            return []
        return names[self.slot * share : (self.slot + 1) * share] or [names[self.slot % len(names)]]


class SealableAttempt(NamedTuple):
    """What is known of an attempt that ended with exit code 0, and that its files alone failed: it can be sealed later,
    by other artifacts.

    `facts`: its manifest, without its files. `since`: see `Attempt.since`. `seconds`: how long it ran. `doubts`: why
    its files may not be whole.
    """

    facts: dict[str, Any]
    since: tuple[int, int]
    seconds: float
    doubts: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Keeps it beside the attempt's files. Raises OSError."""
        write_atomically(folder / LEFT, json.dumps(self._asdict()).encode() + b"\n")

    @classmethod
    def read(cls, folder: Path) -> SealableAttempt | None:
        """None where nothing is known, or the files are gone."""
        try:
            known = json.loads((folder / LEFT).read_bytes())
            here, there = known["since"]
            doubts = tuple(map(str, known.get("doubts") or ()))
            found = cls(dict(known["facts"]), (int(here), int(there)), float(known["seconds"]), doubts)
            return found if (folder / "out").is_dir() and (folder / "log.txt").is_file() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


class Environment(NamedTuple):
    """The software and hardware that results may depend on.

    `facts`: interpreter, libraries, GPUs and driver, for the manifest. `distributions`: every installed Python
    distribution → its version; the facts hold their digest. `folders`: where Python looks for them → the folder's time,
    which changes when one is installed or removed.
    """

    facts: dict[str, Any]
    distributions: dict[str, str]
    folders: dict[str, int]

    def stands(self) -> bool:
        """Whether nothing was installed or removed since. Cheap: it only compares the folders' times."""
        return bool(self.folders) and self.folders == _times(self.folders)


def _times(folders: Iterable[str]) -> dict[str, int]:
    found = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            found[folder] = os.stat(folder).st_mtime_ns
    return found


def describe(python: str) -> Environment:
    """The environment of an interpreter now. Never raises; blocks for seconds."""
    found: dict[str, Any] = {}
    distributions: dict[str, str] = {}
    folders: list[str] = []
    try:
        answer = subprocess.run(
            [python, "-c", DESCRIBE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=DESCRIBE_SECONDS,
            check=True,
        ).stdout
        found, distributions, folders = json.loads(answer)
        found["distributions"] = digest_of(distributions)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        found["problem"] = f"{python}: {type(error).__name__}"
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        found["gpus"] = says(*query, seconds=DESCRIBE_SECONDS).strip().splitlines()
    return Environment(found, distributions, _times(folders))


def show_in_tensorboard(spec: Mapping[str, Any], cell: str, out: Path) -> None:
    """Links the folder `out` of a cell's newest attempt there, under the sweep's and the cell's names. Never raises: it
    is for people. What another program has put there under this name stays."""
    folder = str((spec.get("network") or {}).get("tensorboard") or "")
    if not folder:
        return
    link = Path(os.path.expanduser(folder)) / f"{spec['identity']}-{cell}"
    staged = link.with_name(f".{link.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        if os.path.lexists(link) and not link.is_symlink():
            return
        link.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            staged.unlink()
        staged.symlink_to(out)
        os.replace(staged, link)


THREAD_NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LAUNCHER = re.compile(
    r"\btorchrun\b|\btorch\.distributed\.|\baccelerate\s+launch\b|\bdeepspeed\b|\bmpirun\b|\bhorovodrun\b"
)
"""They start several processes, and choose a number for each where none is set."""


def share_of_cpus(spec: Mapping[str, Any], cards: int = 1) -> int:
    """How many threads a cell's libraries should start here; 0 where their own choice is right, since the cell has all
    CPUs that it sees. `cards`: the cell's; of several, each may have a process of its own."""
    allowed, seen = cpus(), os.cpu_count()
    if allowed is None or seen is None:
        return 0
    share = max(1, math.floor(allowed / max(1, int(spec.get("slots") or 1))))
    return max(1, share // max(1, cards)) if share < seen else 0


def thread_limits(threads: int, run: str, env: Mapping[str, str]) -> dict[str, str]:
    """The variables to set; none for 0, where the person set one of them, or where a launcher starts the processes."""
    if not threads or any(name in env for name in THREAD_NAMES) or LAUNCHER.search(run):
        return {}
    return dict.fromkeys(THREAD_NAMES, str(threads))
