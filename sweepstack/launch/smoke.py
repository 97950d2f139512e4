"""The smoke run: one or two batches of the job on this machine before anything is rented.

What passed is remembered in the user's cache folder, by code, command, environment and the cell's config. It is no
evidence of anything: it only keeps a typo from costing an hour of a rented machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, ValidationError

from sweepstack.core.cells import CHECKPOINTS
from sweepstack.core.job import Smoke
from sweepstack.core.records import Cell, Record
from sweepstack.core.signals import signal_name
from sweepstack.core.workdir import collect, located
from sweepstack.onbox.common import placeholders
from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError, SweepstackError
from sweepstack.onbox.common.groups import is_there
from sweepstack.onbox.common.locks import take
from sweepstack.onbox.common.xdg import cache_folder

POLL_SECONDS = 0.1
PROGRESS_SECONDS = 2.0
GRACE_SECONDS = 5.0
TAIL_LINES, TAIL_BYTES = 20, 8192
HELPERS = ("sweepstack_checkpoint.py", "sweepstack_files.py")
"""What a cell finds on its path beside its own code."""
HELPER_FOLDER = Path(__file__).resolve().parents[1] / "onbox" / "checkpoint"


class SmokeFailed(SweepstackError):
    """The smoke run did not pass: nothing was rented for it."""


class Passed(Record):
    """A run that passed. `missing`: artifacts that it did not leave behind."""

    at: AwareDatetime
    seconds: float
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What `ensure` found. `ran`: it was run now, and not remembered."""

    passed: Passed
    ran: bool


def smoke_of(cell: Cell, *, run: str, seconds: float, env: Mapping[str, str], **known: Any) -> Smoke:
    """The smoke run of a job for one of its cells."""
    params = {name: json.dumps(cell.params[name]) for name in sorted(cell.params)}
    return Smoke(run=run, seconds=seconds, cell=cell.name, params=params, env=dict(sorted(env.items())), **known)


def preview_line(smoke: Smoke) -> str:
    """One line for a preview: whether it has passed, and what happens if not."""
    known = passed(smoke)
    if known is None:
        return f"smoke run: not passed yet with this code and config; `up` runs it ({smoke.run}) before it rents"
    lacks = f"; it left no {', '.join(known.missing)}" if known.missing else ""
    return (
        f"smoke run: passed in {known.seconds:.1f} s on {known.at:%Y-%m-%d %H:%M} UTC with this code and config{lacks}"
    )


def memory() -> Path:
    """Where passes are remembered."""
    return cache_folder() / "smoke"


def passed(smoke: Smoke) -> Passed | None:
    """The pass on record for exactly this, or None. Reads one small file."""
    try:
        return Passed.model_validate_json((memory() / f"{smoke.key}.json").read_bytes())
    except (OSError, ValidationError):
        return None  # a damaged memory is none: it runs again


def ensure(
    smoke: Smoke,
    project_root: Path,
    *,
    progress: Callable[[str], None],
    cancelled: threading.Event | None = None,
    own: Iterable[str] = (),
    force: bool = False,
    since: float | None = None,
) -> Outcome:
    """Runs it unless it has passed before. Blocks for `smoke.seconds` at most; costs nothing.

    Several callers at once run it once; so do several of one command, which say by `since` (epoch seconds) when it
    began: what failed since then is not run again for the next box. Raises SmokeFailed with the end of its log;
    ConfigError when the work dir is not what was previewed. `own`: as `core.workdir.collect` takes it.
    """
    stop = cancelled or threading.Event()
    asked = time.time() if since is None else since
    with _one_at_a_time(smoke, progress, stop):
        known = passed(smoke)
        if known is not None and (not force or known.at.timestamp() > asked):
            return Outcome(known, ran=False)
        failed = _failed_since(smoke, asked)
        if failed:
            raise SmokeFailed(failed)
        try:
            found = _run(smoke, project_root, own, progress, stop)
        except SmokeFailed as error:
            _remember(smoke, "failed", {"at": time.time(), "why": str(error)})
            raise
        write_json_atomically(memory() / f"{smoke.key}.json", found.model_dump(mode="json"))
        return Outcome(found, ran=True)


