"""A review as a document: as Markdown for a comment on GitHub or GitLab, and as one HTML page.

The page is for an artifact of a pipeline or a browser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

from sweepstack.core.printable import visible
from sweepstack.onbox.common.units import count
from sweepstack.report import blocks as shown
from sweepstack.report import page as html
from sweepstack.review.model import MAY_GO_ON, MAY_NOT, Review
from sweepstack.review.words import FOLD, Block, Commands, Grid, Heading, Line, Listing, Quoted, written

MOST = 60_000
"""Characters of one text on a forge: GitHub takes 65,536 in a comment or an issue, and GitLab more."""
LONGEST = 600
"""Characters of one cell of a table."""
_MARK = "<!-- sweepctl "
_CODE = re.compile(r"(`[^`\n]+`)")
_REMARK = re.compile(r"\s{4,}\((.*)\)$")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9 ()._:/+,=%-]+")
_SPECIAL = re.compile(r"([\\*_\[\]~|#])")


def marker(stack: str, kind: str = "review") -> str:
    """The first line, which no other stack has: by it a pipeline finds the comment that it wrote before."""
    return f"{_MARK}{kind}: {quote(stack, safe='/')} -->"


def marked_stack(line: str, kind: str = "review") -> str | None:
    """The stack of a first line; None where it is no such line."""
    found = re.fullmatch(rf"{_MARK}{kind}: (\S+) -->", line)
    stack = unquote(found[1]) if found else ""
    return stack if found and marker(stack, kind) == line else None


def markdown(review: Review) -> str:
    """The whole comment. The five lines after the marker say whether anything dies, and whether it may go on."""
    blocks = written(review)
    for most in (1_000_000, 1000, 300, 100, 30, 10, 3, 0):
        text = _drawn(review, blocks, most)
        if len(text) <= MOST:
            return text
    return text[: MOST - 100] + "\n\n… cut: `sweepctl review --json` has all of it.\n"


def _drawn(review: Review, blocks: Sequence[Block], most: int) -> str:
    """`most`: entries of a list that are written; the others are counted."""
    lines = [marker(review.live.view.stack)]
    for index, block in enumerate(blocks):
        lines += _block(block, most, top=index == 0)
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _block(block: Block, most: int, *, top: bool) -> list[str]:
    if isinstance(block, Heading):
        return [f"{'##' if top else '###'} {_text(block.text)}"]
    if isinstance(block, Line):
        text = _text(block.text)
        # GitLab carries out a line that begins with a quick action (/merge), in the name of the token that posts it.
        text = f"\\{text}" if text.startswith("/") else text
        return [f"**{text}**" if block.strong else text]
    if isinstance(block, Quoted):
        return [_fenced(block.text[: max(most, 10) * 1000])]
    if isinstance(block, Commands):
        return [_fenced("\n".join(_REMARK.sub(r"    # \1", line) for line in block.lines), "sh")]
    if isinstance(block, Listing):
        return _folded([f"- {_text(item)}" for item in block.items], block.noun, most, [])
    head = ["| " + " | ".join(block.headers) + " |", "|" + "---|" * len(block.headers)]
    rows = ["| " + " | ".join([_name(row[0]), *map(_cell, row[1:])]) + " |" for row in block.rows]
    return _folded(rows, block.noun, most, head)


def _folded(rows: list[str], noun: str, most: int, head: list[str]) -> list[str]:
    shown = rows[:most]
    more = [f"… and {count(len(rows) - most, noun)} more: `sweepctl review --json`"] if len(rows) > most else []
    table = [*head, *shown] if shown else []
    if len(shown) <= FOLD:
        return [*table, *([""] if table and more else []), *more]
    return [
        f"<details><summary>{count(len(rows), noun)}</summary>",
        "",
        *table,
        "",
        *more,
        *([""] if more else []),
        "</details>",
    ]


def _fenced(text: str, language: str = "text") -> str:
    longest = max((len(found) for found in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text, keep=chr(10))}\n{fence}"


def _name(text: str) -> str:
    """A name as code; one that is no name is text."""
    return f"`{text}`" if _PLAIN_NAME.fullmatch(text) else _text(text)


def _cell(text: str) -> str:
    return _text(text if len(text) <= LONGEST else text[:LONGEST] + "…")


def _text(text: str) -> str:
    """Text of files, boxes and people: nothing of it is markup, a link, a mention or HTML."""
    parts = _CODE.split(visible(" ".join(text.split())))
    return "".join(part.replace("|", "\\|") if index % 2 else _plain(part) for index, part in enumerate(parts))


def _plain(text: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return escaped.replace("`", "\\`").replace("@", "@<!-- -->")


def page(review: Review) -> str:
    """The whole page, as text of UTF-8: the same parts as a comment has, and each list whole. No plot, so no script.

    The first heading, which is the title too, says whether anything dies.
    """
    title, *rest = written(review)
    if not isinstance(title, Heading):
        raise TypeError("a review begins with its headline")
    tone = _tone(review)
    sections: list[tuple[str, list[shown.Block]]] = [("In short", [])]
    for block in rest:
        if isinstance(block, Heading):
            sections.append((block.text, []))
        else:
            sections[-1][1].append(_html_block(block, tone))
    return html.page(title.text, [shown.Section(*section) for section in sections])


def _tone(review: Review) -> shown.Tone:
    """Green only where nothing ends: an end that is cleared is an end."""
    if review.code == MAY_NOT:
        return "bad"
    return "good" if review.code == MAY_GO_ON and not review.irreversible else "warn"


def _html_block(block: Block, tone: shown.Tone) -> shown.Block:
    if isinstance(block, Line):
        return shown.Text(block.text, tone if block.strong else "plain")
    if isinstance(block, Quoted):
        return shown.Code(block.text.splitlines())
    if isinstance(block, Commands):
        return shown.Code(block.lines)
    if isinstance(block, Listing):
        return shown.Items(count(len(block.items), block.noun), block.items, folded=len(block.items) > FOLD)
    if isinstance(block, Grid):
        caption = f"{count(len(block.rows), block.noun)} {block.of}".strip()
        return shown.Table(caption, block.headers, block.rows, find=False, folded=len(block.rows) > FOLD)
    raise TypeError(f"{type(block).__name__} is no part of a section")
