"""What a section of a page is made of, as plain values: the page escapes each text in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sweepstack.onbox.common.dataclass import dataclass, field

Tone = Literal["plain", "good", "warn", "bad"]


@dataclass(frozen=True)
class Text:
    """A paragraph. `tone`: how it is marked; a word of it says the same, colour alone tells nothing."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Facts:
    """Names with values, as a list."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Items:
    """Statements below each other. `caption`: what they are; shown where the list is `folded` (closed until opened)."""

    caption: str
    items: Sequence[str]
    folded: bool = False


@dataclass(frozen=True)
class Code:
    """Lines that a person copies, such as the next commands."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of text under headers; each row as long as the headers. `caption`: what it shows, in a few words.

    `find`: the field of the page hides the rows that do not hold what is typed. `right`: columns of numbers; `mono`:
    columns of digests and commands. `folded`: closed until it is opened (printed open). `marked`: rows that stand out;
    a word in them says why. `keys`: column → what a script sorts its rows by, where that is not their text.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    find: bool = True
    right: frozenset[int] = frozenset()
    mono: frozenset[int] = frozenset()
    folded: bool = False
    marked: frozenset[int] = frozenset()
    keys: Mapping[int, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Html:
    """HTML that its caller wrote: it stands in the page as it is. Each text in it is escaped already (`page.said`)."""

    html: str


Block = Text | Facts | Items | Code | Table | Html


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    blocks: Sequence[Block]
