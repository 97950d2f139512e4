"""A review as one HTML page, for an artifact of a pipeline or a browser."""

from __future__ import annotations

from sweepstack.report import blocks as shown
from sweepstack.report import page as html
from sweepstack.review.model import MAY_GO_ON, MAY_NOT, Review
from sweepstack.review.words import FOLD, Block, Commands, Grid, Heading, Line, Listing, Quoted, counted, written


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
            sections[-1][1].append(_block(block, tone))
    return html.page(title.text, [shown.Section(*section) for section in sections])


def _tone(review: Review) -> shown.Tone:
    """Green only where nothing ends: an end that is cleared is an end."""
    if review.code == MAY_NOT:
        return "bad"
    return "good" if review.code == MAY_GO_ON and not review.irreversible else "warn"


def _block(block: Block, tone: shown.Tone) -> shown.Block:
    if isinstance(block, Line):
        return shown.Text(block.text, tone if block.strong else "plain")
    if isinstance(block, Quoted):
        return shown.Code(block.text.splitlines())
    if isinstance(block, Commands):
        return shown.Code(block.lines)
    if isinstance(block, Listing):
        return shown.Items(counted(len(block.items), block.noun), block.items, folded=len(block.items) > FOLD)
    if isinstance(block, Grid):
        caption = f"{counted(len(block.rows), block.noun)} {block.of}".strip()
        return shown.Table(caption, block.headers, block.rows, find=False, folded=len(block.rows) > FOLD)
    raise TypeError(f"{type(block).__name__} is no part of a section")
