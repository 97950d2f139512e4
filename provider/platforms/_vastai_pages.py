"""The account's list of instances, page by page: all of it, proved complete, or the few that somebody waits for.

The list can be asked for some ids alone, as `id` is one of its filterable columns (the API's pages, 2026-11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, TypeGuard

from sweep.errors import Unreachable

Row = dict[str, Any]
Asking = Callable[[Row], Row]
"""The list's parameters → one page of it."""

SIZE = 25
"""Rows of a page: the most that there is."""
FEW = 100
"""So many ids fit into the address of a request with room to spare."""
_PAGES = 400
_READINGS = 4


def complete(ask: Asking) -> tuple[dict[int, Row], int]:
    """All instances by id, and how many pages they took. Read again when the account changed between two pages: a row
    may have slipped through. Raises Unreachable when no reading can be relied on."""
    problem = ""
    for _ in range(_READINGS):
        rows, totals, counts, ended = _walk(ask, {})
        problem = _gap(rows, totals, counts) if ended else "it has no last page"
        if not problem:
            return rows, len(totals)
    raise Unreachable(f"vast.ai's list of instances can't be relied on: {problem}; nothing is known")


def these(ask: Asking, ids: Collection[int]) -> dict[int, Row]:
    """Those of these instances that the list shows. That one is not among them proves nothing."""
    rows, _, _, _ = _walk(ask, {"id": {"in": sorted(ids)}})
    return {identifier: row for identifier, row in rows.items() if identifier in ids}


def _walk(ask: Asking, filters: Row) -> tuple[dict[int, Row], list[int], Any, bool]:
    """Rows, each page's total, the last page's counts, and whether there was a last page."""
    rows: dict[int, Row] = {}
    totals: list[int] = []
    counts: Any = {}
    token: str | None = None
    seen: set[str] = set()
    for _ in range(_PAGES):
        asked: Row = {"select_filters": filters, "order_by": [{"col": "id", "dir": "asc"}], "limit": SIZE}
        page = ask({**asked, "after_token": token} if token else asked)
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
    """Why the pages may not be the whole account; empty when they are.

    `counts`, how many instances bear each label, comes with every page and is of the whole account: it finds a row that
    slipped between two pages while others ended. Without it, any end between two pages makes them worthless.
    """
    if len(rows) < totals[-1]:
        return f"{len(rows)} of {totals[-1]} came"
    counted = isinstance(counts, dict) and all(is_id(count, 0) for count in counts.values())
    if not counted or sum(counts.values()) != totals[-1]:
        return "instances ended while it was read" if min(totals) < totals[0] else ""
    held = Counter(label if isinstance(label := row.get("label"), str) else "" for row in rows.values())
    short = [label or "no label" for label, count in counts.items() if held[label or ""] < count]
    return f"it counts more instances with {short[0]} than it lists" if short else ""


def is_id(value: Any, least: int = 1) -> TypeGuard[int]:
    """Whether it is a whole number of at least `least`; JSON's true is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
