"""`sweepctl logs`: prints the log of a cell, from its box or a copy, or the log of set-up or runner.

That of a runner or a set-up is read on the box, else in the copy that `sweepctl pull` made. `-f` follows a log through
restarts of the runner, new attempts and outages. Control sequences are left out.

Messages about the log go to stderr, so that stdout is the log alone. The journal is read as it grows, for lines about
this cell; its chain of digests is not checked, because nothing is decided by it here.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import re
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import typer

from sweepstack.cli import completion
from sweepstack.cli.options import AsJson, Evidence, Stack, one_of, parse_duration
from sweepstack.cli.output import NO, YES, Out, aside, following, plain, span
from sweepstack.core.suggest import closest, did_you_mean
from sweepstack.evidence.box_logs import BOX_LOGS, BoxLog, BoxLogs, read_copied_log
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError, No, SweepstackError, Unsure
from sweepstack.operations.sweep.cell_file import (
    CHUNK,
    LOG,
    CellFile,
    attempt_file,
    find_file,
    find_pulled,
    in_memory,
    over_channel,
)
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.boxes import SETUP_WORDS
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.status.ways_on import out_of_hung


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CELL",
            help="A cell's name; with --of a box's.",
            autocompletion=completion.cells_or_boxes,
        ),
    ] = None,
    of: Annotated[
        str,
        typer.Option(metavar="setup|runner", help="The log of a box's set-up step, or of its runner or last worker."),
    ] = "",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print more as the log grows.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Another attempt than the last.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, metavar="N", help="Only the last N lines.")] = None,
    timeout: Annotated[str, typer.Option(metavar="12h", help="When to stop following.")] = "24h",
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> int:
    """Print the log of a cell, or of a box's set-up or runner. Exit 0: printed, or sealed.

    -f goes on through restarts, outages and new attempts.
    """
    if follow and json:
        raise Unsure("--json prints one document, and -f never ends: use one of them")
    if of:
        one_of(of, "setup", "runner", option="--of")
    if attempt and of:
        raise Unsure("--attempt is for the log of a cell")
    until = parse_duration(timeout) if follow else None
    target, out = Target.find_to_read(stack, evidence), Out(as_json=json)
    if of:
        return (setup_log if of == "setup" else runner_log)(target, name, tail, until, out)
    if name is None:
        raise Unsure("whose log? Name a cell, or use --of setup or --of runner")
    return logs(target, name, attempt, tail, until, out)


def logs(target: Target, cell: str, attempt: int | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of a cell. `follow`: how long to follow it; None: prints it once."""
    sources = open_sources(target)
    snapshot = take_snapshot(sources)
    known = [entry.name for entry in snapshot.roster] + list(snapshot.dropped)
    if cell not in known:
        raise target.no_cell(cell, known)
    if follow is not None and snapshot.holder_of(cell) is not None:
        return CellFollow(target, sources, snapshot, cell, attempt, tail, follow).run()
    source = find_file(sources, snapshot, cell, attempt)
    code = _print(source, f"{cell}, attempt {source.attempt}, from {source.words}", tail, out, {"cell": cell})
    if not out.as_json and any(cell in box_snapshot.hung for box_snapshot in snapshot.box_snapshots):
        aside(*following(out_of_hung(target.stack, cell)))
    return code


