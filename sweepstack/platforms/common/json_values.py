"""What a platform's JSON says, read without trust."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any, *, least: float = 0.0) -> float | None:
    """A finite number that is not below `least`, or None: JSON's true is none, and neither is a text."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        return None
    return float(value)
