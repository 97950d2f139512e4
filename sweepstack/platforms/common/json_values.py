"""Checks values of a platform's JSON before they are used."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any, *, least: float = 0.0) -> float | None:
    """The value when it is a finite number not below `least`, else None; JSON's `true` and texts are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        return None
    return float(value)
