"""The one table of old spellings of commands and options.

They work until 0.2. No help, no completion and no page shows them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

UNTIL = "0.2"
NOW = {
    "curves": "results --plot",
    "exec": "ssh",
    "forward BOX PORT": "ssh BOX --forward PORT",
    "gotcha list": "profile explain --gotchas",
    "gotcha propose": "profile new --gotcha",
    "holders": "doctor",
    "next": "status --next",
    "profile list": "profile show",
    "profile probe BOX": "profile explain --box BOX",
    "profile stale": "profile check --old",
    "provenance": "show",
    "receipt": "show",
    "smoke": "doctor --smoke",
    "approve --cosign": "cosign",
    "cosign --approval": "cosign",
    "approve --revoke": "revoke",
    "confirm-gone --never-rented": "confirm never-rented",
    "confirm-gone --peer": "confirm peer",
    "confirm-gone": "confirm gone",
    "trust-host --fingerprint": "confirm host --saw",
    "trust-host": "confirm host",
    "worker-ended": "confirm worker",
}
"""Old spelling → new one, in the order in which they are looked up, each in what came of those before. On the left
stands a command, and what else picks the row: an option anywhere on the line (such a row stands before the one of the
command alone), or names of arguments in capitals. The right side takes their place: the option's words stand where the
option stood, whose value stays; the arguments are filled in; the rest of the line follows."""


def rewritten(words: Sequence[str]) -> list[str]:
    """The words after `sweepctl` as they are typed now. Words after `--` are another program's, and stay."""
    now = list(words)
    for old, new in NOW.items():
        now = _by(old, new, now) or now
    return now


def told(words: Sequence[str]) -> str:
    """What a person who typed an old spelling is told."""
    return f"note: this is spelled `{shlex.join(['sweepctl', *words])}` now; the old spelling works until {UNTIL}"


def _by(old: str, new: str, words: list[str]) -> list[str] | None:
    """The words by one row; None where it doesn't fit."""
    named = old.split()
    command = [word for word in named if word.islower() and not word.startswith("-")]
    if words[: len(command)] != command:
        return None
    end = words.index("--") if "--" in words else len(words)
    rest, beyond = words[len(command) : end], words[end:]
    filled: dict[str, str] = {}
    for word in named[len(command) :]:
        at = _place(rest, word)
        if at is None:
            return None
        if word.isupper():
            filled[word] = rest.pop(at)
            continue
        options = [one for one in new.split() if one.startswith("-")]
        _, joined, value = rest[at].partition("=")
        rest[at : at + 1] = [*options, *([value] if joined else [])]
        new = " ".join(one for one in new.split() if not one.startswith("-"))
    return [*(filled.get(word, word) for word in new.split()), *rest, *beyond]


def _place(rest: list[str], word: str) -> int | None:
    """Where the option is, or the next argument."""
    if word.startswith("-"):
        return next((at for at, one in enumerate(rest) if one.partition("=")[0] == word), None)
    takes = ("--stack", "-s")
    return next(
        (at for at, one in enumerate(rest) if not one.startswith("-") and (at == 0 or rest[at - 1] not in takes)), None
    )
