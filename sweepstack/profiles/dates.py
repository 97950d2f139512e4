"""When a fact of a profile was checked, and how many months ago. `today` is the one clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

UNVERIFIED = "unverified"
"""The stamp of a fact that was never checked."""
NEVER = "never"
MONTHS = 6
"""A fact that is older than so many months is stale."""
_STAMP = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?")


def today() -> date:
    """The day, in UTC. All that asks how old a fact is takes it from here, so that a test can set it in one place."""
    return datetime.now(UTC).date()


def month_of(stamp: str) -> str:
    """`2026-06` of `2026-06` and of `2026-06-14`; another word stays."""
    return stamp[:7] if _STAMP.fullmatch(stamp) else stamp


def age_in_months(stamp: str, day: date) -> int | None:
    """Whole months of the calendar from the stamp to `day`; None for one that is no date."""
    match = _STAMP.fullmatch(stamp)
    return (day.year - int(match[1])) * 12 + day.month - int(match[2]) if match else None


def _read(value: Any, word: str) -> Any:
    """A month or a day that there is, and that has begun. A clock that was never set (1970) proves nothing."""
    match = _STAMP.fullmatch(value) if isinstance(value, str) else None
    try:
        at = date(int(match[1]), int(match[2]), int(match[3] or 1)) if match else None
    except ValueError:
        at = None
    day = today()
    if value != word and (at is None or (at > day + timedelta(days=1) and day.year >= 2026)):
        raise PydanticCustomError(
            "stamp", "{text}", {"text": f"expected YYYY-MM or YYYY-MM-DD, not ahead of today, or {word}"}
        )
    return value


Stamp = Annotated[str, BeforeValidator(lambda value: _read(value, UNVERIFIED))]
Proved = Annotated[str, BeforeValidator(lambda value: _read(value, NEVER))]


def source_of(fact: str, stamps: Mapping[str, str], sources: Mapping[str, str]) -> str:
    """Where a fact comes from: its own source, else that of all facts of its month; "" for one without."""
    stamp = stamps.get(fact, UNVERIFIED)
    return sources.get(fact) or sources.get(stamp) or sources.get(month_of(stamp)) or ""


def source_problems(stamps: Mapping[str, str], sources: Mapping[str, str]) -> list[str]:
    """Dated facts without a source, and sources of nothing."""
    bare = sorted(
        {
            month_of(stamp)
            for fact, stamp in stamps.items()
            if stamp != UNVERIFIED and not source_of(fact, stamps, sources)
        }
    )
    used = {*stamps, *stamps.values(), *map(month_of, stamps.values())}
    return [
        *(f'sources lacks {month}; write {month}: "where the facts with that stamp come from"' for month in bare),
        *(
            f"sources.{name} is neither a fact that stamps names nor a month in it; take it out"
            for name in sources
            if name not in used
        ),
        *(
            f"sources.{name} is empty; write whose pages or whose account say so"
            for name, said in sources.items()
            if not said.strip()
        ),
    ]
