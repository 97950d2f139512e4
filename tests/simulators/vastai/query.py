"""The filters and orders that the simulated vast.ai understands: `{field: {op: value}}` over rows of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.simulators.core import Refusal
from tests.simulators.vastai.replies import Strange, refusal

Row = dict[str, Any]
COMPARES = ("gt", "gte", "lt", "lte")
OPERATORS = ("eq", "neq", *COMPARES, "in", "notin")


def _as(value: Any, like: Any) -> Any:
    """A value of the query in the type of the row's: the SDK's query language sends numbers and truths as text."""
    if isinstance(like, bool):
        return {"true": True, "false": False}.get(str(value).lower(), value)
    if isinstance(like, int | float) and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _holds(have: Any, op: str, want: Any) -> bool:
    if op in ("in", "notin"):
        if not isinstance(want, list):
            raise Strange(f"{op} takes a list, not {want!r}")
        found = any(have == _as(value, have) for value in want)
        return found if op == "in" else not found
    want = _as(want, have)
    if op in ("eq", "neq"):
        return (have == want) is (op == "eq")
    if have is None or want is None:
        return False
    if isinstance(have, str) is not isinstance(want, str):
        raise Strange(f"{op} compares {have!r} with {want!r}")
    if op == "gt":
        return bool(have > want)
    if op == "gte":
        return bool(have >= want)
    return bool(have < want) if op == "lt" else bool(have <= want)


def matches(row: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """Whether the row passes all filters. An operator that does not exist is no vast.ai query: Strange."""
    for name, conditions in filters.items():
        if not isinstance(conditions, dict):
            raise Strange(f"the filter on {name} is {conditions!r}, not {{operator: value}}")
        for op, want in conditions.items():
            if op not in OPERATORS:
                raise Strange(f"the filter on {name} has the operator {op!r}; there are {', '.join(OPERATORS)}")
            if not _holds(_seen(name, row.get(name), want), op, want):
                return False
    return True


def _seen(name: str, have: Any, want: Any) -> Any:
    """A place is shown as "Texas, US" and found by its country's code."""
    wanted = want if isinstance(want, list) else [want]
    if name == "geolocation" and isinstance(have, str) and all(isinstance(w, str) and len(w) == 2 for w in wanted):
        return have[-2:]
    return have


def check_names(names: Iterable[str], known: Iterable[str], what: str) -> None:
    if strange := sorted(set(names) - set(known)):
        raise Strange(f"{what}: unknown {', '.join(strange)}")


def ordered(rows: list[Row], order: Any) -> list[Row]:
    """`[["dph_total", "asc"], …]`, the first the weightiest; rows without the value come last."""
    if not isinstance(order, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in order):
        raise Strange(f"order is {order!r}, not [[field, asc|desc], …]")
    for name, direction in reversed(order):
        if direction not in ("asc", "desc"):
            raise Strange(f"order by {name} is {direction!r}, not asc or desc")
        have = sorted((r for r in rows if r.get(name) is not None), key=lambda r: r[name], reverse=direction == "desc")
        rows = have + [r for r in rows if r.get(name) is None]
    return rows


def at_most(limit: Any, cap: int) -> int:
    """How many rows a search gives: never more than the cap, whatever was asked."""
    if limit is None:
        return cap
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise Strange(f"limit is {limit!r}")
    return min(limit, cap)


def bad_query(text: str) -> Refusal:
    return refusal(400, "invalid_request", text)
