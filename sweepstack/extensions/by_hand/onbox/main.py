"""Runs the queue of a box in a session that a person started: `python3 BUNDLE` (docs/by-hand.md).

    python3 BUNDLE [--out FOLDER] [--work FOLDER] [--from FOLDER]... [--hours H] [--take-over]

The bundle is a zip, or the folder that it was unpacked to. Its cells run in `--work`, and what they leave is carried to
`--out` every half a minute. What an earlier session carried there, or to a folder named by `--from`, is gone on with.

Exit codes: 0 the queue is done, or the session's time is, and all is carried out; 1 not all could be carried out; 2
nothing was started. Cells that failed are in the journal: an exit code that says so would make some platforms drop the
session's files. Python 3.8 and the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any, Sequence

from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import sha256_hex, write_atomically
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE

from .carry import ASIDE, PART, Carrier, bring, files_of
from .returned import (
    PACKED,
    SESSION,
    SMALL,
    WHOSE,
    Copy,
    continues,
    copies,
    journal_in,
    last_events,
    read,
)

PAYLOAD = "payload.bin"
BUNDLE = "bundle.json"
CARRY_SECONDS = 30.0
LEAST_SECONDS = 2.0
"""A cell that was sealed is carried out so soon: the session may end at any moment."""
END_SECONDS = 60.0
ALIVE_SECONDS = 180.0
"""A session that wrote less long ago may still run."""


class Refused(SweepstackError):
    """Nothing was started. The text says why, and what to do."""


class Bundle:
    """A bundle as it lies here: a zip, or a folder with its files. `facts`: what bundle.json says."""

    def __init__(self, place: Path) -> None:
        self.place = place
        try:
            self.facts: dict[str, Any] = json.loads(self._read(BUNDLE))
            payload = self._read(PAYLOAD)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise Refused(f"{place} is no whole bundle ({error}): copy it here again") from error
        if sha256_hex(payload) != self.facts["payload"]:
            raise Refused(f"{place} is damaged: {PAYLOAD} is not what was packed. Copy it here again")
        self.payload = payload

    def _read(self, name: str) -> bytes:
        if self.place.is_dir():
            return (self.place / name).read_bytes()
        with zipfile.ZipFile(self.place) as archive:
            return archive.read(name)

    def unpack(self, work: Path) -> None:
        """Puts queue, code and runner where they belong. What a session made there stays. Raises Refused where a newer
        bundle ran there."""
        with tarfile.open(fileobj=io.BytesIO(self.payload), mode="r:gz") as archive:
            queue = next((archive.extractfile(one) for one in archive if one.name == box_layout.QUEUE), None)
            ours, there = queue.read() if queue is not None else b"", work / box_layout.QUEUE
            if there.is_file() and there.read_bytes() != ours and there.read_bytes().startswith(ours):
                raise Refused(
                    f"{self.place} is older than the bundle that ran in {work}: its queue lacks what was added since. "
                    "Take the newest one, which `pulumi up` names"
                )
            _extract(archive, work, self.place)
        for tier in ("scratch", box_layout.DURABLE):
            (work / tier).mkdir(parents=True, exist_ok=True)


class Session:
    """One session of one box."""

    def __init__(self, bundle: Bundle, asked: argparse.Namespace) -> None:
        facts = bundle.facts
        self.bundle, self.whose = bundle, {key: facts[key] for key in WHOSE}
        self.native_id = str(facts["native_id"])
        own = bundle.place.parent if bundle.place.is_file() else Path.cwd()
        self.out = Path(asked.out or facts.get("out") or own).expanduser().absolute() / self.native_id
        work = asked.work or facts.get("work") or os.path.join(tempfile.gettempdir(), "sweepstack")
        self.work = Path(work).expanduser().absolute() / self.native_id
        self.inputs = [Path(one).expanduser() for one in (*asked.source, *facts.get("inputs", []))]
        hours = facts.get("hours") if asked.hours is None else asked.hours
        self.ends = None if not hours else time.monotonic() + float(hours) * 3600
        self.take_over = bool(asked.take_over)
        self.stop = 0
        self.home = self.work / box_layout.HOME
        self.carrier = Carrier(self.work, self.out, self.whose)
        self._said, self._trouble, self._journal_size = "", "", 0

    @property
    def packed(self) -> Path | None:
        """The one file that all results are packed into in the end, where the platform wants one; else None."""
        folder = self.bundle.facts.get("archive")
        return Path(folder) / f"{self.whose['box']}.{self.native_id}{PACKED}" if folder else None

    def prepare(self) -> None:
        """Makes the box's folder, with what earlier sessions left. Raises Refused."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self._be_alone()
            self._bring_back()
            self.bundle.unpack(self.work)
            self._fit_spec()
        except OSError as error:
            raise Refused(f"nothing was started: {error}") from error

    def _be_alone(self) -> None:
        try:
            last = json.loads(read(self.out, SESSION, SMALL))
            ago = time.time() - float(last["at"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return
        if last.get("ended") or self.take_over or not -ALIVE_SECONDS < ago < ALIVE_SECONDS:
            return
        raise Refused(
            f"another session carried to {self.out} {ago:.0f} s ago: two at once would write two journals, and one "
            f"would be lost. End the other one. If it has ended: wait {ALIVE_SECONDS:.0f} s, or add --take-over"
        )

    def _bring_back(self) -> None:
        """Copies in what is further than what lies here already: its journal, sealed cells, checkpoints."""
        best, where = journal_in(self.work, box_layout.JOURNAL), self.work
        for copy in self._returned():
            there = journal_in(copy.folder, box_layout.JOURNAL)
            if not continues(there, best) and not continues(best, there):
                raise Refused(
                    f"{where} and {copy.folder} are of two sessions that ran at the same time: neither journal goes on "
                    "from the other. Move the one that you want less of elsewhere, and start again"
                )
            if len(there) > len(best):
                best, where = there, copy.folder
        if where == self.work:
            return
        self._say(f"going on with what lies in {where}")
        for source in (path for name in (box_layout.DURABLE, box_layout.CELLS) for path in files_of(where / name)):
            if source.name.endswith(PART):
                continue
            path = source.relative_to(where)
            sha256 = bring(source, self.work / path, self.work / ASIDE / path)
            if where == self.out:
                self.carrier.brought(self.work / path, sha256)
        journal = self.work / box_layout.JOURNAL
        journal.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(journal, best)

    def _returned(self) -> list[Copy]:
        """The copies of this box, in the folder that results are carried to and in those that were named."""
        found = [Copy(self.out, self.whose)] if (self.out / box_layout.JOURNAL).exists() else []
        for folder in self.inputs:
            for archive in sorted(folder.rglob(f"*.{self.native_id}{PACKED}")) if folder.is_dir() else []:
                place = self.work.parent / f"{self.native_id}-{sha256_hex(str(archive).encode('utf-8'))[:8]}"
                try:
                    _must_be_whole(archive)
                    with tarfile.open(archive) as packed:
                        _extract(packed, place, archive)
                except (tarfile.TarError, EOFError) as error:
                    raise Refused(f"{archive} is no whole archive ({error}): copy it here again") from error
                found += list(copies(place))
            if folder.is_dir():
                found += [copy for copy in copies(folder) if copy.whose.get("native_id") == self.native_id]
        return [copy for copy in found if all(copy.whose.get(key) == self.whose[key] for key in WHOSE)]

    def _fit_spec(self) -> None:
        """Fills in what only this machine knows: its Python, its secrets, the variables that its GPU needs."""
        path = self.work / box_layout.SPEC
        spec = json.loads(path.read_bytes())
        spec["python"] = sys.executable
        passed = {name: os.environ[name] for name in self.bundle.facts.get("passes", []) if os.environ.get(name)}
        spec["env"] = {**passed, **(spec.get("env") or {})}
        write_atomically(path, json.dumps(spec, sort_keys=True).encode("utf-8") + b"\n")
        names = list(spec.get("secrets") or [])
        missing = [name for name in names if not os.environ.get(name)]
        if missing:
            raise Refused(
                f"the job has secrets that are not set here: {', '.join(missing)}. A bundle holds none: set them as "
                "environment variables of this session, from where the platform keeps secrets, and start again"
            )
        if names:
            values = {name: os.environ[name] for name in names}
            write_atomically(self.work / box_layout.SECRETS, json.dumps(values).encode("utf-8") + b"\n", mode=0o600)

    def run(self) -> int:
        """Runs the queue until it is done, or the session's time is. Returns the exit code."""
        with open(self.work / box_layout.RUNNER_LOG, "ab") as log:
            runner = subprocess.Popen(
                [sys.executable, str(self.work / self.bundle.facts["runner"]), str(self.home)],
                cwd=str(self.home),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        asked_to_end = 0.0
        due = 0.0
        while runner.poll() is None:
            now = time.monotonic()
            if self.ends is not None and now >= self.ends and not self.stop:
                self._say("the session's time is over: the cells that run are ended, and go on in the next session")
                self.stop = signal.SIGTERM
            if self.stop and not asked_to_end:
                asked_to_end = now
                runner.send_signal(signal.SIGTERM)
            elif asked_to_end and now > asked_to_end + END_SECONDS:
                runner.kill()
            if now >= due or (now >= due - CARRY_SECONDS + LEAST_SECONDS and self._has_grown()):
                self._carry(runner=True)
                due = time.monotonic() + CARRY_SECONDS
            with contextlib.suppress(subprocess.TimeoutExpired):
                runner.wait(timeout=min(1.0, max(0.05, due - now)))
        carried = self._carry(runner=False, ended=True, rc=runner.returncode) and self._pack()
        self._tell_end(runner.returncode, carried)
        return 2 if runner.returncode in (2, 3, 4, 5) else 0 if carried else 1

    def _environment(self) -> dict[str, str]:
        path = "{}:{}".format(os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))
        return {
            "PATH": path,
            "HOME": os.path.expanduser("~"),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            BOX_ID_VARIABLE: self.native_id,
        }

    def _on_stop(self, number: int, _frame: Any) -> None:
        self.stop = number

    def _carry(self, **said: Any) -> bool:
        try:
            self._journal_size = self.carrier.carry()
            self.carrier.beat(**said)
            if self.out != self.carrier.out:
                self._say(
                    f"another session carried to {self.out}: what this one makes is in {self.carrier.out}. Bring both "
                    "back; `sweepctl status` says what to do"
                )
                self.out = self.carrier.out
            if "ended" in said and self.carrier.changing:
                raise OSError(f"something still writes to {', '.join(self.carrier.changing[:3])}")
        except OSError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._say(f"results can't be carried to {self.out}: {error}. Trying on")
            return False
        self._trouble = ""
        self._tell()
        return True

    def _has_grown(self) -> bool:
        try:
            return (self.work / box_layout.JOURNAL).stat().st_size != self._journal_size
        except OSError:
            return False

    def _pack(self) -> bool:
        """Packs what was carried into one file, where the platform wants one."""
        path = self.packed
        if path is None:
            return True
        part = path.with_name(path.name + PART)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(part, "w") as archive:
                archive.add(self.out, arcname=self.native_id)
            os.replace(part, path)
        except OSError as error:
            self._say(f"results can't be packed into {path}: {error}")
            return False
        return True

    def _tell(self) -> None:
        sealed, running, failed = _counts(journal_in(self.work, box_layout.JOURNAL))
        words = f"{sealed} sealed, {running} running, {failed} failed"
        if words != self._said:
            self._said = words
            self._say(words)

    def _tell_end(self, code: int, carried: bool) -> None:
        said = {0: "every cell is done", 1: "done, and some cells failed", 7: "the set-up of some cells failed"}
        words = said.get(code, f"the runner ended with {code}: {self.work / box_layout.RUNNER_LOG}")
        self._say("{}; results {} {}".format(words, "are in" if carried else "are NOT all in", self.packed or self.out))
        if code not in (0, 1):
            sys.stdout.write(_tail(self.work / box_layout.RUNNER_LOG))

    @staticmethod
    def _say(text: str) -> None:
        print("sweepstack: " + text, flush=True)


def _must_be_whole(archive: Path) -> None:
    """Raises TarError for an archive without its end: one that was cut between two files reads without an error."""
    with open(archive, "rb") as handle:
        size = handle.seek(0, os.SEEK_END)
        handle.seek(max(0, size - 2 * tarfile.BLOCKSIZE))
        end = handle.read()
    if size % tarfile.RECORDSIZE or end != bytes(2 * tarfile.BLOCKSIZE):
        raise tarfile.ReadError("its end is not there")


def _extract(archive: tarfile.TarFile, target: Path, place: Path) -> None:
    """Unpacks regular files, below `target` alone. Raises Refused for anything else."""
    for member in archive:
        if member.isdir():
            continue
        if not member.isfile() or os.path.isabs(member.name) or ".." in Path(member.name).parts:
            raise Refused(f"{place} holds {member.name}, which nothing of ours does")
        source = archive.extractfile(member)
        assert source is not None
        path = target / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # one that is read-only, or a link, can't be written into
        with open(path, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        path.chmod(member.mode)


def _counts(journal: bytes) -> tuple[int, int, int]:
    events = list(last_events(journal).values())
    sealed = sum(event in box_layout.SEALED for event in events)
    return sealed, events.count("cell-started"), events.count("cell-failed")


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-2000:].decode("utf-8", "replace")
    except OSError:
        return ""


def main(place: str, argv: Sequence[str] | None = None) -> int:
    """Runs the bundle at `place`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python3 {place}", description="Runs the cells of this bundle.")
    parser.add_argument("--out", help="the folder that results are carried to, which outlives this session")
    parser.add_argument("--work", help="the folder to run in, on this machine's own disk")
    parser.add_argument("--from", dest="source", action="append", default=[], help="what an earlier session left")
    parser.add_argument("--hours", type=float, help="end before the session does; 0: never")
    parser.add_argument("--take-over", action="store_true", help="the session that wrote to --out has ended")
    asked = parser.parse_args(argv)
    try:
        session = Session(Bundle(Path(place).absolute()), asked)
        session.prepare()
    except Refused as error:
        print(f"sweepstack: {error}", file=sys.stderr, flush=True)
        return 2
    return session.run()
