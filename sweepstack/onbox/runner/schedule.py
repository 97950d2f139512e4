"""Decides from the queue and the journal which cell runs next, and in which version."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.next_version import takes_new
from sweepstack.onbox.common.priority import rank
from sweepstack.onbox.runner.records import Entry, Fatal, Journal, Queue, Release
from sweepstack.onbox.runner.sealing import sealed_manifest


class Schedule:
    """The cells that a runner which has ended had begun, the waiting cells in the queue's order, then the cells to be
    retried; with a priority, by that, whatever the queue's order (or that of `worker.Order`) is. For one thread.

    `to_reseal`: cells whose files are tried first, before they are trained again. `held`: cells that this runner can't
    start. `again`: running cells that a person asked to run again; a hung one is ended for that, and
    one of `ends` in any case. `settled`: no waiting
    cell may start now, as the last `pop` found. `unjudged`: whether the files of a cell that has ended are still to be
    judged.
    """

    def __init__(
        self,
        queue: Queue,
        journal: Journal,
        cells: Path,
        identity: str,
        left: Callable[[str, int], bool] = lambda *_: False,
    ) -> None:
        """`left`: whether the files of a cell's attempt are there to be sealed later."""
        self.ready: collections.deque[str] = collections.deque()
        self.to_reseal: collections.deque[str] = collections.deque()
        self._left = left
        self.held: set[str] = set()
        self.again: set[str] = set()
        self.ends: set[str] = set()
        self.announced = self.settled = self.unjudged = False
        self.queue, self._journal, self._cells, self._identity = queue, journal, cells, identity
        self._ranked_by: Sequence[Any] = ()
        self._ranks: dict[str, int] = {}

    def take_in(self, busy: Container[str]) -> dict[str, str]:
        """Reads new lines of the queue. Returns what `touch` returns. Raises Fatal when the queue can't be read."""
        try:
            names = [*self.queue.refresh(), *self._journal.changed()]
        except OSError as error:
            raise Fatal(6, f"the queue can't be read: {error}") from error
        while self.queue.refused:
            self._refuse(*self.queue.refused.pop())
        return self.touch(names, busy)

    def touch(self, names: Iterable[str], busy: Container[str]) -> dict[str, str]:
        """Updates these cells by queue and journal. Returns the busy cells that must be ended → the reason."""
        to_end, found = {}, False
        begun: list[str] = []
        # One that its files failed comes last: those that waited for it show sooner whether that is mended.
        for name in sorted(dict.fromkeys(names), key=lambda name: self._journal.cells[name].by_files):
            self.settled = False
            self.held.discard(name)
            if self._journal.elsewhere(self._journal.cells[name]):
                continue  # the worker that has it reads the same queue
            wanted = self.wanted(name)
            if isinstance(wanted, str):
                if name in busy:
                    to_end[name] = wanted
                elif self._journal.cells[name].state not in ("sealed", "dropped"):
                    self._journal.append("cell-dropped", cell=name, reason=wanted)
            elif name in busy:
                version, progress = self._version(name), self._journal.cells[name]
                if version is not None and progress.state == "started" and version.retry > progress.retry:
                    self.again.add(name)
                    self.ends.update([name] if version.ends else [])
            else:
                version = self._version(name)
                if version is None:
                    continue
                sealed = sealed_manifest(self._cells, self._identity, name, version.config, version.retry)
                if sealed:
                    found = True
                    self.announce()
                    details: dict[str, Any] = {"cell": name, "manifest": sealed[0], "config_digest": version.config}
                    details.update({"retry": sealed[1]} if sealed[1] else {})
                    self._journal.append("cell-found-sealed", wait=False, **details)
                elif self._reseals(version):
                    self.to_reseal.append(name)
                else:
                    (begun if self._journal.cells[name].state == "started" else self.ready).append(name)
        self.ready.extendleft(reversed(begun))
        if found:
            self._journal.sync()
        return to_end

    def look_again(self, busy: Container[str]) -> dict[str, str]:
        """`touch` for all waiting cells: what they wait for may have come from elsewhere."""
        names = list(self.ready)
        self.ready.clear()
        return self.touch(names, busy)

    def release(self, busy: Container[str]) -> dict[str, str]:
        """`touch` for all held cells: the obstacle may be gone."""
        return self.touch(sorted(self.held), busy)

    def pop(
        self, busy: Container[str], may_start: Callable[[Entry], bool | None], priority: Sequence[Any] = ()
    ) -> Entry | None:
        """Removes the next cell to run from the list and returns it; None when none may start.

        `priority`: see `onbox.common.priority`; cells of one rank keep their order. `may_start`: None for a cell that
        waits for something, False for one that this runner can't start, which moves to `held`. Cells behind these go
        first.
        """
        waiting, chosen = [], None
        waits = self._waits()
        if priority:
            self._arrange(priority)
        while self.ready and chosen is None:
            name = self.ready.popleft()
            entry = None if name in busy else self._version(name)
            if entry is not None and self._held(name, waits):
                verdict = None
            else:
                verdict = may_start(entry) if entry is not None else False
            if verdict:
                chosen = entry
                self.again.discard(name)
                self.ends.discard(name)
            elif verdict is None:
                waiting.append(name)
            elif entry is not None:
                self.held.add(name)
        self.ready.extendleft(reversed(waiting))
        self.settled = chosen is None
        return chosen

    def _arrange(self, priority: Sequence[Any]) -> None:
        if self._ranked_by != priority:
            self._ranked_by, self._ranks = priority, {}
        for name in self.ready:
            if name not in self._ranks:
                lines = self.queue.cells.get(name, [])
                params = next((line.params for line in lines if isinstance(line, Entry)), {})
                self._ranks[name] = rank(priority, name, params)
        begun = self._journal.cells
        ordered = sorted(self.ready, key=lambda name: (begun[name].state != "started", self._ranks[name]))
        self.ready.clear()
        self.ready.extend(ordered)

    def pop_to_reseal(self, busy: Container[str]) -> Entry | None:
        """Removes the next cell whose files are to be sealed as they are, and returns the version that asks for it;
        None when there is none."""
        while self.to_reseal:
            name = self.to_reseal.popleft()
            entry = None if name in busy else self._version(name)
            if entry is not None and self._reseals(entry):
                return entry
            if entry is not None:  # a person asked to train it again meanwhile
                self.settled = False
                self.ready.append(name)
        return None

    def _waits(self) -> bool:
        """Whether cells that have not begun must not start now: a cell left the wrong files, or it is not known yet
        whether it did, and none was sealed."""
        hold = self._journal.hold
        if hold.sealed:
            return False
        if self.to_reseal or self.unjudged:
            return True
        asked = [entry for entry in map(self._version, list(hold.cells)) if entry is not None]
        return bool(hold.cells) and all(map(self._reseals, asked))

    def _held(self, name: str, waits: bool) -> bool:
        return waits and self._journal.cells[name].state in ("pending", "dropped")

    def _reseals(self, entry: Entry) -> bool:
        """Whether what this version computes is there already, and only its artifacts are others than those that the
        last attempt failed by."""
        progress = self._journal.cells[entry.cell]
        if not progress.by_files or entry.retry != progress.retry:
            return False
        ran = [
            one for one in self.queue.cells[entry.cell] if isinstance(one, Entry) and one.version == progress.version
        ]
        return any(one.work == entry.work for one in ran) and self._left(entry.cell, progress.attempt)

    def announce(self) -> None:
        """Writes the runner's start to the journal, before its first event only: a runner with nothing to do leaves the
        journal unchanged."""
        if not self.announced:
            self.announced = True
            self._journal.append("runner-started", wait=False, pid=os.getpid())

    def open_cells(self) -> list[str]:
        """The cells of the queue that are not through, and that some runner may take on now."""
        waits = self._waits()
        names = [name for name in self.queue.cells if not isinstance(self.wanted(name), str)]
        names = [name for name in names if not self._held(name, waits)]
        return [n for n in names if self._version(n) is not None or self._journal.elsewhere(self._journal.cells[n])]

    def verdict(self) -> int:
        """The exit code of a drained queue."""
        cells = [self._journal.cells[name] for name in {*self.queue.cells, *self._journal.cells}]
        if self.held:
            return 7
        bad = any(one.state == "failed" or (one.state == "pending" and one.refused) for one in cells)
        return 1 if bad or self.queue.unreadable else 0

    def wanted(self, name: str) -> list[Entry] | str:
        """The versions of a cell that count, oldest first; or why it was dropped, or released before it started."""
        lines = self.queue.cells.get(name, [])
        if isinstance(lines, str):
            return lines
        if self._journal.cells[name].state in ("pending", "dropped"):
            for index in range(len(lines) - 1, -1, -1):
                line = lines[index]
                if isinstance(line, Release):
                    later = [entry for entry in lines[index + 1 :] if isinstance(entry, Entry)]
                    return later or line.reason
        return [entry for entry in lines if isinstance(entry, Entry)]

    def _version(self, name: str) -> Entry | None:
        """The version of a cell to run: the one that it started with, unless that has failed and takes the new one."""
        versions, progress = self.wanted(name), self._journal.cells[name]
        if not versions or isinstance(versions, str) or self._journal.elsewhere(progress):
            return None
        if progress.state in ("pending", "dropped"):
            return versions[-1]
        for other in versions:
            if other.config != progress.config:
                self._refuse(name, f"it started as {progress.config[:19]}…, which {other.config[:19]}… can't change")
        same = [version for version in versions if version.config == progress.config]
        if not same:
            return None
        newest = same[-1]
        own = next((version for version in same if version.version == progress.version), newest)
        if own.version == progress.version:  # it may go on in it in a later retry than its line says
            own = own._replace(retry=max(own.retry, progress.retry), source=progress.source)
            if progress.folder:  # what it went on in, whatever other lines of the same version say
                own = own._replace(folder=progress.folder, checkpoints_of=progress.checkpoints_of)
                same = [one._replace(folder=own.folder) if one.work == own.work else one for one in same]
                newest = same[-1]._replace(checkpoints_of=own.checkpoints_of) if same[-1].work == own.work else same[-1]
        across = newest.folder == own.checkpoints
        keeps = progress.state in ("retry", "failed")
        keeps = keeps and not takes_new(progress.state == "failed", progress.saved, across)
        if newest.retry > progress.retry:  # a person asked to run it once more, in whatever state it is
            goes_on = keeps and newest.work != own.work and newest.salt <= progress.retry
            return own._replace(retry=newest.retry, ends=newest.ends) if goes_on else newest
        if progress.state == "sealed":
            return None
        if progress.state in ("retry", "failed"):
            taken = [version for version in same if version.work == own.work][-1] if keeps else newest
            if taken.version != progress.version:
                return taken
            return own if progress.state == "retry" else None
        return own

    def _refuse(self, name: str, reason: str) -> None:
        if reason not in self._journal.cells[name].refused:
            self._journal.append("cell-refused", cell=name, reason=reason)
