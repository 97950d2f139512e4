"""Keyset paging as the simulated vast.ai does it: a token names the last row that was shown."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from tests.simulators.vastai.query import Row
from tests.simulators.vastai.replies import Strange, refusal

LIMIT_BELOW_ONE = 5  # by its API reference, show instances


def page_of(rows: list[Row], *, order: Any, limit: Any, cap: int, after: str) -> tuple[list[Row], str | None]:
    """One page and the token of the next, None for none. `order`: [{"col", "dir"}], id decides what is equal."""
    if not isinstance(order, list) or not all(isinstance(one, dict) and set(one) <= {"col", "dir"} for one in order):
        raise Strange(f"order_by is {order!r}, not a list of {{col, dir}}")
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise Strange(f"limit is {limit!r}")
    for one in reversed([*order, {"col": "id", "dir": "asc"}]):
        name = one["col"]
        if rows and name not in rows[0]:
            raise refusal(400, "invalid_args", f"Invalid column {name}")
        down = one.get("dir") == "desc"
        rows = sorted(rows, key=_by(name), reverse=down)
    size = LIMIT_BELOW_ONE if limit <= 0 else min(limit, cap)
    if after:
        last = _id_of(after)
        if all(one["col"] == "id" and one.get("dir", "asc") != "desc" for one in order):
            rows = [row for row in rows if row["id"] > last]
        else:
            place = next((n for n, row in enumerate(rows) if row["id"] == last), None)
            if place is None:
                raise refusal(400, "invalid_token", "Invalid pagination token")
            rows = rows[place + 1 :]
    page = rows[:size]
    return page, token_of(page[-1]["id"]) if len(rows) > size else None


def _by(name: str) -> Callable[[Row], tuple[bool, Any]]:
    return lambda row: (row[name] is not None, row[name])


def token_of(number: int) -> str:
    return base64.b64encode(json.dumps({"values": {"id": number}}).encode()).decode()


def _id_of(token: str) -> int:
    try:
        return int(json.loads(base64.b64decode(token, validate=True))["values"]["id"])
    except (ValueError, KeyError, TypeError):
        raise refusal(400, "invalid_token", "Invalid pagination token") from None
