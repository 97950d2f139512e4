"""Lets a terminal without Unicode take what we print: `…` arrives as `...`, and no command fails."""

from __future__ import annotations

import codecs
import io
import sys

_HANDLER = "sweepctl-plain"
_PLAIN = {"…": "...", "–": "-", "—": "-", "→": "->", "×": "x", "±": "+-", "≤": "<=", "≥": ">=", "·": "-", "µ": "u"}
"""What else it has not becomes `?`."""


def is_narrow(stream: object) -> bool:
    """Whether it can't take every character."""
    encoding = getattr(stream, "encoding", None)
    try:
        return encoding is not None and codecs.lookup(encoding).name != "utf-8"
    except LookupError:
        return True


def widen() -> None:
    """Does it for stdout and stderr. Imports nothing that costs time; does nothing where they take Unicode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and is_narrow(stream):
            codecs.register_error(_HANDLER, _plain)
            stream.reconfigure(errors=_HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(_PLAIN.get(char, "?") for char in text), error.end
