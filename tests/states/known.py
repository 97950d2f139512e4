"""Dead ends that are known and not mended yet: each a row with its reason. One that is mended has to go: the test of a
known dead end that finds none fails."""

from __future__ import annotations

from fnmatch import fnmatchcase

KNOWN: dict[tuple[str, str], str] = {}
"""(starting points, losses), as patterns → why no way leads out."""


def why_not(start: str, names: tuple[str, ...]) -> str:
    """Why no way leads out of there, by a row of KNOWN; "" where one has to."""
    for (starts, loss), why in KNOWN.items():
        if fnmatchcase(start, starts) and any(fnmatchcase(name, loss) for name in names):
            return why
    return ""
