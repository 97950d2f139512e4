"""Copies what boxes sealed, their journals and the logs of unsealed attempts into the evidence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime

from sweepstack.core.journal import CellProgress, could_not_stop
from sweepstack.evidence import unsealed
from sweepstack.evidence.pull import BoxPull, BoxSource, PullResult, pull_all
from sweepstack.evidence.pull_cell import Settled
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.unsealed import Unsealed
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged, SweepstackError
from sweepstack.onbox.host.platform import BoxRecord, Phase, Told
from sweepstack.operations.lease_renewal import renew_lease
from sweepstack.platforms.registry import load_platform, volume_channel
from sweepstack.status.engine.state import BoxEntry, StackState
from sweepstack.teardown.ownership import renew

KEEP_ON_SECONDS = 60.0
"""Seconds between two signs to a box that it is being read."""


@dataclass
class PullSummary:
    """The result of one pull: each cell's box and result, and the boxes that could not be reached.

    `unsealed`: attempts without a seal that were copied now, with their boxes. `said`: each cell's state in the
    journals that were read. `alarms`: of boxes that should have ended their own bill and could not. `warnings`: logs of
    boxes that could not be copied.
    """

    cells: dict[str, tuple[str, PullResult]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unsealed: list[tuple[str, Unsealed]] = field(default_factory=list)
    said: dict[str, CellProgress] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    resting: list[tuple[BoxEntry, Told | None]] = field(default_factory=list)
    """Boxes that were not reached since they stand still, each with what its platform tells."""

    def add(self, pulls: Collection[BoxPull]) -> None:
        """Adds results. A cell that was copied already keeps its first result."""
        for pull in pulls:
            if pull.problem:
                self.problems.append(f"box {pull.box}: {pull.problem}")
            self.unsealed += [(pull.box, one) for one in pull.unsealed]
            self.warnings += [f"box {pull.box}: {warning}" for warning in pull.warnings]
            if stop := could_not_stop(pull.journal, datetime.now(UTC), None):
                self.alarms.append(f"ALARM  box {pull.box}: {stop}")
            for name, progress in (pull.journal.cells if pull.journal else {}).items():
                if name not in self.said or self.said[name].state in ("pending", "dropped"):
                    self.said[name] = progress
            for result in pull.results:
                before = self.cells.get(result.cell)
                if before is None or before[1].state in ("absent", "refused"):
                    self.cells[result.cell] = (pull.box, result)

    def why_left(self, cell: str) -> str:
        """Why a cell is not in `cells`: `not_seen`, `not_copied`, `failed`, or `not_sealed`."""
        said = self.said.get(cell)
        if said is None:
            return "not_seen" if self.problems else "not_sealed"
        if said.state == "sealed":
            return "not_copied"
        return "failed" if said.state == "failed" and said.final else "not_sealed"

    @property
    def bad(self) -> list[PullResult]:
        """Sealed cells that could not be copied."""
        return [result for _, result in self.cells.values() if result.state in ("absent", "refused")]


def pull_sweep(state: StackState, store: EvidenceStore, said: Callable[[str, int, int], None]) -> PullSummary:
    """Copies from the boxes, then from the volumes that outlived their boxes. Resumable, idempotent; keeps the boxes
    from ending their own bill meanwhile. `said`: is told of each cell with the bytes that are done, and all. Raises
    EvidenceError where the evidence can't be written, or another pull is running."""
    identity = store.marker.identity
    armed, leased = [box for box in state.boxes if box.ends_itself], [box for box in state.boxes if box.leased]
    last_sign = 0.0

    def signs(cell: str, done: int, total: int) -> None:
        nonlocal last_sign
        if (armed or leased) and time.monotonic() - last_sign > KEEP_ON_SECONDS:
            last_sign = time.monotonic()
            _keep_on(armed)
            for box in leased:  # boxes are pulled one after the other: their leases may be shorter than that takes
                renew_lease(box.context().channel)
        said(cell, done, total)

    summary = PullSummary()
    _keep_on(armed)
    live, dead = _sources(state, store, summary)
    answering = {(source.box, source.generation) for source in live}
    leased = [box for box in leased if (box.name, box.generation) in answering]
    pulls = pull_all(live, identity, store, signs)
    summary.add(pulls)
    told = {name for pull in pulls if pull.journal for name, cell in pull.journal.cells.items() if cell.manifest}
    for source in dead:
        sealed = _sealed_by(store, source.box, source.generation) - told
        if sealed:
            wanted = BoxSource(source.box, source.generation, source.channel, cells=sorted(sealed), volume_only=True)
            summary.add(pull_all([wanted], identity, store, signs))
    return summary