@dataclass(frozen=True)
class Tried:
    """A run that has ended, and its folders, which are there until `tried` is left. `ended`: why it is no pass, or
    nothing; `shipped`: the files of `code` that were there before."""

    out: Path
    code: Path
    log: Path
    command: str
    ended: str
    seconds: float
    shipped: tuple[str, ...]
    secrets: tuple[str, ...]

    def tail(self) -> list[str]:
        """The last lines of its log, fit for a terminal."""
        return _tail(self.log, self.secrets)


@contextlib.contextmanager
def tried(
    smoke: Smoke,
    project_root: Path,
    own: Iterable[str],
    progress: Callable[[str], None],
    stop: threading.Event | None = None,
) -> Iterator[Tried]:
    """Runs it in a copy of what ships, for `smoke.seconds` at most, and shows what it left. Costs nothing, remembers
    nothing. Raises ConfigError when the work dir is not what was looked at before."""
    workdir = located(project_root, smoke.workdir, progress)
    shipment = collect(workdir, smoke.include, own)
    if shipment.digest != smoke.code:
        raise ConfigError(f"job.workdir: {workdir} changed while it was looked at; run the command again")
    with tempfile.TemporaryDirectory(prefix="sweepstack-smoke-") as temporary:
        home = Path(temporary).resolve()
        code, out, log = home / "code", home / "out", home / "log.txt"
        for folder in (code, out, home / "checkpoint", home / "scratch", home / "helpers"):
            folder.mkdir()
        for file in shipment.files:  # what ships and nothing else: a file that git does not track is missing here, too
            target = code / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(workdir / file.path, target)
            target.chmod(file.mode)
        for helper in HELPERS:
            if (HELPER_FOLDER / helper).is_file():
                shutil.copyfile(HELPER_FOLDER / helper, home / "helpers" / helper)
        command = fill(smoke.run, values_in(smoke, home, out), shlex.quote)
        begun = time.monotonic()
        ended = _wait(_start(smoke, command, home, code, out, log), smoke, log, progress, stop or threading.Event())
        shipped = tuple(file.path for file in shipment.files)
        yield Tried(out, code, log, command, ended, time.monotonic() - begun, shipped, smoke.secrets)


def _run(
    smoke: Smoke, project_root: Path, own: Iterable[str], progress: Callable[[str], None], stop: threading.Event
) -> Passed:
    with tried(smoke, project_root, own, progress, stop) as done:
        if done.ended:
            why = f"{done.ended} after {done.seconds:.1f} s"
            raise SmokeFailed(_failure(smoke, done.command, why, done.log))
        missing = tuple(path for path in smoke.artifacts if not is_there(done.out, path))
        return Passed(at=datetime.now(UTC), seconds=round(done.seconds, 3), missing=missing)


def fill(text: str, values: Mapping[str, Any], quote: Callable[[str], str]) -> str:
    """`text` with its placeholders replaced, as a box does it."""
    try:
        return placeholders.fill(text, values, quote)
    except KeyError as error:
        raise ConfigError(f"job.smoke: {{{error.args[0]}}}: the cell has no such parameter") from None


def values_in(smoke: Smoke, home: Path, out: Path) -> dict[str, Any]:
    """What the placeholders stand for; a parameter named `checkpoints` comes before the folder."""
    return {CHECKPOINTS: str(home / "checkpoint")} | smoke.values | {"out": str(out)}


def environment(smoke: Smoke, home: Path, out: Path) -> dict[str, str]:
    """A cell's environment: nothing is inherited but the path."""
    lacking = [name for name in smoke.secrets if name not in os.environ]
    if lacking:
        raise ConfigError(f"job.secrets: {', '.join(lacking)} not set here; export them where you run this")
    env = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "HOME": os.path.expanduser("~"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
    env |= {name: fill(text, values_in(smoke, home, out), str) for name, text in smoke.env.items()}
    env |= {name: os.environ[name] for name in smoke.secrets}
    helpers = str(home / "helpers")
    return env | {
        "PYTHONPATH": os.pathsep.join([helpers, env["PYTHONPATH"]] if env.get("PYTHONPATH") else [helpers]),
        "PYTHONUNBUFFERED": "1",
        "SWEEPSTACK_BOX_ID": "smoke",
        "SWEEPSTACK_CELL": smoke.cell,
        "SWEEPSTACK_OUT": str(out),
        "SWEEPSTACK_ATTEMPT": "1",
        "SWEEPSTACK_CHECKPOINT_DIR": str(home / "checkpoint"),
        "SWEEPSTACK_SCRATCH": str(home / "scratch"),
    }


def _start(smoke: Smoke, command: str, home: Path, code: Path, out: Path, log: Path) -> subprocess.Popen[bytes]:
    env = environment(smoke, home, out)
    with log.open("wb", buffering=0) as handle:
        return subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=code,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
        )


