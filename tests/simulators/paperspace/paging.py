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
PARAMETERS = ("after", "limit")
"""What every list takes. By its order, which can be asked for at the vendor's, no customer here asks."""


def page(request: Request, rows: Sequence[tuple[int, dict[str, Any]]]) -> Reply:
    """The page that a request asks for, newest first. `rows`: (a number that grows with age and is never given twice,
    the row)."""
    limit = _one(request, "limit", str(USUAL))
    if not limit.isdecimal() or not 1 <= int(limit) <= MOST:
        raise errors.refusal(errors.BAD_REQUEST, f"limit: a number from 1 to {MOST}")
    placed = sorted(rows, key=lambda entry: entry[0], reverse=True)
    if "after" in request.query:
        last = _place(_one(request, "after", ""))
        placed = [entry for entry in placed if entry[0] < last]
    shown, more = placed[: int(limit)], len(placed) > int(limit)
    body = {
        "hasMore": more,
        "items": [row for _, row in shown],
        "nextPage": _cursor(shown[-1][0]) if more else None,
    }
    return Reply(200, body)


def _one(request: Request, name: str, usual: str) -> str:
    return request.query.get(name, [usual])[-1]


def _cursor(place: int) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place(cursor: str) -> int:
    try:
        return int(json.loads(base64.urlsafe_b64decode(cursor)))
    except (ValueError, TypeError):
        raise errors.refusal(errors.BAD_REQUEST, "after: no such cursor") from None
