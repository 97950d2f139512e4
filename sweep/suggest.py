"""Near misses: what a person probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known word nearest to `word`, or None where none is near. Upper and lower case don't count."""
    import difflib  # only ever needed on the way to an error

    by_folded = {candidate.casefold(): candidate for candidate in known}
    swapped = [candidate for candidate in by_folded if sorted(candidate) == sorted(word.casefold())]
    found = swapped or difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, or nothing."""
    near = closest(word, known)
    return f'; did you mean "{near}"?' if near is not None else ""