def _wait(
    process: subprocess.Popen[bytes],
    smoke: Smoke,
    log: Path,
    progress: Callable[[str], None],
    stop: threading.Event,
) -> str:
    """Blocks until it has ended; why that is no pass, or nothing. Whatever of its group still runs is ended."""
    begun = said = time.monotonic()
    progress(f"smoke run of {smoke.cell}: {smoke.run}")
    try:
        while process.poll() is None:
            now = time.monotonic()
            if now - begun > smoke.seconds:
                return f"not through within {smoke.seconds:g} s (job.smoke.timeout)"
            if stop.wait(POLL_SECONDS):
                return "cancelled"
            if now - said >= PROGRESS_SECONDS:
                said = now
                last = _tail(log, smoke.secrets)[-1:] or [""]
                progress(f"smoke run of {smoke.cell}: {now - begun:.0f} s  {last[0][:100]}".rstrip())
    finally:
        _end_group(process)
    if process.returncode == 0:
        return ""
    if process.returncode < 0:
        return f"killed by {signal_name(-process.returncode)}"
    return f"exit code {process.returncode}"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except (ProcessLookupError, PermissionError):
                break
            time.sleep(0.02)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)


def _failure(smoke: Smoke, command: str, ended: str, log: Path) -> str:
    lines = _tail(log, smoke.secrets)
    said = "\n".join(f"  | {line}" for line in lines) or "  | (it printed nothing)"
    return (
        f"the smoke run failed: {ended}. Nothing was rented for it.\n\n"
        f"  ran   {command}\n  as    {smoke.cell}, in a copy of the {smoke.workdir} that ships\n{said}\n"
    )


def _tail(log: Path, secrets: tuple[str, ...]) -> list[str]:
    """The last lines of its log, without what would move a terminal's cursor, and without secrets (names)."""
    # The longest first: one that begins another would leave the rest of it legible.
    hidden = sorted((os.environb.get(name.encode(), b"") for name in secrets), key=len, reverse=True)
    spare = len(hidden[0]) if hidden else 0  # what begins before the cut would not be found
    try:
        with log.open("rb") as handle:
            size = handle.seek(0, os.SEEK_END)
            cut = spare if size > TAIL_BYTES + spare else 0
            handle.seek(max(0, size - TAIL_BYTES - spare))
            data = handle.read()
    except OSError:
        return []
    for value in filter(None, hidden):
        data = data.replace(value, b"*" * len(value))
    text = data[cut:].decode("utf-8", "replace")
    lines = ["".join(c if c.isprintable() or c == "\t" else " " for c in line) for line in text.splitlines()]
    return [line.rstrip() for line in lines if line.strip()][-TAIL_LINES:]


@contextlib.contextmanager
def _one_at_a_time(smoke: Smoke, progress: Callable[[str], None], stop: threading.Event) -> Iterator[None]:
    folder = memory()
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 2 * smoke.seconds + 60
    with (folder / f"{smoke.key}.lock").open("ab") as handle:
        while not take(handle.fileno()):
            progress("waiting for the smoke run")
            if stop.wait(POLL_SECONDS) or time.monotonic() > deadline:
                raise SmokeFailed("the smoke run of another command did not end, or this one was cancelled")
        yield


def _failed_since(smoke: Smoke, asked: float) -> str:
    """Why it failed while this caller waited for it: it need not fail twice for two boxes."""
    try:
        found = json.loads((memory() / f"{smoke.key}.failed").read_bytes())
        return str(found["why"]) if float(found["at"]) >= asked else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _remember(smoke: Smoke, suffix: str, value: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        write_json_atomically(memory() / f"{smoke.key}.{suffix}", dict(value))
