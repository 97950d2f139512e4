"""The page of a review: what the comment says, in HTML that no text of a cell or a box can change."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.review.markdown import page
from sweepstack.review.model import Review
from sweepstack.review.words import FOLD, headline
from sweepstack.teardown.box_check import CellLine
from tests.unit.review.plans import box, live, reviewed, step
from tests.unit.review.record import recorded

REVIEWS = dict(recorded())
HOSTILE = "</td></table></details><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202e"


class Elements(HTMLParser):
    """The names of the elements, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)


def first_heading(text: str) -> str:
    """The first heading as a browser finds it."""
    found = re.search(r"<h[1-6]>(.*?)</h[1-6]>", text, re.DOTALL)
    assert found is not None
    return unescape(found[1])


def destroyed(note: str, cells: int = FOLD + 1) -> Review:
    """A box ends, with cells that have no verified copy; `note` in each name and reason."""
    lost = tuple(CellLine(f"cell-{n} {note}", "failed", note) for n in range(cells))
    gone = step("delete", "Box", "box-0", old={"native_id": "id-box-0", "name": "box-0"})
    return reviewed(live(box("box-0", cells=lost, reasons=(note,)), problems=(note,)), gone, destroy=True)


@pytest.mark.parametrize("name", sorted(REVIEWS))
def test_it_says_what_the_comment_says(name: str) -> None:
    """Each ending, each cell and reason, each refusal and the verdict; it runs nothing and loads nothing."""
    review = REVIEWS[name]
    text = page(review)
    words = " ".join(unescape(text).split())
    facts = [one.name for one in review.endings] + [text for one in review.endings for text in one.why]
    facts += [cell.name for cell in review.live.view.cells if cell.state != "verified"] + [
        one.why for one in review.changes
    ]
    facts += [*review.refusals, *review.against[:1], review.digest or "This change has no digest"]
    assert not [fact for fact in facts if " ".join(fact.split()) not in words]
    assert first_heading(text) == headline(review)
    assert ("DESTROYS" in first_heading(text)) is bool(review.ended)
    assert ('class="good"' in text) is (review.code == 0 and not review.irreversible)
    captions = re.findall(r'aria-label="([^"]+)"', text)
    assert len(set(captions)) == len(captions), "each table is called something else"
    assert "<script" not in text
    assert len(text) < 40_000


def test_hostile_names_and_reasons_make_no_element() -> None:
    hostile, plain = page(destroyed(HOSTILE)), page(destroyed("plain"))
    assert Elements(hostile).names == Elements(plain).names
    assert "\u202e" not in hostile


def test_long_lists_fold_and_are_whole() -> None:
    """A comment is cut at 60,000 characters; the page has every cell."""
    assert "<details>" not in page(destroyed("x", cells=FOLD))
    text = page(destroyed("x", cells=1000))
    assert "<summary>1000 cells without a verified copy</summary>" in text
    assert all(f">cell-{n} x<" in text for n in range(1000))


@given(st.lists(st.sampled_from(["same", "create", "update", "delete", "replace", "delete-replaced"]), max_size=4))
def test_the_first_heading_says_whether_anything_dies(ops: list[str]) -> None:
    steps = [
        step(op, "Box", f"box-{n}", old={"native_id": f"id-box-{n}"}, new={"name": f"box-{n}"})
        for n, op in enumerate(ops)
    ]
    ends = [op for op in ops if op not in ("same", "create", "update")]
    heading = first_heading(page(reviewed(live(*(box(f"box-{n}") for n in range(4))), *steps)))
    assert ("DESTROYS" in heading) is bool(ends)
    assert ends or "destroys nothing" in heading
