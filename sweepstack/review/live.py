"""What is there now: what `status` sees, and what a review alone asks besides.

Plain values: a review of them asks no one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from sweepstack.core.records import REFUSED, SETTLED, Approval, Record
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.status.engine.state import VolumeEntry
from sweepstack.status.model import SweepView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.box_check import CellLine
from sweepstack.teardown.refusal import next_commands
from sweepstack.teardown.signatures import given_by


class LiveVolume(Record):
    """A volume as the state has it, `entry`; and of one that this stack keeps, so that its delete ends it, the check's
    answer to that."""

    entry: VolumeEntry
    allowed: bool = False
    way: str | None = None
    reasons: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundApproval:
    """An approval, and where it was found: in the state of these boxes, or in the stack file."""

    where: str
    approval: Approval

    @property
    def by(self) -> str:
        """Who gave it."""
        return given_by(self.approval)

    @property
    def actions(self) -> list[str]:
        """What it allows."""
        return [f"{one.verb} {one.box} ({one.native_id})" for one in self.approval.actions]

    @property
    def given_up(self) -> Iterator[CellLine]:
        """Cells that are `waived`, boxes that are `abandoned`, and those whose unclaimed files are `let go`."""
        yield from (CellLine(one.cell, "waived", one.reason) for one in self.approval.waive)
        yield from (CellLine(one.box, "abandoned", one.reason) for one in self.approval.abandon)
        for one in self.approval.unclaimed:
            yield CellLine(one.box, "let go", f"{one.files} files: {one.reason}")

    def as_json(self) -> dict[str, Any]:
        """The documented shape in `approvals[]`."""
        told = self.approval.model_dump(mode="json", include={"receipt", "at", "expires"})
        found: dict[str, list[Any]] = {"waived": [], "abandoned": [], "let go": []}
        for one in self.given_up:
            found[one.state].append(cell_json(one, "" if one.state == "waived" else one.name))
        return {
            "where": self.where,
            "receipt": told["receipt"],
            "by": self.by,
            "at": told["at"],
            "expires": told["expires"],
            "actions": self.actions,
            "waived": found["waived"],
            "abandoned": found["abandoned"],
            "unclaimed": found["let go"],
        }


class LiveFact(Record):
    """A dated fact of a platform's profile that an end relies on, and that is old, was never checked, or comes from a
    platform that was never proved live. `platform`: as the boxes and volumes name it."""

    name: str
    platform: str
    words: str
    leans: tuple[str, ...]
    stale: bool
    accepted: str = ""
    """The day on which the stack file accepts it; "" where it does not, or where that counts no more."""


class Roster(Record):
    """Cells by name with the digest of their config, and those that a person dropped, with the reason."""

    cells: dict[str, str] = Field(default={})
    dropped: dict[str, str] = Field(default={})


@dataclass(frozen=True)
class Live:
    """The sweep now. `rosters`: `state`, `file`, and `base` where one was asked for. `judged`: the volumes that this
    stack keeps; `store`: it is a stack of them, without cells and boxes. `in_no_copy`: box → files of attempts without
    a seal that die with it. `problems`: what is not known."""

    snapshot: Snapshot
    view: SweepView
    rosters: Mapping[str, Roster] = field(default_factory=dict)
    facts: tuple[LiveFact, ...] = ()
    judged: tuple[LiveVolume, ...] = ()
    store: bool = False
    in_no_copy: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    problems: tuple[str, ...] = ()

    def box(self, native_id: str, name: str = "") -> BoxSnapshot | None:
        """The box with this native id; without one, the box of this name."""
        boxes = self.snapshot.box_snapshots
        return next(
            (one for one in boxes if (one.box.native_id == native_id if native_id else one.box.name == name)), None
        )

    def volume(self, native_id: str) -> LiveVolume | None:
        """The volume with this native id."""
        entries = (LiveVolume(entry=entry) for entry in self.snapshot.state.volumes)
        return next((one for one in (*self.judged, *entries) if one.entry.native_id == native_id), None)

    @cached_property
    def _refused(self) -> Mapping[str, CellLine]:
        return {one.name: CellLine(one.name, one.state, one.note) for one in self.view.cells if one.state in REFUSED}

    def cells_of(self, box: BoxSnapshot) -> list[CellLine]:
        """Its cells, by the check of its end; but that looks at copies only once it is approved, and until then calls
        them verified: what is wrong with a copy counts before."""
        return [self._refused.get(cell.name, cell) for cell in box.verdict.cells]

    def open_cells_of(self, box: BoxSnapshot) -> tuple[CellLine, ...]:
        """Those that are neither verified nor waived."""
        return tuple(cell for cell in self.cells_of(box) if cell.state not in SETTLED)

    def next_of(self, box: BoxSnapshot) -> tuple[str, ...]:
        """What leads to its end from here, while it is locked."""
        ways = [] if box.verdict.allowed else next_commands(box.box.facts(), box.verdict, stack=self.view.stack)
        return tuple(command for label, command in ways if label in ("next", "accept"))

    @property
    def volumes_per_month(self) -> float:
        """USD, of volumes that this stack keeps or that outlived its boxes."""
        ours = sum(entry.price_per_month or 0.0 for entry in self.snapshot.state.volumes if not entry.kept)
        return ours + sum(one.price_per_month or 0.0 for one in self.snapshot.left)

    @property
    def unknown(self) -> list[str]:
        """What runs, or may run, and is not in the state."""
        return [
            f"{' '.join(filter(None, (orphan.name, orphan.native_id))) or orphan.kind}: {orphan.why}"
            for orphan in self.view.unknown
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the picture, which are about cells and boxes."""
        return () if self.store else self.view.notes

    @cached_property
    def approvals(self) -> list[FoundApproval]:
        """Each once: those in the state with the boxes that have it, and the one in the stack file."""
        found: list[tuple[Approval, list[str]]] = []
        held = [(one.box.approval, [one.box.name]) for one in self.snapshot.box_snapshots]
        for approval, names in (*held, (self.snapshot.approval, [])):
            known = next((of for other, of in found if other == approval), None)
            if known is not None:
                known += names
            elif approval is not None:
                found.append((approval, names))
        return [
            FoundApproval(f"the state, for {', '.join(of)}" if of else "the stack file, and not up yet", approval)
            for approval, of in found
        ]


def cell_json(cell: CellLine, box: str) -> dict[str, str]:
    """A cell in the JSON of a review."""
    return {"name": cell.name, "state": cell.state, "box": box, "note": cell.reason}
