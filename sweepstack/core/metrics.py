"""Curves: reads the rows of a cell's metrics file, JSON lines or CSV.

The file comes from training code: a line that does not read is passed over, and a number that is not one is missing.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

Row = Mapping[str, Any]
CSV_SUFFIXES = (".csv", ".tsv")
HEADER_BYTES = 8192
"""A CSV's first line is not longer."""


@dataclass(frozen=True)
class Point:
    """Where a cell's curve stands: the last row's x and y; `nan_since`: the x since which y is no finite number."""

    step: str
    loss: str
    x: float | None = None
    y: float | None = None
    nan_since: str = ""


@dataclass(frozen=True)
class Series:
    """One curve: x and y of each row that has both. y may be NaN or infinite."""

    cell: str
    metric: str
    points: tuple[tuple[float, float], ...]

    @property
    def not_finite(self) -> tuple[float, ...]:
        """The x at which y is no finite number."""
        return tuple(x for x, y in self.points if not math.isfinite(y))


def is_csv(file: str) -> bool:
    """Whether a metrics file is a table with a header, by its name; else it is JSON lines."""
    return file.lower().endswith(CSV_SUFFIXES)


def parse_rows(data: bytes, file: str, *, header: bytes | None = None) -> Iterator[Row]:
    """The rows of whole lines. `header`: the first line of a CSV, where `data` is a later part of it."""
    whole = data[: data.rfind(b"\n") + 1]
    if is_csv(file):
        text = ((header or b"") + whole).decode("utf-8", "replace")
        reader = csv.DictReader(io.StringIO(text), delimiter="\t" if file.lower().endswith(".tsv") else ",")
        yield from (row for row in reader if None not in row)
        return
    lines = whole.splitlines()
    try:  # all lines at once, by a parser five times as fast as Python's: of a thousand cells there are a million
        found = from_json(b"[%b]" % b",".join([line for line in lines if line.strip()]))
        if len(found) == len(lines):
            yield from [row for row in found if isinstance(row, dict)]
            return
    except ValueError:
        pass
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def last_rows(read: Callable[[int, int], bytes], size: int, file: str, most: int) -> list[Row]:
    """The whole rows in the last `most` bytes of a metrics file of `size` bytes. `read`: (offset, limit) → bytes."""
    offset = max(0, size - most)
    data, header = read(offset, most), None
    if offset:
        data = data[data.find(b"\n") + 1 :]
        if is_csv(file):
            header = read(0, HEADER_BYTES).partition(b"\n")[0] + b"\n"
    return list(parse_rows(data, file, header=header))


def number(value: Any) -> float | None:
    """A number, also one written as text (`nan`, `Infinity`); None for whatever is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def shown(value: float | None) -> str:
    """A number for people: whole ones whole, others with four digits."""
    if value is None:
        return ""
    return f"{value:.0f}" if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


def series(rows: Sequence[Row], cell: str, x: str, metric: str) -> Series:
    """The curve of one metric over `x`."""
    across: list[Any] = [row.get(x) for row in rows]
    up: list[Any] = [row.get(metric) for row in rows]
    # As JSON has them, and as a million rows are read in no time; whatever else stands there is looked at one by one.
    if set(map(type, across)) == {int} and set(map(type, up)) == {float} and max(map(abs, across)) < 1 << 53:
        return Series(cell, metric, tuple(zip(map(float, across), up, strict=True)))
    both = zip(map(number, across), map(number, up), strict=True)
    points = ((left, high) for left, high in both if left is not None and high is not None and math.isfinite(left))
    return Series(cell, metric, tuple(points))


def point(last: Row | None, x: str, metrics: Sequence[str]) -> Point | None:
    """Where the curve stands, by its last row; None when that has nothing of it."""
    if last is None:
        return None
    curve = next((key for key in metrics if key in last), None)
    across, up = number(last.get(x)), number(last.get(curve)) if curve else None
    if across is None and up is None:
        return None
    return Point(shown(across), "" if up is None else f"{up:.4g}", across, up)


def nan_since(rows: Sequence[Row], x: str, metrics: Sequence[str]) -> str:
    """The x from which on the first metric that the last row has is not finite; nothing while it is."""
    found = ""
    curve = next((key for key in metrics if rows and key in rows[-1]), None)
    for row in reversed(rows):
        value = number(row.get(curve)) if curve else None
        if value is None:
            continue
        if math.isfinite(value):
            break
        found = shown(number(row.get(x))) or "?"
    return found
