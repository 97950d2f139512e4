"""Names of sealed files, which work on every store and file system, whatever its case rules.

A part of a path with characters that some store can't hold (a tab, a line break, a backslash, bytes that are no UTF-8),
or that differs from another file's name only by case, is sealed as `%_` and its bytes, special ones as `%09`; a path
too long for that as `%_` and its SHA-256. `unquote_to_bytes(part[2:])` gives a part back; the manifest's `names` has
all: sealed -> as written, percent-encoded."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection
from urllib.parse import quote_from_bytes

from sweepstack.onbox.common.canonical import sha256_hex

MARK = "%_"
MAX_PATH, MAX_PART = 1024, 255
LOWER = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")


def plain(path: str, taken: Collection[str] = ()) -> str:
    """The name under which a file is sealed: `path` itself if possible. `taken`: the folded names of other files."""
    named = legible(path)
    if _fits(named) and fold(named) not in taken:
        return named
    above, slash, last = named.rpartition("/")
    if fold(named) in taken:  # its capitals are written as bytes, which makes it differ
        lower = above + slash + MARK + "".join(chr(b) if b in LOWER else f"%{b:02X}" for b in os.fsencode(last))
        if _fits(lower) and fold(lower) not in taken:
            return lower
    return MARK + sha256_hex(os.fsencode(path))


def legible(path: str) -> str:
    """A path as text that every record can hold: each part as it is if possible, else escaped."""
    return "/".join(part if _is_plain(part) else escaped(part) for part in path.split("/"))


def escaped(part: str) -> str:
    """One part of a path as plain ASCII, with special bytes as `%09`."""
    return MARK + quote_from_bytes(os.fsencode(part), safe=" !#$&'()+,;=@[]^{}~`")


def original(path: str) -> str:
    """A file's own path in the form of the manifest's `names`: percent-encoded."""
    return quote_from_bytes(os.fsencode(path))


def fold(path: str) -> str:
    """A key that is equal for names which some file system takes for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _is_plain(part: str) -> bool:
    try:
        part.encode("utf-8")
    except UnicodeEncodeError:
        return False
    odd = "\\" in part or any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in part)
    return not odd and not part.startswith(MARK)


def _fits(path: str) -> bool:
    return len(path.encode()) <= MAX_PATH and all(len(part.encode()) <= MAX_PART for part in path.split("/"))