def setup_log(target: Target, box: str | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of the last set-up step of a box; `box` None: of the only box with a set-up step."""
    sources = open_sources(target)
    snapshot = take_snapshot(sources)
    named = lambda box_snapshot: box_snapshot.setup is not None  # noqa: E731
    again, where = "sweepctl logs --of setup", box_layout.SETUP_LOGS
    name, box_snapshot = choose_box(sources, snapshot, box, named, "has a set-up step", where, again=again)
    setup = box_snapshot.setup if box_snapshot else None
    if box_snapshot is not None and box_snapshot.reachable and setup is None:
        raise Unsure(f"box {name} has begun no set-up step (job.setup)")
    if follow is not None and box_snapshot is not None and not box_snapshot.gone and setup is not None:
        return SetupFollow(target, box_snapshot, setup.digest, tail, follow).run()
    source = find_log(
        sources, name, box_snapshot, box_layout.setup_log(setup.digest) if setup else box_layout.SETUP_LOGS
    )
    state = SETUP_WORDS[setup.state] if setup else "unknown"
    return _print(source, f"set-up of box {name}, {state}", tail, out, {"box": name, "state": state})


def runner_log(target: Target, box: str | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of a box's runner; where several workers share the box, of the one that began last, and of those
    at work first."""
    sources = open_sources(target)
    snapshot = take_snapshot(sources)
    again, where = "sweepctl logs --of runner", (box_layout.RUNNER_LOG, box_layout.WORKERS)
    name, box_snapshot = choose_box(sources, snapshot, box, lambda _: True, "is there", *where, again=again)
    worker, others = _last_worker(box_snapshot)
    if box_snapshot is None or not box_snapshot.reachable:
        copied = copied_workers(sources, name, box_snapshot.box.generation if box_snapshot else None)
        if copied and worker not in copied:
            worker, others = copied[-1], max(others, len(copied) - 1)
    path = f"{box_layout.WORKERS}/{worker}/{box_layout.WORKER_LOG}" if worker else box_layout.RUNNER_LOG
    words = f"worker {worker} of box {name} (and {others} others)" if worker else f"runner of box {name}"
    if follow is not None and box_snapshot is not None and not box_snapshot.gone:
        return BoxFollow(target, box_snapshot, words, path, tail, follow).run()
    source = find_log(sources, name, box_snapshot, path)
    return _print(source, words, tail, out, {"box": name, **({"worker": worker} if worker else {})})


def _last_worker(box_snapshot: BoxSnapshot | None) -> tuple[str, int]:
    """The worker that began last, one of which no end is known if there is one; and how many others there were."""
    known = list(box_snapshot.journal.workers.values()) if box_snapshot and box_snapshot.journal else []
    if not known:
        return "", 0
    return max(known, key=lambda one: (not one.ended, one.began_at)).name, len(known) - 1


def _print(source: CellFile, words: str, tail: int | None, out: Out, document: dict[str, str]) -> int:
    offset = start_of(source.read, source.size(), tail)
    if out.as_json:
        text = source.whole(source.size(), offset).decode("utf-8", "replace")
        more: dict[str, Any] = {"attempt": source.attempt} if source.attempt else {}
        if source.at is not None:
            more["copied_at"] = source.at.isoformat()
        out.document({**document, **more, "source": source.words, "text": text})
        return YES
    print(f"{words}, from {source.words}" if source.at is not None else words, file=sys.stderr)
    printer = Printer()
    while data := source.read(offset, CHUNK):
        printer(data)
        offset += len(data)
    return YES


def choose_box(
    sources: Sources,
    snapshot: Snapshot,
    name: str | None,
    fits: Callable[[BoxSnapshot], bool],
    words: str,
    *paths: str,
    again: str,
) -> tuple[str, BoxSnapshot | None]:
    """The box by its name, or the only one that `fits`: a box of the state, else one with a copy of a log at one of
    `paths` or below it. `again`: the command for another box, to which its name is added. Raises No, Unsure."""
    by_name = {
        box_snapshot.box.name: box_snapshot for box_snapshot in snapshot.box_snapshots if not box_snapshot.box.to_delete
    }
    in_state = by_name if name is None else name in by_name
    copied = [] if in_state else sorted({kept.box for path in paths for kept, _ in _copied_logs(sources, path)})
    if name is not None:
        if name not in by_name and name not in copied:
            known = [*by_name, *(one for one in copied if one not in by_name)]
            there, stack = ", ".join(known) or "none", sources.target.stack
            hint = did_you_mean(name, known)
            near = closest(name, known) or (known[0] if known else None)
            raise No(
                f"there is no box {name} in the state, and no copy of its log (there: {there}){hint}",
                [f"{again} {near} --stack {stack}" if near else f"sweepctl status --stack {stack}"],
            )
        return name, by_name.get(name)
    found = [box for box, box_snapshot in by_name.items() if fits(box_snapshot)] if by_name else copied
    if len(found) != 1:
        named = ", ".join(found)
        raise Unsure(f"which box? {f'{named} do' if found else f'no box {words}'}: name one")
    return found[0], by_name.get(found[0])


def find_log(sources: Sources, name: str, box_snapshot: BoxSnapshot | None, path: str) -> CellFile:
    """The log at `path`, or the newest one below it. Raises Unsure if it can't be read anywhere."""
    why = "" if sources.target.evidence else f"box {name} is not in the state any more"
    if box_snapshot is not None and box_snapshot.reachable:
        try:
            channel = box_snapshot.box.context().channel()
            if channel.size(path) is None:
                raise Unsure(f"box {name} has no {path} yet")
            return over_channel(f"box {name}", channel, path, 0)
        except Unsure:
            raise
        except (SweepstackError, OSError) as error:
            why = f"box {name}: {error}"
    elif box_snapshot is not None:
        why = f"box {name} is {'gone' if box_snapshot.gone else box_snapshot.seen.note or 'unknown'}"
    found = copy_of(sources, name, box_snapshot.box.generation if box_snapshot else None, path, why)
    if found is None:
        raise Unsure(f"{why + ', and' if why else f'of box {name}'} `sweepctl pull` had copied no such log")
    return found


def copied_workers(sources: Sources, name: str, generation: int | None) -> list[str]:
    """The workers of a box whose logs were copied, the one that wrote last at the end; `generation` None: those of the
    newest one with such a copy."""
    of = [(kept, log) for kept, log in _copied_logs(sources, box_layout.WORKERS) if kept.box == name]
    newest = max((kept.generation for kept, _ in of), default=0) if generation is None else generation
    return [
        log.path.split("/")[-2]
        for kept, log in of
        if kept.generation == newest and log.path.endswith(f"/{box_layout.WORKER_LOG}")
    ]


def copy_of(sources: Sources, name: str, generation: int | None, path: str, why: str = "") -> CellFile | None:
    """The copy of such a log; `generation` None: of the newest one with a copy. `why`: why the box is not read."""
    for kept, log in reversed(_copied_logs(sources, path)):
        data = None
        if sources.store is not None and kept.box == name and generation in (None, kept.generation):
            data = read_copied_log(sources.store, kept, log)
        if data is not None:
            words = f"the copy of {log.at:%Y-%m-%d %H:%M} UTC{f' ({why})' if why else ''}"
            words += f"; the first {log.start:,} bytes were too many to copy" if log.start else ""
            return in_memory(words, data, 0, begins=log.start, at=log.at)
    return None


def _copied_logs(sources: Sources, path: str) -> list[tuple[BoxLogs, BoxLog]]:
    """All copies of such logs, sorted by generation and time, the newest last."""
    try:
        records, _ = sources.store.readable(BOX_LOGS, BoxLogs) if sources.store else ([], [])
    except EvidenceError:
        return []
    ordered = sorted(records, key=lambda kept: kept.generation)
    return [(kept, log) for kept in ordered for log in kept.logs if f"{log.path}/".startswith(f"{path}/")]


POLL_SECONDS = 0.5
LONGEST_PAUSE = 30.0
"""The most seconds between two tries to reach a box that does not answer; the wait doubles up to this."""
MISSING_SECONDS = 900.0
"""Seconds to wait for a runner that is not alive: `pulumi up` starts it again."""
RELOCATE_SECONDS = 30.0
"""Seconds between two checks of which box has a waiting cell: it may have moved."""


@dataclass(frozen=True)
class LogEnd:
    """Why the log is complete, and the exit code for that."""

    code: int
    words: str


class Follow:
    """Prints one file of one box as it grows. Subclasses decide which file that is now, and when it is complete."""

    def __init__(
        self, target: Target, box_snapshot: BoxSnapshot, words: str, tail: int | None, limit: timedelta
    ) -> None:
        self.target, self.words = target, words
        self.offset = 0
        self._tail, self._limit = tail, limit.total_seconds()
        self._deadline = time.monotonic() + self._limit
        self._printer = Printer()
        self._path: str | None = None
        self._journal_read = 0
        self._pause = 0.0
        self._missing: float | None = None
        self._located = time.monotonic()
        self.attach(box_snapshot)

    # Overridden by subclasses

    def needle(self) -> bytes:
        """Bytes that every relevant line of the journal contains."""
        raise NotImplementedError

    def event(self, entry: dict[str, Any]) -> None:
        """Takes one entry of the journal."""

    def path(self) -> str | None:
        """The file to print now; None before there is one."""
        raise NotImplementedError

    def title(self) -> str:
        """The message before the first line."""
        return f"{self.words}, from box {self.box}"

    def over(self) -> LogEnd | None:
        """How it ended, once the log is complete; None before."""
        return None

    def waits(self) -> bool:
        """Whether only a living runner can write more."""
        return True

    def locate(self) -> BoxSnapshot | None:
        """Looks up the box to read from; None if it is proved gone."""
        raise NotImplementedError

    def lost(self) -> int:
        """Called when the box is proved gone: prints the rest of the log from a copy, or raises No."""
        raise No(f"the box of {self.words} is gone", [f"sweepctl status --stack {self.target.stack}"])

    # Shared by subclasses

    def attach(self, box_snapshot: BoxSnapshot) -> None:
        """Reads from this box from now on."""
        self.box, self.generation = box_snapshot.box.name, box_snapshot.box.generation
        self._native_id = box_snapshot.box.native_id
        self.channel: Channel = box_snapshot.box.context().channel()
        self._journal_read = 0

    def say(self, text: str) -> None:
        print(f"-- {plain(text)}", file=sys.stderr, flush=True)

    def run(self) -> int:
        """Follows until the log is complete (its exit code), the time is up (1), or Ctrl-C (130, without a message).

        Raises No, and BrokenPipeError if the reader of stdout is gone: an OSError that is no outage of the box.
        """
        try:
            while True:
                code = self._step()
                if code is not None:
                    return code
                if time.monotonic() > self._deadline:
                    raise No(f"{self.words} still goes on after {span(self._limit)}")
                time.sleep(max(POLL_SECONDS, self._pause))
        except KeyboardInterrupt:
            return 130

    def _step(self) -> int | None:
        try:
            if time.monotonic() - self._located > RELOCATE_SECONDS and self.path() is None:
                return self._relocate()
            self._read_journal()
            if self._pause:
                self.say(f"box {self.box} answers again")
                self._pause = 0.0
            over = self.over()  # asked before the last read, so that the end is read too
            self._read_file()
            if over is None:
                return self._look_after_runner()
            self.say(over.words)
            return over.code
        except (SweepstackError, OSError) as error:
            if isinstance(error, No) or self._printer.left:
                raise
            if not self._pause:
                self.say(f"box {self.box} does not answer, trying again: {error}")
            self._pause = min(max(self._pause * 2, 1.0), LONGEST_PAUSE)
        return self._relocate()

    def _relocate(self) -> int | None:
        """Looks up which box it is now. If that fails, the next step tries again."""
        self._located = time.monotonic()
        try:
            box_snapshot = self.locate()
        except (SweepstackError, OSError):
            return None
        if box_snapshot is None:
            return self.lost()
        if box_snapshot.box.native_id != self._native_id:
            self.say(f"it is on box {box_snapshot.box.name} ({box_snapshot.box.native_id}) now")
            self.attach(box_snapshot)
            self._path, self.offset = None, 0
        elif self._pause and box_snapshot.reachable:  # by the address that it has now
            with contextlib.suppress(SweepstackError, OSError):
                self.channel = box_snapshot.box.context().channel()
        return None

    def _read_journal(self) -> None:
        size = self.channel.size(box_layout.JOURNAL) or 0
        if size < self._journal_read:
            self._journal_read = 0
        while self._journal_read < size:
            data = self.channel.read(box_layout.JOURNAL, offset=self._journal_read, limit=16 * CHUNK)
            whole = data[: data.rfind(b"\n") + 1]
            if not whole:
                return
            self._journal_read += len(whole)
            for line in whole.splitlines():
                if self.needle() in line:
                    try:
                        self.event(json.loads(line))
                    except (ValueError, KeyError, TypeError, AttributeError):
                        continue

    def _read_file(self) -> None:
        path = self.path()
        if path is None:
            return
        size = self.channel.size(path)
        if size is None:
            return
        if path != self._path:
            if self._path is not None:
                self._print(self._path)  # the rest of the file before
            first, self._path, self._printer = self._path is None, path, Printer()
            self.say(self.title())
            read = lambda offset, limit: self.channel.read(path, offset=offset, limit=limit)  # noqa: E731
            self.offset = start_of(read, size, self._tail if first else None)
        if size < self.offset:
            self.say("the log is shorter than it was: it was truncated, or began again. From its start:")
            self.offset = 0
        self._print(path)

    def _print(self, path: str) -> None:
        while data := self.channel.read(path, offset=self.offset, limit=CHUNK):
            self._printer(data)
            self.offset += len(data)

    def _look_after_runner(self) -> int | None:
        if not self.waits() or self.channel.lock_held(box_layout.RUNNER_LOCK):
            if self._missing is not None:
                self.say(f"the runner of box {self.box} is alive again")
            self._missing = None
            return None
        if self._missing is None:
            self._missing = time.monotonic()
            self.say(f"the runner of box {self.box} is not alive; `pulumi up --stack {self.target.stack}` resumes it")
        if time.monotonic() - self._missing > MISSING_SECONDS:
            raise No(
                f"the runner of box {self.box} has not been alive for {span(MISSING_SECONDS)}",
                [f"pulumi up --stack {self.target.stack}"],
            )
        return None


class CellFollow(Follow):
    """Follows a cell's log through all its attempts, or one attempt. Exit 0: sealed; 1: it ended otherwise."""

    def __init__(
        self,
        target: Target,
        sources: Sources,
        snapshot: Snapshot,
        cell: str,
        attempt: int | None,
        tail: int | None,
        limit: timedelta,
    ) -> None:
        box_snapshot = snapshot.holder_of(cell)
        if box_snapshot is None:
            raise Unsure(f"no box has {cell} yet", [f"sweepctl status --stack {target.stack}"])
        self.cell, self.only = cell, attempt
        self.attempt = 0
        self.ended: dict[int, str] = {}
        self._ending: LogEnd | None = None
        self._sources, self._gone = sources, box_snapshot.gone
        super().__init__(target, box_snapshot, cell, tail, limit)

    def run(self) -> int:
        return self.lost() if self._gone else super().run()

    def needle(self) -> bytes:
        return json.dumps(self.cell).encode()

    def event(self, entry: dict[str, Any]) -> None:
        if entry.get("cell") != self.cell:
            return
        kind, reason = entry["event"], str(entry.get("reason") or "")
        if kind == "cell-started":
            self.attempt, self._ending = int(entry["attempt"]), None
        elif kind == "cell-resealing":
            self._ending = None
        elif kind == "cell-failed":
            self.ended[self.attempt] = f"failed: {reason}"
            self._ending = LogEnd(NO, f"{self.cell} failed for good: {reason}") if entry["final"] else None
        elif kind in box_layout.SEALED:
            self._ending = LogEnd(YES, f"{self.cell} is sealed")
        elif kind in ("cell-dropped", "cell-refused"):
            self._ending = LogEnd(NO, f"{self.cell} was {kind.removeprefix('cell-')}: {reason}")

    def path(self) -> str | None:
        wanted = self.only or self.attempt
        return attempt_file(self.cell, wanted, LOG) if 0 < wanted <= self.attempt else None

    def title(self) -> str:
        wanted = self.only or self.attempt
        before = self.ended.get(wanted - 1, "cut off") if wanted > 1 else ""
        return f"{self.cell}, attempt {wanted}, from box {self.box}{f' (the one before: {before})' if before else ''}"

    def over(self) -> LogEnd | None:
        if self.only and (self.attempt > self.only or self.only in self.ended):
            return LogEnd(YES, f"attempt {self.only} of {self.cell} {self.ended.get(self.only, 'was cut off')}")
        return self._ending

    def locate(self) -> BoxSnapshot | None:
        self._sources = open_sources(self.target)
        box_snapshot = take_snapshot(self._sources).holder_of(self.cell)
        return None if box_snapshot is None or box_snapshot.gone else box_snapshot

    def lost(self) -> int:
        try:
            copy = find_pulled(self._sources, self.cell, self.only or self.attempt or None, LOG)
        except Unsure as error:
            raise No(
                f"the box of {self.cell} is gone, and no copy has its log: {error}",
                [f"pulumi up --stack {self.target.stack}    (runs it again)"],
            ) from error
        self.say(f"{self.cell}, attempt {copy.attempt}, from {copy.words}: its box is gone")
        if not self.attempt:
            self.offset = start_of(copy.read, copy.size(), self._tail)
        while data := copy.read(self.offset, CHUNK):
            self._printer(data)
            self.offset += len(data)
        return YES


class BoxFollow(Follow):
    """Follows a log of a box."""

    def __init__(
        self, target: Target, box_snapshot: BoxSnapshot, words: str, path: str, tail: int | None, limit: timedelta
    ) -> None:
        self.file = path
        super().__init__(target, box_snapshot, words, tail, limit)

    def needle(self) -> bytes:
        return b'"setup-'

    def path(self) -> str | None:
        return self.file

    def lost(self) -> int:
        """Prints the part of the copy that was not printed yet."""
        copy = copy_of(open_sources(self.target), self.box, self.generation, self.file)
        if copy is None:
            return super().lost()
        self.say(f"{self.words}, from {copy.words}: the box is gone")
        start = max(self.offset - copy.begins, 0) if self._path else start_of(copy.read, copy.size(), self._tail)
        self._printer(copy.whole(copy.size(), start))
        return YES

    def locate(self) -> BoxSnapshot | None:
        snapshot = take_snapshot(open_sources(self.target))
        found = next(
            (
                box_snapshot
                for box_snapshot in snapshot.box_snapshots
                if box_snapshot.box.name == self.box and not box_snapshot.box.to_delete
            ),
            None,
        )
        return None if found is None or found.gone else found


class SetupFollow(BoxFollow):
    """Follows the log of one set-up step. Exit 0: it finished; 1: it failed. Follows a try after a failure too."""

    def __init__(
        self, target: Target, box_snapshot: BoxSnapshot, setup: str, tail: int | None, limit: timedelta
    ) -> None:
        self.setup = setup
        self._ending: LogEnd | None = None
        words = f"set-up of box {box_snapshot.box.name}"
        super().__init__(target, box_snapshot, words, box_layout.setup_log(setup), tail, limit)

    def event(self, entry: dict[str, Any]) -> None:
        if entry.get("setup") != self.setup:
            return
        kind = entry["event"]
        if kind == "setup-started":
            self._ending = None
        elif kind == "setup-finished":
            self._ending = LogEnd(YES, f"{self.words} finished")
        elif kind == "setup-failed":
            self._ending = LogEnd(NO, f"{self.words} failed: {entry.get('reason') or ''}")

    def over(self) -> LogEnd | None:
        return self._ending


_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b[^\[\]]|[\x00-\x08\x0b\x0c\x0e-\x1a]"
)
"""Control sequences that are removed: all but colours."""
_ERASE = "\r\x1b[K"


