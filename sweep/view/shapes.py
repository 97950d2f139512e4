"""What a picture of a sweep is made of: cells, boxes, gates, cost. Plain values, and how they look as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sweep.cost import Meter
from sweep.model import SETTLED
from sweep.scene import Stranger

Bills = Literal["yes", "nothing", "unknown"]


@dataclass(frozen=True)
class CellView:
    name: str
    state: str
    attempts: int
    box: str | None
    config_digest: str | None
    step: str = ""
    loss: str = ""
    note: str = ""


@dataclass(frozen=True)
class BoxView:
    name: str
    platform: str
    native_id: str
    phase: str
    price_per_hour: float | None
    cost: float | None
    age_seconds: float | None
    where: str
    idle: bool | None
    note: str = ""


@dataclass(frozen=True)
class GateView:
    box: str
    state: Literal["locked", "cleared"]
    receipt: str | None
    reasons: tuple[str, ...]
    way: str | None


@dataclass(frozen=True)
class SweepView:
    """What `sweepctl status` shows."""

    stack: str
    cells: tuple[CellView, ...]
    boxes: tuple[BoxView, ...]
    gates: tuple[GateView, ...]
    meter: Meter
    eta_seconds: float | None
    unknown: tuple[Stranger, ...]
    notes: tuple[str, ...]
    next: tuple[str, ...]
    bills: Bills
    receipt: str | None
    evidence: str | None

    @property
    def verified(self) -> int:
        """Cells that are verified."""
        return sum(cell.state == "verified" for cell in self.cells)

    @property
    def settled(self) -> bool:
        """Whether every cell is verified or waived, and there is one."""
        return bool(self.cells) and all(cell.state in SETTLED for cell in self.cells)

    def counts(self) -> dict[str, int]:
        """Cells by state, in the order of first appearance."""
        counts: dict[str, int] = {}
        for cell in self.cells:
            counts[cell.state] = counts.get(cell.state, 0) + 1
        return counts

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `sweepctl status --json`, and more fields."""
        return {
            "stack": self.stack,
            "cells": [vars(cell) for cell in self.cells],
            "boxes": [vars(box) for box in self.boxes],
            "gates": [vars(gate) | {"reasons": list(gate.reasons)} for gate in self.gates],
            "meter": vars(self.meter),
            "eta_seconds": self.eta_seconds,
            "unknown": [
                {key: value for key, value in vars(stranger).items() if key not in ("since", "proved")}
                for stranger in self.unknown
            ],
            "bills": self.bills,
            "receipt": self.receipt,
            "evidence": self.evidence,
            "notes": list(self.notes),
            "next": list(self.next),
        }
