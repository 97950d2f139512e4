"""Sees between two rounds of `sweepctl tend` which cells on this machine come to a rung, or end.

A look asks the system for the sizes of a few files, so it may be made several times a second. What it finds is judged
as in a round, and stands in the same log; nothing is drawn, and no box that is elsewhere is asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property

from sweepstack.config.searched import search_of
from sweepstack.core.search_log import SearchLog
from sweepstack.evidence.search_log import read_search_log
from sweepstack.evidence.store import EvidenceStore
from sweepstack.extensions.search.decisions import curve_of
from sweepstack.extensions.search.rounds import decide, tell_boxes
from sweepstack.extensions.search.rules import reached
from sweepstack.launch.first_step import read_journal
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import replace
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.groups import is_group
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.operations.sweep.cell_file import attempt_file, files_on_box
from sweepstack.operations.sweep.cell_results import files_of
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.sweep.target import approval_of
from sweepstack.status.compose import compose
from sweepstack.status.snapshot import BoxSnapshot, Snapshot


class Watch:
    """What was seen of the boxes, and how long the files were then."""

    SECONDS = 0.2
    """Between two looks."""

    def __init__(self, sources: Sources, store: EvidenceStore, snapshot: Snapshot) -> None:
        """`snapshot`: of the last round. What changes elsewhere than on boxes of this machine, the next one sees."""
        self._sources, self._store, self._snapshot = sources, store, snapshot
        self._search = search_of(sources.target.file.sweep())
        self._sizes: dict[str, int | None] = {}
        self.has_room = False
        """Whether a cell has ended since the last round, and the search may draw another one."""

    def look(self) -> Sequence[str]:
        """Judges the cells that have come to a rung since the last look. Returns those that are stopped. Raises
        nothing: what can't be read now is the next round's."""
        with contextlib.suppress(SweepstackError, OSError):
            before = self._running()
            if self._channels and self._has_grown():
                if before - self._running() - set(self._log.pruned):
                    self.has_room = self._may_draw()
                if self._is_at_a_rung():
                    return self._judged()
        return ()

    @cached_property
    def _channels(self) -> dict[str, LocalChannel]:
        """Native id → the way to a box of this machine."""
        alive = (one for one in self._snapshot.box_snapshots if one.reachable and one.seen.runner_alive)
        found = {one.box.native_id: one.box.context().channel() for one in alive}
        return {native_id: one for native_id, one in found.items() if isinstance(one, LocalChannel)}

    @cached_property
    def _log(self) -> SearchLog:
        return read_search_log(self._store.objects)

    @cached_property
    def _stops(self) -> bool:
        """Whether a rule stops cells early. Without one no curve is looked at."""
        return self._search is not None and self._search.stop is not None

    def _running(self) -> set[str]:
        return {name for one in self._snapshot.box_snapshots for name in one.running}

    def _may_draw(self) -> bool:
        return self._search is not None and len(self._log.suggested) < self._search.at_most.cells

    def _has_grown(self) -> bool:
        """Whether a journal, or the metrics file of a cell that runs, is not as long as it was."""
        sizes: dict[str, int | None] = {}
        boxes = tuple(self._looked_at(snap, sizes) for snap in self._snapshot.box_snapshots)
        grown, self._sizes = sizes != self._sizes, sizes
        self._snapshot = replace(self._snapshot, box_snapshots=boxes)
        return grown

    def _looked_at(self, snap: BoxSnapshot, sizes: dict[str, int | None]) -> BoxSnapshot:
        """A box with its journal as it is now; what is looked at is put into `sizes`."""
        channel, box = self._channels.get(snap.box.native_id), snap.box.native_id
        if channel is None:
            return snap
        key = f"{box}/{box_layout.JOURNAL}"
        sizes[key] = channel.size(box_layout.JOURNAL)
        if sizes[key] != self._sizes.get(key):
            journal = read_journal(channel)
            snap = replace(snap, journal=journal, seen=replace(snap.seen, journal=journal))
        for file in self._curves_on(snap):
            for one in files_on_box(channel, [file]) if is_group(file) else [file]:
                sizes[f"{box}/{one}"] = channel.size(one)
        return snap

    def _curves_on(self, snap: BoxSnapshot) -> Iterator[str]:
        """The metrics files of the cells that run there, where a rule stops cells by them."""
        metrics = files_of(self._sources.target, self._snapshot)[1]
        if metrics is None or not self._stops:
            return
        params = {cell.name: cell.params for cell in self._snapshot.roster}
        for name in snap.running:
            progress = snap.progress(name)
            attempt = progress.attempts if progress else 1
            yield attempt_file(name, attempt, own_file(metrics.file, name, params.get(name, {})))

    def _is_at_a_rung(self) -> bool:
        """Whether a cell that runs is at a rung of which the log does not know."""
        if self._search is None or not self._stops:
            return False
        for name in self._running() & set(self._log.open):
            with contextlib.suppress(SweepstackError, OSError):  # one that has no curve yet keeps no other from it
                curve = curve_of(self._sources, self._snapshot, self._search, self._log.suggested[name])
                if reached(self._search, self._log, name, curve):
                    return True
        return False

    def _judged(self) -> Sequence[str]:
        # An approval or a teardown may have come since: then nothing is decided.
        approval, teardown = approval_of(self._sources.target, []), self._store.teardown()
        now = replace(self._snapshot, approval=approval, teardown=teardown)
        decided = decide(self._sources, self._store, now, compose(now), draws=False)
        tell_boxes(self._store.objects, now, decided.pruned)
        del self._log  # it is longer now
        return decided.stopped