def _keep_on(boxes: Sequence[BoxEntry]) -> None:
    """Tells these boxes that a pull runs. If that fails, the pull goes on."""
    for box in boxes:
        with contextlib.suppress(SweepstackError, OSError):
            box.context().channel().write(box_layout.KEEP_ON, b"")


def _sources(state: StackState, store: EvidenceStore, summary: PullSummary) -> tuple[list[BoxSource], list[BoxSource]]:
    """The boxes that answer, and the volumes of boxes that do not. First those boxes of which nothing outlives them:
    where a balance or a deadline is short, what has no copy elsewhere must come first."""
    live: list[BoxSource] = []
    dead: list[BoxSource] = []
    named = set()
    for box in sorted(state.boxes, key=lambda box: bool(box_layout.surviving(box.teardown.kills, box.mounts))):
        named.add((box.name, box.generation))
        record: BoxRecord | None = None
        try:
            platform = box.context().platform
            record = platform.get(box.native_id, box.account)
            if record.phase is not Phase.GONE:
                channel = platform.channel(box.native_id, box.account)
                renew(channel)
                live.append(BoxSource(box.name, box.generation, channel))
                continue
        except SweepstackError as error:
            if record is not None and record.phase is Phase.STOPPED and (here := _here_at_rest(store, box)) is not None:
                summary.cells |= {name: (box.name, PullResult(name, "current")) for name in here}
                continue
            summary.problems.append(f"box {box.name}: {error}")
            if record is not None and record.phase.at_rest:
                summary.resting.append((box, record.told))
        dead += _by_volume(box.name, box.generation, box.adapter, box.mounts)
    for birth in store.births():
        if (birth.box, birth.generation) not in named:
            dead += _by_volume(birth.box, birth.generation, birth.platform, birth.mounts)
    return live, dead


def _here_at_rest(store: EvidenceStore, box: BoxEntry) -> list[str] | None:
    """The sealed cells of a box that we stopped, if all of them, and all that its attempts without a seal left, is here
    already: nothing more is to be had from it. Else None."""
    try:
        journal = store.journal_at_rest(box.name, box.generation, box.native_id)
        if journal is None or unsealed.uncopied_attempts(store, box.name, box.generation, journal, dead=True):
            return None
        here = Settled(store)
        sealed = {name: cell.manifest or "" for name, cell in journal.cells.items() if cell.state == "sealed"}
        return list(sealed) if all(here.holds(name, manifest) for name, manifest in sealed.items()) else None
    except (EvidenceError, JournalDamaged):
        return None


def _by_volume(box: str, generation: int, adapter: str, mounts: Mapping[str, str]) -> list[BoxSource]:
    """The durable volume of a box that does not answer, if the volume can be read."""
    volume = mounts.get(box_layout.DURABLE)
    if volume is None:
        return []
    try:
        channel = volume_channel(load_platform(adapter), volume, box_layout.DURABLE)
    except SweepstackError:
        return []
    return [BoxSource(box, generation, channel, volume_only=True)]


def _sealed_by(store: EvidenceStore, box: str, generation: int) -> set[str]:
    try:
        journal = store.journal(box, generation)
    except (EvidenceError, JournalDamaged):
        return set()
    return {name for name, cell in journal.cells.items() if cell.state == "sealed"} if journal else set()
