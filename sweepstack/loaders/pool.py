"""Worker processes that read files: one per core, one file at a time, each with a deadline.

Small files are asked for many at once, since asking takes longer than reading them; where a worker comes to no end with
them, each is asked for alone. A worker that overstays, or dies, is killed with all that it started, and replaced; of
what it was reading nothing is known. Workers get no credentials: their environment is made here, not inherited. One
that ran a user's command serves no other file.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import IO, Any

from sweepstack.core.signals import signal_name
from sweepstack.loaders.base import ROW, LoadResult, Reader, Spec
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import SweepstackError

BYTES_PER_SECOND = 20e6
"""A reader that is slower than this, over the whole of a file, is taken for hung."""
LEAST_SECONDS = 60.0
SMALL_BYTES = 2 << 20
TOGETHER = 64
"""Small files that one worker is asked for at once, at most."""
TOGETHER_BYTES = 8 << 20
LEAST_TOGETHER = 16
"""So few small files are read in less time than a second worker takes to start."""
REQUEST_BYTES = 32 << 10
"""Of one request for many: a pipe takes it whole, so that neither side waits for the other to read."""
_ROOT = Path(__file__).resolve().parents[2]
_WORKER = """
import sys
root = sys.argv[1]
if root not in sys.path:
    sys.path.insert(0, root)
from sweepstack.loaders.worker import main
main()
"""
"""Isolated from the environment and the current folder, and yet the code of the process that asks: of several checkouts
on one computer, or in a test of changed code, the interpreter would otherwise take the installed one."""
THREAD_CAPS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class FileToRead:
    """A file to read. `spec` None: its digest alone. `size` and `sha256` are what it must have.

    `check`: the folder that `load: command` runs in (see `loaders.command.Check`).
    """

    path: str
    spec: Spec | None
    sha256: str | None
    size: int | None
    check: str | None = None
    members: tuple[str, ...] = ()
    """Of a folder: its files, by their paths in it (`loaders.load.load`)."""


Progress = Callable[[FileToRead, int], None]
"""Gets the bytes of a job read since the last call, from any thread."""


def deadline_for(size: int) -> float:
    """Seconds that reading `size` bytes may take."""
    return LEAST_SECONDS + size / BYTES_PER_SECOND


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_all(
    jobs: Iterable[FileToRead],
    *,
    reader: Reader = "restricted",
    workers: int | None = None,
    progress: Progress | None = None,
    seconds: Callable[[int], float] = deadline_for,
) -> Generator[tuple[FileToRead, LoadResult], None, None]:
    """Reads all files and yields each with its result, as they are done.

    Small files are read while `jobs` still comes to know the next ones; the others after that, the largest first.
    Blocks until all are read, each file for `seconds(size)` at most. Closing the iterator kills the workers. Raises
    WorkersBroken when they can't run here.
    """
    most = workers or cores()
    waiting: _Waiting = queue.SimpleQueue()
    done: _Done = queue.SimpleQueue()
    slots: list[tuple[_Slot, threading.Thread]] = []
    left = 0
    try:
        for batch in _batches(jobs, most):
            waiting.put(batch)
            left += len(batch)
            if len(slots) < most:
                slot = _Slot(reader, seconds, progress)
                slots.append((slot, threading.Thread(target=slot.serve, args=(waiting, done), daemon=True)))
                slots[-1][1].start()
            while not done.empty():
                found = _found(done.get())
                left -= len(found)
                yield from found
        while left:
            found = _found(done.get())
            left -= len(found)
            yield from found
    finally:
        for slot, _ in slots:
            slot.stop()
        for _ in slots:  # after all were stopped: each takes one, and one that goes on would take another's
            waiting.put([])
        for _, thread in slots:
            thread.join()


def _found(item: list[tuple[FileToRead, LoadResult]] | BaseException) -> list[tuple[FileToRead, LoadResult]]:
    if isinstance(item, BaseException):
        raise item
    return item


def _batches(jobs: Iterable[FileToRead], workers: int) -> Iterator[list[FileToRead]]:
    """What one worker gets at once: many small files, as soon as they are known; then each large one alone, the largest
    first; last of all what is left of the small ones, in parts, so that no worker is done long before another."""
    large: list[FileToRead] = []
    small: list[FileToRead] = []
    size = 0
    for job in jobs:
        if not _is_small(job):
            large.append(job)
            continue
        if small and (len(small) == TOGETHER or size + (job.size or 0) > TOGETHER_BYTES):
            yield small
            small, size = [], 0
        small.append(job)
        size += job.size or 0
    for job in sorted(large, key=lambda job: job.size or 0, reverse=True):
        yield [job]
    part = max(LEAST_TOGETHER, len(small) // (4 * workers))
    for begin in range(0, len(small), part):
        yield small[begin : begin + part]


def _is_small(job: FileToRead) -> bool:
    small = job.size is not None and job.size <= SMALL_BYTES and not job.members
    return small and (job.spec is None or job.spec.load != "command")


class WorkersBroken(SweepstackError):
    """Workers don't even start here: nothing is known of any file. The message is the last thing one said."""


