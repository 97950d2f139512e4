"""Decides from journals and records which seal of a cell counts, or where the cell stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from sweepstack.core.journal import CellProgress, Journal, started
from sweepstack.core.records import Birth, CellState, Launch, Manifest
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import SEALED
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import JournalDamaged


@dataclass(frozen=True)
class ReadBox:
    """A box of the sweep as it was just read.

    `journal`: as read from the box; None when it was not reached; then the last kept copy counts.
    `broken`: why the journal that was read does not count; then none of the box does. `runner_alive`: None is unknown.
    `launch`: None reads the record from the evidence. `gone`: it is proved gone, and no volume outlived it.
    """

    box: str
    native_id: str
    generation: int
    journal: Journal | None
    launch: Launch | None = None
    broken: str = ""
    runner_alive: bool | None = None
    gone: bool = False


@dataclass(frozen=True)
class BoxJournal:
    """The journal of one box, which says what became of its cells. `live`: the box is in the sweep now, not an earlier
    one."""

    box: str
    generation: int
    journal: Journal
    live: bool
    runner_alive: bool | None = None
    gone: bool = False

    @property
    def name(self) -> str:
        """How a person knows it."""
        return self.box if self.live else f"{self.box} (generation {self.generation})"

    @cached_property
    def seals(self) -> dict[str, dict[str, int | None]]:
        """cell → the digest of each manifest that a seal recorded → its attempt; None of one that was found sealed."""
        found: dict[str, dict[str, int | None]] = {}
        for entry in self.journal.entries:
            if entry["event"] in SEALED:
                found.setdefault(entry["cell"], {}).setdefault(entry["manifest"], entry.get("attempt"))
        return found


@dataclass(frozen=True)
class StateAndReason:
    """A state that is not `verified`, and why.

    `earlier`: the cell was started once more since the copy here was sealed: the copy stays its result, if it is good,
    until a later one is verified. The box stays locked all the same: a person asked for the new run.
    """

    state: CellState
    reason: str = ""
    earlier: bool = False


@dataclass
class SweepJournals:
    """The journals of a sweep's boxes. `heads`: boxes of the sweep whose journal could be read, with it."""

    boxes: list[BoxJournal] = field(default_factory=list)
    heads: list[tuple[ReadBox, Journal, Launch | None]] = field(default_factory=list)
    broken: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    """box → why its journal does not count, and the cells that its queue was given"""
    births: dict[tuple[str, int], Birth] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    """cell → why"""

    def knows(self, manifest: Manifest | None) -> bool:
        """Whether the box that sealed it is on record; yes for a manifest that does not read."""
        return manifest is None or (manifest.box, manifest.generation) in self.births

    def copy_problem(self, cell: str, manifest: Manifest, digest: str) -> StateAndReason | None:
        """Why a pulled manifest does not count; None when a journal records exactly this seal as its last word."""
        birth = self.births.get((manifest.box, manifest.generation))
        if birth is None or birth.native_id != manifest.native_id:
            return StateAndReason("damaged", "its manifest was sealed by a box that this sweep's records do not know")
        said = list(self._said(cell))
        sealed = [(one, progress) for one, progress in said if progress.state == "sealed"]
        same = [one for one, progress in sealed if progress.manifest == digest]
        other = [one for one, progress in sealed if progress.manifest != digest]
        newest = max((progress.retry for one, progress in sealed if progress.manifest == digest), default=-1)
        later = [progress for _, progress in said if progress.retry > newest and started(progress)]
        for one in same if not later else ():
            if not any(o.box == one.box and o.generation > one.generation for o in other):
                return None
        earlier = any(digest in one.seals.get(cell, {}) for one in self.boxes)
        if other:
            return StateAndReason(
                "damaged", f"{self._why_not_this(cell, manifest, digest, other[-1])}; pull again", earlier
            )
        for one, progress in sorted(said, key=lambda known: not known[0].live):
            if progress.state in ("running", "failed") and (one.live or earlier):
                standing = _standing(one, progress)
                return StateAndReason(
                    standing.state, f"the copy here is of an earlier attempt; {standing.reason}", earlier
                )
        return StateAndReason("damaged", self._broken_for(cell, manifest.box) or "no journal at hand records its seal")

    def _why_not_this(self, cell: str, manifest: Manifest, digest: str, last: BoxJournal) -> str:
        """What the journals prove of a copy that is not the seal that they record last."""
        if any(digest in one.seals.get(cell, {}) for one in self.boxes):
            return f"stale copy: {last.name} sealed the cell again"
        for one in self.boxes:
            own = (one.box, one.generation) == (manifest.box, manifest.generation)
            if own and manifest.attempt in one.seals.get(cell, {}).values():
                return f"its manifest was changed after {one.name} sealed attempt {manifest.attempt} with it"
        return f"no journal at hand records its seal, but one of another manifest, by {last.name}"

    def without_copy(self, cell: str) -> StateAndReason:
        """Where a cell stands of which there is no copy here."""
        said = list(self._said(cell))
        for state in ("sealed", "running", "failed"):
            for one, progress in said:
                if one.live and progress.state == state:
                    return _standing(one, progress)
        if cell in self.lost:
            return StateAndReason("lost", self.lost[cell])
        for one, progress in said:
            if progress.state == "sealed":
                return _standing(one, progress)
        for one, progress in said:
            if one.live and progress.state == "dropped":
                return StateAndReason("pending", f"taken out of the queue of {one.box}: {progress.reason}")
        return StateAndReason("pending", self._broken_for(cell, None))

    def _said(self, cell: str) -> Iterator[tuple[BoxJournal, CellProgress]]:
        for one in self.boxes:
            progress = one.journal.cells.get(cell)
            if progress is not None:
                yield one, progress

    def _broken_for(self, cell: str, sealed_on: str | None) -> str:
        for box, (why, cells) in sorted(self.broken.items()):
            if box == sealed_on or cell in cells:
                return f"the journal of {box} is broken: {why}"
        return ""


