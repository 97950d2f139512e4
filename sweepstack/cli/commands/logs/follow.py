"""`sweepctl logs -f`: follows a log through restarts of the runner, new attempts and outages.

Messages about the log go to stderr, so that stdout is the log alone. The journal is read as it grows, for lines about
this cell; its chain of digests is not checked, because nothing is decided by it here.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sweepstack.cli.cell_file import CHUNK, LOG, attempt_file, find_pulled
from sweepstack.cli.collect import look
from sweepstack.cli.commands.logs.box_log import copy_of
from sweepstack.cli.commands.logs.printer import Printer, start_of
from sweepstack.cli.output import NO, YES, No, Unsure, plain, span
from sweepstack.cli.sources import Sources, open_sources
from sweepstack.cli.target import Target
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.status.snapshot import BoxSnapshot, Snapshot

POLL_SECONDS = 0.5
LONGEST_PAUSE = 30.0
"""The most seconds between two tries to reach a box that does not answer; the wait doubles up to this."""
MISSING_SECONDS = 900.0
"""Seconds to wait for a runner that is not alive: `pulumi up` starts it again."""
RELOCATE_SECONDS = 30.0
"""Seconds between two checks of which box has a waiting cell: it may have moved."""


@dataclass(frozen=True)
class Ending:
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

    def over(self) -> Ending | None:
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
        self._ending: Ending | None = None
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
            self._ending = Ending(NO, f"{self.cell} failed for good: {reason}") if entry["final"] else None
        elif kind in ("cell-sealed", "cell-found-sealed"):
            self._ending = Ending(YES, f"{self.cell} is sealed")
        elif kind in ("cell-dropped", "cell-refused"):
            self._ending = Ending(NO, f"{self.cell} was {kind.removeprefix('cell-')}: {reason}")

    def path(self) -> str | None:
        wanted = self.only or self.attempt
        return attempt_file(self.cell, wanted, LOG) if 0 < wanted <= self.attempt else None

    def title(self) -> str:
        wanted = self.only or self.attempt
        before = self.ended.get(wanted - 1, "cut off") if wanted > 1 else ""
        return f"{self.cell}, attempt {wanted}, from box {self.box}{f' (the one before: {before})' if before else ''}"

    def over(self) -> Ending | None:
        if self.only and (self.attempt > self.only or self.only in self.ended):
            return Ending(YES, f"attempt {self.only} of {self.cell} {self.ended.get(self.only, 'was cut off')}")
        return self._ending

    def locate(self) -> BoxSnapshot | None:
        self._sources = open_sources(self.target)
        box_snapshot = look(self._sources).holder_of(self.cell)
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
        snapshot = look(open_sources(self.target))
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
        self._ending: Ending | None = None
        words = f"set-up of box {box_snapshot.box.name}"
        super().__init__(target, box_snapshot, words, box_layout.setup_log(setup), tail, limit)

    def event(self, entry: dict[str, Any]) -> None:
        if entry.get("setup") != self.setup:
            return
        kind = entry["event"]
        if kind == "setup-started":
            self._ending = None
        elif kind == "setup-finished":
            self._ending = Ending(YES, f"{self.words} finished")
        elif kind == "setup-failed":
            self._ending = Ending(NO, f"{self.words} failed: {entry.get('reason') or ''}")

    def over(self) -> Ending | None:
        return self._ending
