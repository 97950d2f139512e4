"""Lists in pages: `{"items", "hasMore", "nextPage"}`, by a cursor that only the platform reads.

A cursor names the place of the last row of its page, not how many came before: a row that goes shifts nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from tests.simulators.paperspace import errors
from tests.simulators.simulator import Reply, Request

USUAL, MOST = 20, 120
"""Items of a page. What it is when nothing is asked for is not documented, so it is few."""
PARAMETERS = ("after", "limit", "orderBy", "order")
"""What every list takes."""


def page(request: Request, rows: Sequence[tuple[int, dict[str, Any]]], *orders: str) -> Reply:
    """The page that a request asks for. `rows`: (a number that grows with age and is never given twice, the row);
    `orders`: what `orderBy` may name, of which the first is the usual one."""
    by = _one(request, "orderBy", orders[0])
    order = _one(request, "order", "desc")
    limit = _one(request, "limit", str(USUAL))
    if by not in orders:
        raise errors.refusal(errors.BAD_REQUEST, f"orderBy: one of {', '.join(orders)}")
    if order not in ("asc", "desc"):
        raise errors.refusal(errors.BAD_REQUEST, "order: asc or desc")
    if not limit.isdecimal() or not 1 <= int(limit) <= MOST:
        raise errors.refusal(errors.BAD_REQUEST, f"limit: a number from 1 to {MOST}")
    down = order == "desc"
    placed = [((str(row[by]) if by != "dtCreated" else "", number), row) for number, row in rows]
    placed.sort(key=lambda entry: entry[0], reverse=down)
    if "after" in request.query:
        last = _place(_one(request, "after", ""))
        placed = [entry for entry in placed if (entry[0] < last if down else entry[0] > last)]
    shown, more = placed[: int(limit)], len(placed) > int(limit)
    body = {
        "hasMore": more,
        "items": [row for _, row in shown],
        "nextPage": _cursor(shown[-1][0]) if more else None,
    }
    return Reply(200, body)


def _one(request: Request, name: str, usual: str) -> str:
    return request.query.get(name, [usual])[-1]


def _cursor(place: tuple[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place(cursor: str) -> tuple[str, int]:
    try:
        word, number = json.loads(base64.urlsafe_b64decode(cursor))
        return str(word), int(number)
    except (ValueError, TypeError):
        raise errors.refusal(errors.BAD_REQUEST, "after: no such cursor") from None
