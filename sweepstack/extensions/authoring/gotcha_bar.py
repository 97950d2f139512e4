"""What a new gotcha must have: root cause, reproduction, and nothing of one sweep alone; no secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher

from sweepstack.config.secrets import is_secret_value, without_given
from sweepstack.evidence.box_logs import SHORTEST_SECRET, masked
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.units import count

FIELDS = ("symptom", "cause", "fix", "reproduction")
LEAST = {"symptom": 3, "cause": 4, "fix": 2, "reproduction": 2}
"""Words that each has at least."""
_NO_CAUSE = re.compile(
    r"\b(unknown|unclear|not known|no idea|don'?t know|maybe|perhaps|probably|possibly|somehow|for some reason"
    r"|random(ly)?|flaky|went away|after (a|i|the) (retry|retried|restart))\b|\?",
    re.IGNORECASE,
)
_TRY_AGAIN = frozenset(
    re.findall(r"\S+", "again and box it job just re-run reboot rerun restart retry run the then try")
)
_COMMAND = re.compile(r"`[^`]+`|(?:^|\n)\s*[$#>] ?\S")
_OF_ONE_USER = (
    ("a home folder", re.compile(r"(?<![\w.-])/(?:home|Users)/[\w.-]+")),
    ("an address", re.compile(r"(?<![\d.])(?!127\.|0\.0\.0\.0|169\.254\.)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")),
    ("a box's name", re.compile(r"\bbox-\d+\b")),
    ("an e-mail address", re.compile(r"\b[\w.+-]+@[\w-]+\.[a-z]{2,}\b(?!:)")),
)
_SAME = 0.8


@dataclass(frozen=True)
class Proposal:
    """One gotcha as a person proposes it. `reproduction`: the command that shows it, or the lines of a log."""

    symptom: str
    cause: str
    fix: str
    reproduction: str

    @property
    def parts(self) -> tuple[str, str, str]:
        """Symptom, cause and fix, each in one line, as tables and quotations can hold them."""
        symptom, cause, fix = (
            " ".join(part.replace('"', "'").split()) for part in (self.symptom, self.cause, self.fix)
        )
        return symptom.rstrip(". "), cause.rstrip(". "), fix.rstrip(". ")

    @property
    def text(self) -> str:
        """As a profile has it."""
        return " → ".join(self.parts)


def below_the_bar(proposal: Proposal, *, log: bool, names: Mapping[str, str]) -> list[str]:
    """What keeps it out, each as a sentence; none where it holds. `log`: the reproduction is lines of a log, which may
    name what they like. `names`: names of this project → what each is."""
    problems = [
        f"{name}: say more than {count(len(text.split()), 'word')}"
        for name in FIELDS
        if len((text := getattr(proposal, name)).split()) < LEAST[name]
    ]
    problems += [f"{name}: leave | out, it stands in a table" for name in FIELDS[:3] if "|" in getattr(proposal, name)]
    problems += [
        f"{name}: leave → out, it parts symptom, cause and fix" for name in FIELDS[:3] if "→" in getattr(proposal, name)
    ]
    if doubt := _NO_CAUSE.search(proposal.cause):
        problems.append(f'cause: "{doubt[0]}" is no root cause; say by which mechanism the symptom comes about')
    alike = SequenceMatcher(None, proposal.symptom.lower(), proposal.cause.lower(), autojunk=False).ratio()
    if alike >= _SAME:
        problems.append("cause: it says the symptom again; say by which mechanism it comes about")
    if not set(re.findall(r"[a-z-]+", proposal.fix.lower())) - _TRY_AGAIN:
        problems.append("fix: to try again is no fix: what has to change, so that it does not come back?")
    if not log and not _COMMAND.search(proposal.reproduction):
        problems.append(
            "reproduction: write the command that shows it, behind `$ ` or between backticks; or give its log by --log"
        )
    for field in FIELDS[:3] if log else FIELDS:
        problems += _not_general(field, getattr(proposal, field), names)
    return problems


def without_names(text: str, names: Mapping[str, str]) -> str:
    """The text with `…` in place of what is of one user or sweep alone."""
    for _, found in _of_one(text, names):
        text = text.replace(found, "…")
    return text


def _not_general(field: str, text: str, names: Mapping[str, str]) -> list[str]:
    found = dict.fromkeys(_of_one(text, names))
    return [f"{field}: {one} is {what}, which no other user has; write what all have there" for what, one in found]


def _of_one(text: str, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(what it is, the words) of each name of one user or sweep in the text, the longest names first."""
    for name in sorted(names, key=len, reverse=True):
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
            yield names[name], name
    for what, pattern in _OF_ONE_USER:
        for match in pattern.finditer(text):
            yield what, match[0]


def hidden_values(environ: Mapping[str, str], named: Iterable[str]) -> list[bytes]:
    """The values that must not be shown, the longest first: of the variables that are named, and of those with a
    secret's name. Only in memory."""
    wanted = set(named)
    values = {value for name, value in environ.items() if name in wanted or is_secret_value(name, value)}
    return sorted((value.encode() for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True)


def without_values(proposal: Proposal, hidden: list[bytes]) -> Proposal:
    """The same with secrets masked: those values, and what has the form of a secret or is given to one."""
    cleaned = {
        name: without_given(masked(getattr(proposal, name).encode(), hidden, cut=False).decode("utf-8", "replace"))
        for name in FIELDS
    }
    return replace(proposal, **cleaned)
