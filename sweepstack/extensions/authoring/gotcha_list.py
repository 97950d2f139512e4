"""Every gotcha that is known: those of the profiles, and the further ones of docs/failure-modes.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from sweepstack.core.paths import shipped
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.profiles.load import FOLDER, load_profile, platforms

UNIVERSAL, LETTER = "universal", "U"
PAGE = shipped("docs") / "failure-modes.md"
"""The table of all failures, a row each: id, what goes wrong, prevented or detected or told, and where."""
ROW = re.compile(r"^\| ([A-Z][A-Z0-9-]+) \| (.+?) \| (?:prevented|detected|told) \| .+ \|$", re.MULTILINE)
_NUMBERED = re.compile(r"([A-Z][A-Z0-9]*?)(\d+)")
_WORD = re.compile(r"[a-z0-9_./-]{3,}")
_COMMON = frozenset(
    re.findall(r"\S+", "and are but for from has have its not that the then this was which with you your")
)
NEAR, LEAST, FEWEST = 0.5, 4, 3
"""So much of the shorter one's words has the other one, too, and so many: they may be one. Of one that has no more than
`FEWEST`: all."""
_THING = re.compile(r"[a-z][a-z./-]*[0-9_][a-z0-9_./-]*")
"""A thing's own name, with a digit or an underscore: `docker0`, `nccl_socket_ifname`."""
RARE = 2
"""Two things in common, which so many gotchas have at most: they may be one, however else each is told."""


@dataclass(frozen=True)
class Gotcha:
    """One gotcha. `platform`: whose, or `universal`; `text`: symptom → cause → fix, or what goes wrong alone."""

    id: str
    platform: str
    text: str


def known_gotchas(folder: Path = FOLDER, page: Path = PAGE) -> list[Gotcha]:
    """All of them, by platform; the universal ones last. Raises ConfigError for a profile that does not load."""
    found = [Gotcha(one.id, name, one.text) for name in platforms(folder) for one in load_profile(name, folder).gotchas]
    letters = {letter: one.platform for one in reversed(found) if (letter := letters_of([one.id]))}
    there = {one.id for one in found}
    text = page.read_text("utf-8") if page.is_file() else ""  # an installed wheel has none
    rows = (Gotcha(row[1], letters.get(letters_of([row[1]]), UNIVERSAL), row[2]) for row in ROW.finditer(text))
    return sorted([*found, *(row for row in rows if row.id not in there)], key=lambda one: one.platform == UNIVERSAL)


def letters_of(ids: Iterable[str]) -> str:
    """The letters before the numbers of these ids, those of most; "" where none has a number."""
    letters = Counter(match[1] for name in ids if (match := _NUMBERED.fullmatch(name)))
    return letters.most_common(1)[0][0] if letters else ""


def next_id(letters: str, pages: Iterable[str]) -> str:
    """The next free number behind these letters. One that a page names anywhere was given once, and is not again."""
    given = (int(number) for page in pages for number in re.findall(rf"\b{letters}(\d+)\b", page))
    return f"{letters}{max(given, default=0) + 1}"


def near(text: str, others: Sequence[Gotcha]) -> list[Gotcha]:
    """Those that say much the same, or are about the same things, the nearest first."""
    words, theirs = _words(text), [_words(other.text) for other in others]
    seen = Counter(word for each in theirs for word in each)
    things = {word for word in words if _THING.fullmatch(word) and seen[word] <= RARE}
    rated = [
        (max(_shared(words, each), NEAR if len(things & each) > 1 else 0.0), other)
        for each, other in zip(theirs, others, strict=True)
    ]
    return [other for rate, other in sorted(rated, key=lambda pair: -pair[0]) if rate >= NEAR]


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip("./-") for word in _WORD.findall(text.lower())) - _COMMON


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    both, shorter = len(one & other), min(len(one), len(other))
    return both / shorter if both >= max(FEWEST, min(LEAST, shorter)) else 0.0