class _Died(SweepstackError):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


_Waiting = queue.SimpleQueue[list[FileToRead]]
_Done = queue.SimpleQueue[list[tuple[FileToRead, LoadResult]] | BaseException]


class _Slot:
    """One worker process at a time, and the thread that feeds it."""

    def __init__(self, reader: Reader, seconds: Callable[[int], float], progress: Progress | None) -> None:
        self.reader = reader
        self.seconds = seconds
        self.progress = progress
        self.process: subprocess.Popen[bytes] | None = None
        self.buffer = b""
        self.errors: IO[bytes] | None = None
        self.stopped = False
        self.lock = threading.Lock()

    def serve(self, waiting: _Waiting, done: _Done) -> None:
        """Until it is stopped; `waiting` then needs one more entry, for each that serves."""
        try:
            while True:
                batch = waiting.get()
                if self.stopped:
                    return
                found = self._read_many(batch) if len(batch) > 1 else None
                if found is not None:
                    done.put(found)
                    continue
                for job in batch:
                    done.put([(job, self._read(job))])
        except BaseException as error:
            done.put(error)
        finally:
            self._end()

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            if self.process is not None:
                _kill_group(self.process)

    def _read_many(self, batch: list[FileToRead]) -> list[tuple[FileToRead, LoadResult]] | None:
        """All of them by one request; None where the worker came to no end with it, so that each is read alone."""
        seconds = self.seconds(sum(job.size or 0 for job in batch))
        request = self._request(batch, seconds)
        if len(request) >= REQUEST_BYTES:
            return None if len(batch) == 2 else self._halves(batch)
        try:
            process = self._worker()
            self._send(process, request)
            assert process.stdout is not None
            results = _results(json.loads(self._line(process, process.stdout, monotonic() + seconds)))
        except (TimeoutError, _Died):
            self._end()
            return None
        found = list(zip(batch, results, strict=True))
        if self.progress:
            for job, result in found:
                self.progress(job, result.bytes)
        return found

    def _halves(self, batch: list[FileToRead]) -> list[tuple[FileToRead, LoadResult]]:
        """The same for names so long that they don't fit into one request."""
        middle = len(batch) // 2
        found: list[tuple[FileToRead, LoadResult]] = []
        for half in (batch[:middle], batch[middle:]):
            together = self._read_many(half) if len(half) > 1 else None
            found += [(job, self._read(job)) for job in half] if together is None else together
        return found

    def _read(self, job: FileToRead) -> LoadResult:
        seconds = self.seconds(job.size or 0)
        for attempt in (1, 2):
            try:
                result = self._ask(job, seconds)
                if job.spec is not None and job.spec.load == "command":
                    self._end()  # with whatever the command left running
                return result
            except TimeoutError:
                self._end()
                return LoadResult(False, (f"could not be read within {seconds:,.0f} s",), unknown=True)
            except _Died as death:
                said = self._end()
                if death.code >= 0 and attempt == 2 and not self.stopped:
                    raise WorkersBroken(said or f"exit code {death.code}") from None
                if self.stopped or attempt == 2 or death.code == -signal.SIGXCPU:
                    return LoadResult(False, (f"its reader died ({_how(death.code)})",), unknown=True)
        raise AssertionError("unreachable")

    def _ask(self, job: FileToRead, seconds: float) -> LoadResult:
        deadline = monotonic() + seconds
        process = self._worker()
        assert process.stdout is not None
        self._send(process, self._request([job], seconds))
        while True:
            answer = json.loads(self._line(process, process.stdout, deadline))
            if "results" in answer:
                return _results(answer)[0]
            if self.progress:
                self.progress(job, answer["progress"])

    def _request(self, batch: list[FileToRead], seconds: float) -> bytes:
        """See `loaders.worker`. A spec is told once, however many files it is for."""
        numbers: dict[int, int] = {}
        specs: list[dict[str, Any]] = []
        files = []
        for job in batch:
            number = None
            if job.spec is not None and (number := numbers.setdefault(id(job.spec), len(specs))) == len(specs):
                specs.append(_plain(job.spec))
            files.append((job.path, number, job.sha256, job.size, *([job.members] if job.members else [])))
        asked = {"files": files, "specs": specs, "reader": self.reader, "seconds": seconds, "check": batch[0].check}
        return json.dumps(asked).encode()

    @staticmethod
    def _send(process: subprocess.Popen[bytes], request: bytes) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(request + b"\n")
            process.stdin.flush()
        except OSError:
            raise _Died(_ended(process)) from None

    def _line(self, process: subprocess.Popen[bytes], stdout: IO[bytes], deadline: float) -> bytes:
        poller = select.poll()
        poller.register(stdout, select.POLLIN)
        while b"\n" not in self.buffer:
            left = deadline - monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                raise TimeoutError
            data = os.read(stdout.fileno(), 1 << 16)
            if not data:
                raise _Died(_ended(process))
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def _worker(self) -> subprocess.Popen[bytes]:
        with self.lock:
            if self.stopped:
                raise _Died(-signal.SIGKILL)
            if self.process is None:
                self.buffer = b""
                self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the worker)
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-B", "-c", _WORKER, str(_ROOT)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self.errors,
                    env=worker_environment(),
                    cwd="/",
                    start_new_session=True,  # a Ctrl-C is for us; we end it
                )
            return self.process

    def _end(self) -> str:
        """Ends the worker; the last line that it said on stderr."""
        with self.lock:
            process, self.process = self.process, None
        if process is None:
            return ""
        _kill_group(process)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        with self.errors or contextlib.nullcontext():
            return _last_line(self.errors) if self.errors else ""


