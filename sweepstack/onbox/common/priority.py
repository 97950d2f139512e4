"""Which of the waiting cells start first: `cells.priority` of the stack file, on every platform.

It is asked at each start of a cell, and is in no line of a queue: so a change of it is no change of a cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CELL = "cell"
"""Stands for a cell's name in a line; no parameter is called so."""


def rank(priority: Sequence[Mapping[str, Any]], name: str, params: Mapping[str, Any]) -> int:
    """The place of the first line of `priority` that means this cell; one more than the last place where none does."""
    return next((place for place, line in enumerate(priority) if means(line, name, params)), len(priority))


def means(line: Mapping[str, Any], name: str, params: Mapping[str, Any]) -> bool:
    """Whether a cell has all values of a line."""
    known = {**params, CELL: name}
    return all(key in known and same(known[key], value) for key, value in line.items())


def same(one: Any, other: Any) -> bool:
    """Equality of parameters: 1 and 1.0 are equal, 1 and true are not."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other
