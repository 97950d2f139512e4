"""Near misses: what a person probably meant."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable

_LONGEST = 64
_BEGINNING = 4
_MOST_KNOWN = 2000
"""Beyond these, looking for what is near takes longer than a person waits, and helps little."""
_LOOK_ALIKE = str.maketrans("oil", "011")
"""Letters that a person types for digits."""


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known word nearest to `word`, or None where none is near. The only one that begins with it is the nearest.
    One that only looks the same (O for 0, l for 1) comes first. Upper and lower case don't count."""
    if len(word) > _LONGEST:
        return None

    folded = word.casefold()
    by_folded = {candidate.casefold(): candidate for candidate in itertools.islice(known, _MOST_KNOWN)}
    alike = [one for one in by_folded if one.translate(_LOOK_ALIKE) == folded.translate(_LOOK_ALIKE)]
    swapped = [candidate for candidate in by_folded if sorted(candidate) == sorted(folded)]
    begun = [candidate for candidate in by_folded if len(word) >= _BEGINNING and candidate.startswith(folded)]
    found = (
        alike
        or swapped
        or (begun if len(begun) == 1 else [])
        or difflib.get_close_matches(folded, by_folded, n=1, cutoff=cutoff)
    )
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, or nothing."""
    near = closest(word, known)
    return f'; did you mean "{near}"?' if near is not None else ""