def worker_environment() -> dict[str, str]:
    """All that a worker knows of ours: where programs lie, and that it has one core."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, **dict.fromkeys(THREAD_CAPS, "1")}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a worker and all that it started. It leads a group of its own, whose number is its pid."""
    if process.returncode is None:  # not reaped, so the number is still its own
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """How a worker that closed its output ended. What it started is killed before its number may be another's."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    _kill_group(process)
    return process.wait()


def _plain(spec: Spec) -> dict[str, Any]:
    names = ("load", "keys", "finite", "infinite", "plausible", "min_bytes", "run", "trust")
    return {name: getattr(spec, name) for name in names}


def _results(answer: dict[str, Any]) -> list[LoadResult]:
    """The seconds of all are with the first."""
    network, stages = answer["network"], answer["seconds"]
    results = []
    for row in answer["results"]:
        told = dict(zip(ROW, row, strict=True))
        told |= {"reasons": tuple(told["reasons"]), "notes": tuple(told["notes"])}
        results.append(LoadResult(**told, stages=stages, network=network))
        stages = {}
    return results


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
    lines = errors.read().decode("utf-8", "replace").splitlines()
    return lines[-1] if lines else ""


def _how(code: int) -> str:
    return signal_name(-code) if code < 0 else f"exit code {code}"