def sweep_journals(store: EvidenceStore, boxes: Sequence[ReadBox]) -> SweepJournals:
    """Reads births, losses and pulled journals, and puts them beside what was seen. Raises EvidenceError."""
    found = SweepJournals(births={(birth.box, birth.generation): birth for birth in store.births()})
    for loss in store.losses():
        found.lost |= dict.fromkeys(loss.cells, f"lost with {loss.box} ({loss.native_id}): {loss.why}")
    views = {(view.box, view.generation): view for view in boxes}
    for box, generation in sorted(found.births.keys() | views.keys()):
        view = views.get((box, generation))
        launch = (view.launch if view else None) or store.launch(box, generation)
        cells = frozenset(launch.cells) if launch else frozenset()
        try:
            copied = store.journal(box, generation)
        except JournalDamaged as error:
            if view is None or view.journal is None:
                found.broken[box] = (f"the copy kept before: {error}", cells)
                continue
            copied = None
        if view is not None and view.broken:
            found.broken[box] = (view.broken, cells)
            continue
        journal = view.journal if view and view.journal is not None else copied
        if journal is None:
            continue
        if copied is not None and not journal.continues(copied):
            found.broken[box] = ("it does not continue the copy kept before: cut, or written again", cells)
            continue
        alive, gone = (view.runner_alive, view.gone) if view else (None, False)
        found.boxes.append(BoxJournal(box, generation, journal, view is not None, alive, gone))
        if view is not None:
            found.heads.append((view, journal, launch))
    return found


def _standing(one: BoxJournal, progress: CellProgress) -> StateAndReason:
    if progress.state == "sealed" and one.gone:
        return StateAndReason(
            "lost", f"sealed on {one.name}, which is gone, and never pulled; `pulumi up` runs it again"
        )
    if progress.state == "sealed":
        return StateAndReason("missing", f"sealed on {one.name} and not pulled")
    if progress.state == "running" and not one.live:
        return StateAndReason("failed", f"attempt {progress.attempts} did not end before {one.name} did")
    if progress.state == "running" and one.runner_alive is False:
        return StateAndReason("failed", f"its runner on {one.name} is not alive; `pulumi up` resumes it")
    if progress.state == "running":
        return StateAndReason("running", f"attempt {progress.attempts} on {one.name}")
    return StateAndReason("failed", f"attempt {progress.attempts} on {one.name}: {progress.reason}")
