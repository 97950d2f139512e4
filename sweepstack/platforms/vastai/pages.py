"""Reads the account's list of instances, page by page: all, those with some ids or labels, or counts.

The list can be filtered by `id` and `label`, and each page has the number of instances of each label (the API's
documentation, 2026-11). So a question about few boxes needs few pages, even in an account with many instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Literal, TypeGuard

from sweepstack.onbox.common.errors import RequestRefused, SweepstackError, Unreachable

Row = dict[str, Any]
Asking = Callable[[Row], Row]
"""Reads one page of the list: takes the parameters, returns the page."""
Column = Literal["id", "label"]

SIZE = 25
"""Rows of a page: the most that vast.ai allows."""
FEW: dict[Column, int] = {"id": 100, "label": SIZE}
"""The most ids or labels in one request, so that its URL does not become too long."""
_PAGES = 400
_READINGS = 4


def complete(ask: Asking) -> tuple[dict[int, Row], int]:
    """All instances by id, and the number of pages. Raises Unreachable when no reading is proved complete."""
    return _reliable(ask, {}, lambda row: True)


def complete_if_few(ask: Asking, most: int) -> tuple[dict[int, Row], int] | None:
    """Like `complete`, but None after one page when the account has more than `most` instances."""

    def few(asked: Row) -> Row:
        page = ask(asked)
        if page["total_instances"] > most:
            raise _Many
        return page

    try:
        return complete(few)
    except _Many:
        return None


class _Many(SweepstackError):
    """The account has more instances than asked for."""


def some(ask: Asking, column: Column, wanted: Collection[int] | Collection[str]) -> tuple[dict[int, Row], int]:
    """The instances whose `column` is one of `wanted`, by id, and the number of pages.

    Raises Unreachable as `complete` does; RequestRefused when vast.ai ignores the filter and shows other instances.
    """
    rows: dict[int, Row] = {}
    pages = 0
    keys: list[Any] = sorted(wanted)
    for begin in range(0, len(keys), FEW[column]):
        few = keys[begin : begin + FEW[column]]
        found, took = _reliable(ask, {column: {"in": few}}, _shows(column, few))
        rows, pages = rows | found, pages + took
    return rows, pages


def labels(ask: Asking) -> dict[str, int] | None:
    """How many instances of the account have each label ("" for none); None when the counts don't match the total."""
    page = ask({**_asked({}), "limit": 1})
    counts = page.get("label_counts")
    if not _counted(counts) or sum(counts.values()) != page["total_instances"]:
        return None
    return dict(counts)


def _shows(column: Column, few: list[Any]) -> Callable[[Row], bool]:
    return lambda row: row.get(column) in few


def _asked(filters: Row) -> Row:
    return {"select_filters": filters, "order_by": [{"col": "id", "dir": "asc"}], "limit": SIZE}


def _reliable(ask: Asking, filters: Row, wanted: Callable[[Row], bool]) -> tuple[dict[int, Row], int]:
    """The instances and the number of pages, of a reading that is proved complete. Reads again, `_READINGS` times at
    most, when the account changed between two pages, since a row may then be missing."""
    problem = ""
    for _ in range(_READINGS):
        rows, totals, counts, ended = _walk(ask, filters, wanted)
        problem = _gap(rows, totals, counts) if ended else "it has no last page"
        if not problem:
            return rows, len(totals)
    raise Unreachable(f"vast.ai's list of instances can't be relied on: {problem}; nothing is known")


def _walk(ask: Asking, filters: Row, wanted: Callable[[Row], bool]) -> tuple[dict[int, Row], list[int], Any, bool]:
    """One reading: its rows, each page's total, the last page's counts, and whether there was a last page."""
    rows: dict[int, Row] = {}
    totals: list[int] = []
    counts: Any = {}
    token: str | None = None
    seen: set[str] = set()
    for _ in range(_PAGES):
        asked = _asked(filters)
        page = ask({**asked, "after_token": token} if token else asked)
        if not all(map(wanted, page["instances"])):
            raise RequestRefused("vast.ai's list shows instances that were not asked for")
        rows.update((row["id"], row) for row in page["instances"])
        totals.append(page["total_instances"])
        counts = page.get("label_counts") or {}
        token = page.get("next_token")
        if not token:
            return rows, totals, counts, True
        if token in seen:
            break
        seen.add(token)
    return rows, totals, counts, False


def _gap(rows: dict[int, Row], totals: list[int], counts: Any) -> str:
    """Why the pages may lack an instance; "" when they are complete.

    `counts`, the number of instances of each label, comes with every page. Where it covers the same instances as the
    filter, it shows whether a row is missing. Where it does not, a reading counts only if no instance ended meanwhile.
    """
    if len(rows) < totals[-1]:
        return f"{len(rows)} of {totals[-1]} came"
    if not _counted(counts) or sum(counts.values()) != totals[-1]:
        return "instances ended while it was read" if min(totals) < totals[0] else ""
    held = Counter(label if isinstance(label := row.get("label"), str) else "" for row in rows.values())
    short = [label or "no label" for label, count in counts.items() if held[label or ""] < count]
    return f"it counts more instances with {short[0]} than it lists" if short else ""


def _counted(counts: Any) -> TypeGuard[dict[str, int]]:
    return isinstance(counts, dict) and all(is_id(count, 0) for count in counts.values())


def is_id(value: Any, least: int = 1) -> TypeGuard[int]:
    """Whether the value is a whole number of at least `least`; JSON's `true` is no number."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
