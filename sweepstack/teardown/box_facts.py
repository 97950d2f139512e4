"""The facts of a box for the check of its end: its ids, its verb, and what its records must name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sweepstack.billing.cost import BoxCosts
from sweepstack.core.box_end import Moves


@dataclass(frozen=True)
class BoxFacts:
    """What the state remembers of a box: enough to end it weeks later from another computer."""

    identity: str
    evidence: str
    name: str
    native_id: str
    account: str
    generation: int
    verb: str
    kills: tuple[str, ...]
    keeps: tuple[str, ...]
    roster_digest: str
    artifacts_digest: str | None = None
    price_per_hour: float | None = None
    created_at: datetime | None = None
    costs: BoxCosts | None = None
    moves: Moves | None = None
    """When the address of its host changes."""
    policies: tuple[str, ...] = ()
    """The policies that the state has (`sweepstack.core.policy_text`), as text: that of the entry, or of all."""
    urn: str = ""
    """Of the box, or of a resource on it, as the engine calls it now; "" where that is not known."""


def in_entry(policy: str | None) -> tuple[str, ...]:
    """The policies of one entry of the state."""
    return () if policy is None else (policy,)