class Printer:
    """Writes a log's bytes to stdout, and joins characters and sequences that a chunk cut in two.

    On a terminal, what a progress bar wrote over is left out: only the last text of each line is shown.

    `left`: the reader of stdout has ended (`| head`), which raised BrokenPipeError.
    """

    def __init__(self) -> None:
        self.left = False
        self._returned = False
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, data: bytes) -> None:
        text = self._text.decode(data)
        try:
            sys.stdout.write(self._settled(_CONTROL.sub("", text)) if sys.stdout.isatty() else text)
            sys.stdout.flush()
        except BrokenPipeError:
            self.left = True
            raise

    def _settled(self, text: str) -> str:
        """Each line as it stood in the end. One that an earlier chunk began is erased before it is written anew."""
        returned, self._returned = self._returned, text.endswith("\r")
        first, *rest = (("\r" if returned else "") + text).replace("\r\n", "\n").split("\n")
        begun, *over = first.split("\r")
        again = f"{_ERASE}{_last_text(over)}" if any(over) else begun
        return "\n".join([again, *(_last_text(line.split("\r")) for line in rest)])


def _last_text(parts: list[str]) -> str:
    return next(filter(None, reversed(parts)), "")


def start_of(read: Callable[[int, int], bytes], end: int, tail: int | None) -> int:
    """The offset at which the last `tail` lines begin; reads backwards, so that a long log costs no more."""
    if tail is None:
        return 0
    start, newlines = end, 0
    while start > 0:
        step = min(CHUNK, start)
        data = read(start - step, step)
        for index in range(len(data) - 1, -1, -1):
            if data[index : index + 1] == b"\n" and start - step + index != end - 1:
                newlines += 1
                if newlines == tail:
                    return start - step + index + 1
        start -= step
    return 0 if tail else end
