"""What a platform itself says that it billed for one box."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Billed:
    """`usd`: in all, of which `traffic` is for bytes over the network. `tag`: the box's, "" where the bill has none."""

    native_id: str
    usd: float
    traffic: float = 0.0
    tag: str = ""
