"""Checks values of a platform's JSON before they are used."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any


def instant(value: Any) -> datetime | None:
    """Seconds since 1970 as a time; None for anything else."""
    seconds = number(value)
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def number(value: Any, *, least: float = 0.0) -> float | None:
    """The value when it is a finite number not below `least`, else None; JSON's `true` and texts are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        return None
    return float(value)


def text(row: Any, key: str) -> str:
    """The text that a JSON object has under `key`; "" when it has none, or when `row` is no object."""
    found = row.get(key) if isinstance(row, dict) else None
    return found if isinstance(found, str) else ""


def identifier(row: Any) -> str:
    """The id of a JSON object; "" when it can't be read."""
    return text(row, "id")


def moment(value: Any) -> datetime | None:
    """The time that an ISO 8601 text names; None when it can't be read or has no UTC offset."""
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else None
