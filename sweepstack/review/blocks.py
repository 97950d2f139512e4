"""The parts of a written review: a terminal, a comment and a page draw the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FOLD = 12
"""A list of more is folded in a comment and on a page."""


@dataclass(frozen=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True)
class Line:
    """One statement. `strong`: it decides whether a person may go on."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Listing:
    """Statements below each other. `noun`: what one of them is, for a list that is folded."""

    items: Sequence[str]
    noun: str


@dataclass(frozen=True)
class Grid:
    """A table; its first column holds names. `noun`: what a row is; `of`: which ones they are, as the caption says."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    noun: str
    of: str = ""


@dataclass(frozen=True)
class Quoted:
    """Another program's words, as they are."""

    text: str


@dataclass(frozen=True)
class Commands:
    """What to type next."""

    lines: Sequence[str]


Block = Heading | Line | Listing | Grid | Quoted | Commands
