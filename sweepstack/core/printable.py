"""Makes text from files, boxes and APIs safe to print: no control codes, nothing invisible."""

from __future__ import annotations

import unicodedata

MESSAGE_SHOWN = 32
"""The exit code of a program that has said why it failed. The engine's language host knows it from its own: with any
other, and with `pulumi.RunError`, it adds "an unhandled error occurred" to the message."""


def visible(text: str, keep: str = "") -> str:
    r"""`text` with each character that can't be seen (control, format, odd space) as `\u{200b}`. `keep`: not those."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else f"\\u{{{ord(char):x}}}" for char in text)


def foreign_letters(text: str) -> tuple[str, str]:
    r"""For words that are plain ASCII when spelled right: `text` with all else as `\u{455}`, and what those are called.

    `usd` written with a Cyrillic letter looks the same as without: the message must not.
    """

    foreign = dict.fromkeys(char for char in text if not char.isascii())
    shown = "".join(visible(char) if char.isascii() else f"\\u{{{ord(char):x}}}" for char in text)
    names = [f"\\u{{{ord(char):x}}} is {unicodedata.name(char, 'a character without a name')}" for char in foreign]
    return shown, ", ".join(names[:3])


def printable(name: str, limit: int = 80) -> str:
    """A name from a file, safe for a terminal and for a record."""
    if name.isprintable() and len(name) <= limit:
        return name
    clean = "".join(char if char.isprintable() else "?" for char in name[: limit + 1])
    return clean if len(clean) <= limit else clean[:limit] + "…"
