"""What a person has to write and a command keeps on record: `--reason` and `--saw`."""

from __future__ import annotations

from sweepstack.cli.output import Unsure

PLACES = frozenset({"…", "...", "what the console shows"})
"""What commands that are printed hold in its place. A line that is pasted as it stands says nothing."""


def own_words(option: str, typed: str) -> str:
    """The text on one line, "" for none. Raises Unsure for what only holds the place of a text."""
    words = " ".join(typed.split())
    if words in PLACES:
        what = "what you saw" if option == "--saw" else "why"
        raise Unsure(f'{option} "{words}": write {what}; "{words}" is only the place for it')
    return words
