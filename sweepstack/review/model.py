"""A review as plain values: what a change ends, keeps and costs, and whether it may go on."""

from __future__ import annotations

from typing import Any, Literal

from sweepstack.onbox.common.dataclass import asdict, dataclass, field
from sweepstack.review.live import Live, LiveFact, cell_json
from sweepstack.teardown.box_check import CellLine

MAY_GO_ON, MAY_NOT, UNTOLD = 0, 1, 2
"""The answer of a review, as an exit code."""

Change = Literal["added", "moved", "dropped", "taken out", "changed", "runs again", "refused"]


@dataclass(frozen=True)
class PlannedEnd:
    """A box that is destroyed or stopped, or a volume that is destroyed, and what that does.

    `dies`: tiers; `survives`: what and where; `lost`: its cells without a verified copy; `cleared`: whether the check
    of its end says yes now, and by which `way`; `why`: why not. `gone`: already, and nothing dies by this change.
    """

    what: Literal["box", "volume"]
    verb: Literal["destroyed", "replaced", "stopped"]
    name: str
    native_id: str
    platform: str
    dies: tuple[str, ...] = ()
    survives: tuple[str, ...] = ()
    lost: tuple[CellLine, ...] = ()
    cells: int = 0
    cleared: bool = False
    way: str = ""
    why: tuple[str, ...] = ()
    gone: bool = False
    unclaimed: str = ""
    in_no_copy: str = ""
    by_hand: str = ""
    clocks: str = ""
    next: tuple[str, ...] = ()

    @property
    def irreversible(self) -> bool:
        """Whether this can't be undone: an end of what is there, and a stop that kills something."""
        return not self.gone and (self.verb != "stopped" or bool(self.dies))

    @property
    def shown(self) -> str:
        """`box box-0 (p-7f3k)`."""
        return f"{self.what} {self.name}" + (f" ({self.native_id})" if self.native_id else "")


@dataclass(frozen=True)
class CellChange:
    """What becomes of a cell by this change. `box`: where it is to run."""

    name: str
    change: Change
    box: str = ""
    why: str = ""


@dataclass(frozen=True)
class SettingChange:
    """An input that changes, in words, before and after. `of`: the boxes, volumes or the sweep that it belongs to."""

    what: str
    before: str
    after: str
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Money:
    """USD. `per_hour`, `so_far`, `idle`: now; `per_day`, `per_month`: if all is kept as it is, volumes included.

    `adds`, `saves`: per hour, by this change; `unknown`: boxes whose price is not known before they are rented;
    `volumes`: a month, by this change; `incomplete`: the figures of now are lower bounds.
    """

    per_hour: float = 0.0
    so_far: float = 0.0
    idle: float = 0.0
    per_day: float = 0.0
    per_month: float = 0.0
    adds: float = 0.0
    saves: float = 0.0
    volumes: float = 0.0
    unknown: tuple[str, ...] = ()
    incomplete: bool = False
    at_the_end: float | None = None
    lines: tuple[str, ...] = ()

    @property
    def after(self) -> float:
        """USD per hour once the change is made."""
        return max(self.per_hour + self.adds - self.saves, 0.0)


@dataclass(frozen=True)
class Review:
    """All of it. `code`: may it go on: 0 yes, 1 no, 2 could not tell; `against`: why it may not.

    `live`: what is there now; `lines`: each operation of the engine's diff; `rents`: what each new box is;
    `settings`: each input that changes; `digest`: of the change (`sweepstack.review.digest`), None where the
    preview is refused, so that the change is not known; `unlocks`: what it clears for a later destroy; `left`:
    volumes that leave the state and survive; `away`: boxes that are gone from their platform, whatever this change
    does; `refusals`: why the preview failed, in the words of the engine and the provider; `problems`: what could
    not be told.
    """

    live: Live
    destroy: bool
    code: int
    digest: str | None
    against: tuple[str, ...] = ()
    endings: tuple[PlannedEnd, ...] = ()
    unlocks: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    updates: int = 0
    lines: tuple[str, ...] = ()
    rents: tuple[str, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    changes: tuple[CellChange, ...] = ()
    base_changes: tuple[CellChange, ...] = ()
    money: Money = field(default_factory=Money)
    facts: tuple[LiveFact, ...] = ()
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    expected: str = ""
    next: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What was reviewed."""
        return f"pulumi {'destroy' if self.destroy else 'up'} --stack {self.live.view.stack}"

    @property
    def ended(self) -> tuple[PlannedEnd, ...]:
        """Boxes and volumes that are destroyed by this change, replaced ones too."""
        return tuple(one for one in self.endings if one.verb != "stopped" and not one.gone)

    @property
    def irreversible(self) -> tuple[PlannedEnd, ...]:
        """All that this change does and that can't be undone."""
        return tuple(one for one in self.endings if one.irreversible)

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `sweepctl review --json`."""
        live, view = self.live, self.live.view
        rest = [one for one in view.cells if one.state != "verified"]
        return {
            "stack": view.stack,
            "command": self.command,
            "may_go_on": {MAY_GO_ON: "yes", MAY_NOT: "no", UNTOLD: "unknown"}[self.code],
            "exit_code": self.code,
            "digest": self.digest,
            "expected": self.expected or None,
            "against": list(self.against),
            "destroys": len(self.ended),
            "endings": [
                asdict(one)
                | {"lost": [cell_json(cell, one.name) for cell in one.lost], "irreversible": one.irreversible}
                for one in self.endings
            ],
            "unlocks": list(self.unlocks),
            "volumes_left": list(self.left),
            "boxes_gone": list(self.away),
            "makes": list(self.makes),
            "updates": self.updates,
            "lines": list(self.lines),
            "rents": list(self.rents),
            "settings": [asdict(one) for one in self.settings],
            "evidence": view.evidence or None,
            "receipt": view.receipt,
            "cells": {
                "verified": view.verified,
                "total": len(view.cells),
                "rest": [cell_json(CellLine(one.name, one.state, one.note), one.box or "") for one in rest],
            },
            "cell_changes": [vars(change) for change in self.changes],
            "base": {"revision": live.base, "cell_changes": [vars(change) for change in self.base_changes]}
            if live.base
            else None,
            "money": asdict(self.money) | {"after": self.money.after},
            "approvals": [
                one.as_json() | {"expired": one.approval.expires <= live.snapshot.now} for one in live.approvals
            ],
            "facts": [one.model_dump(mode="json") for one in self.facts],
            "refusals": list(self.refusals),
            "warnings": list(self.warnings),
            "unknown": live.unknown,
            "notes": list(live.notes),
            "problems": list(self.problems),
            "next": list(self.next),
        }
