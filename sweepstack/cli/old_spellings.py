"""The one table of old spellings of commands and options.

They work until 0.2. No help, no completion and no page shows them.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence

UNTIL = "0.2"
_VARIABLE = re.compile(r"SWEEPSTACK_[A-Z_]+=")
NOW = {
    "curves": "results --as plot",
    "exec": "ssh",
    "forward BOX PORT": "ssh BOX --forward PORT",
    "gotcha list": "profile explain --gotchas",
    "gotcha propose": "profile new --gotcha",
    "holders": "doctor",
    "new": "init",
    "next": "status --next",
    "patrol": "status --probe",
    "profile list": "profile show",
    "profile probe BOX": "profile explain --box BOX",
    "profile stale": "profile check --old",
    "provenance": "show",
    "publish URI": "pull --to URI",
    "publish --access": "pull --access",
    "publish": "pull --to=",
    "receipt": "show",
    "report": "results --as html",
    "results --csv": "* --as=csv",
    "results --markdown": "* --as=markdown",
    "results --plot": "* --as=plot",
    "smoke": "doctor --smoke",
    "approve --cosign": "cosign",
    "cosign --approval": "cosign",
    "approve --revoke": "revoke",
    "approve|give-up --waive": "give-up cell/",
    "approve|give-up --abandon": "give-up data/",
    "approve|give-up --waive-unclaimed": "give-up unclaimed/",
    "approve|give-up --accept-fact": "give-up fact/",
    "approve|give-up|finish --receipt": "*",
    "policy --policy": "*",
    "approve|give-up|finish|cosign|policy|show --signing-key": "SWEEPSTACK_SIGNING_KEY= *",
    "approve|give-up|finish|cosign|policy --signer": "SWEEPSTACK_SIGNER= *",
    "confirm-gone --never-rented": "confirm never-rented",
    "confirm-gone --peer": "confirm peer",
    "confirm-gone": "confirm gone",
    "trust-host --fingerprint": "confirm host --saw",
    "trust-host": "confirm host",
    "worker-ended": "confirm worker",
    "place --next": "place next",
    "place --clear": "place clear",
    "wait --for": "*",
    "review --md": "* --as=markdown",
    "review --html": "* --as=html",
    "retry --from-start": "* --from=start",
    "retry --from-set": "* --from=set",
    "logs --setup": "* --of=setup",
    "logs --runner": "* --of=runner",
    "show -o --export": "* -o",
    "show --output --export": "* --output",
    "show --export": "* -o -",
    "confirm WHAT BOX --host": "confirm WHAT BOX",
    "ci WHAT --into": "ci WHAT",
    "ci WHAT --from": "ci WHAT",
    "finish --accept-fact": "* fact/",
    "profile explain --before-stop": "* --stop=before",
    "profile explain --after-stop": "* --stop=after",
    "profile explain --platform": "*",
    "profile new --symptom": "* --with symptom=",
    "profile new --cause": "* --with cause=",
    "profile new --fix": "* --with fix=",
    "profile new --reproduction": "* --with reproduction=",
    "profile new --log": "* --with log=",
    "profile new --unlike": "* --with unlike=",
    "profile new --replaces": "* --with replaces=",
    "profile new --platform": "*",
}
"""Old spelling → new one, in the order in which they are looked up, each in what came of those before. On the left
stands a command, or several, and what else picks the row: an option anywhere on the line (such a row stands before the
one of the command alone), or names of arguments in capitals. The right side takes their place, `*` for the command as
it is: the option's words stand where the option stood, and its value stays, behind a word with `/` or `=` at its end
without a space, or is what a variable of the environment is set to; the arguments are filled in; the rest of the line
follows. A row doesn't fit where its option with a value stands on the line already.
"""


def rewritten(words: Sequence[str]) -> list[str]:
    """The words after `sweepctl` as they are typed now, variables of the environment (NAME=value) before them. Words
    after `--` are another program's, and stay."""
    now = list(words)
    for old, new in NOW.items():
        while (by := _by(old, new, now)) is not None:
            now = by
    return now


def variables(words: Sequence[str]) -> int:
    """How many words at the beginning set a variable of the environment."""
    return sum(1 for _ in itertools.takewhile(_VARIABLE.match, words))


def told(words: Sequence[str]) -> str:
    """What a person who typed an old spelling is told."""
    sets = variables(words)
    line = shlex.join([*(["env"] if sets else []), *words[:sets], "sweepctl", *words[sets:]])
    return f"note: this is spelled `{line}` now; the old spelling works until {UNTIL}"


def _by(old: str, new: str, words: list[str]) -> list[str] | None:
    """The words by one row; None where it doesn't fit."""
    named, sets = old.split(), variables(words)
    command = [word for word in named if word.islower() and not word.startswith("-")]
    typed = words[sets : sets + len(command)]
    if len(typed) < len(command) or not all(word in one.split("|") for word, one in zip(typed, command, strict=True)):
        return None
    end = words.index("--") if "--" in words else len(words)
    before, rest, beyond = words[:sets], words[sets + len(command) : end], words[end:]
    filled: dict[str, str] = {}
    for word in named[len(command) :]:
        at = _place(rest, word)
        if at is None:
            return None
        if word.isupper():
            filled[word] = rest.pop(at)
            continue
        options = [one for one in new.split() if one.startswith("-")]
        if any(_named(one) == _named(other) for one in options if "=" in one for other in rest):
            return None  # two old spellings that were refused together
        glued = next((one for one in new.split() if one.endswith(("/", "="))), "")
        _, joined, value = rest.pop(at).partition("=")
        if glued and not joined:
            value = rest.pop(at) if at < len(rest) else ""
        if _VARIABLE.match(glued):
            before.append(glued + value)
        else:
            rest[at:at] = [*options, *([glued + value] if glued or joined else [])]
        new = " ".join(one for one in new.split() if one not in options and one != glued)
    now = typed if new == "*" else [filled.get(word, word) for word in new.split()]
    return [*before, *now, *rest, *beyond]


def _named(word: str) -> str:
    return word.partition("=")[0]


def _place(rest: list[str], word: str) -> int | None:
    """Where the option is, or the next argument."""
    if word.startswith("-"):
        return next((at for at, one in enumerate(rest) if _named(one) == word), None)
    takes = ("--stack", "-s", "--access", "--host", "--saw", "--by", "--at", "--another", "--into", "--from")
    return next(
        (at for at, one in enumerate(rest) if not one.startswith("-") and (at == 0 or rest[at - 1] not in takes)), None
    )
