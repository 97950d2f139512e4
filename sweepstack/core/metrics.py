"""Curves: reads the rows of a cell's metrics file, JSON lines or CSV.

The file comes from training code: a line that does not read is passed over, and a number that is not one is missing.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from pydantic_core import from_json

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.separators import separator_of

Row = Mapping[str, Any]
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

    @property
    def least(self) -> tuple[float, float] | None:
        """x and y where y is least; None where it is nowhere finite."""
        return min(self._finite(), key=lambda point: point[::-1], default=None)

    @property
    def most(self) -> tuple[float, float] | None:
        """x and y where y is most; None where it is nowhere finite."""
        return max(self._finite(), key=lambda point: point[::-1], default=None)

    def _finite(self) -> Iterator[tuple[float, float]]:
        return ((x, y) for x, y in self.points if math.isfinite(y))


def is_csv(file: str) -> bool:
    """Whether a metrics file is a table with a header, by its name; else it is JSON lines."""
    return bool(separator_of(file))


def parse_rows(data: bytes, file: str, *, header: bytes | None = None) -> list[Row]:
    """The rows of whole lines. `header`: the first line of a CSV, where `data` is a later part of it."""
    whole = data[: data.rfind(b"\n") + 1]
    if separator := separator_of(file):
        text = ((header or b"") + whole).decode("utf-8", "replace")
        reader = csv.DictReader(io.StringIO(text), delimiter=separator)
        return [row for row in reader if None not in row]
    try:  # all lines at once, by a parser five times as fast as Python's: of a thousand cells there are a million
        found: list[Any] = from_json(b"[%b]" % whole[:-1].replace(b"\n", b","))
        if len(found) == whole.count(b"\n"):
            return found if set(map(type, found)) <= {dict} else [row for row in found if isinstance(row, dict)]
    except ValueError:
        pass
    return [row for line in whole.splitlines() if isinstance(row := _row(line), dict)]


def _row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def last_row(read: Callable[[int, int], bytes], size: int, file: str, most: int) -> Row | None:
    """The last whole row in the last `most` bytes of a metrics file of `size` bytes; `read` as in `last_rows`. Only it
    is parsed; of a CSV, a field that it leaves empty is the last number of its column there."""
    if is_csv(file):
        rows = last_rows(read, size, file, most)
        last = rows[-1] if rows else {}
        return {**last, **last_values(rows, [key for key, value in last.items() if value == ""])} or None
    offset = max(0, size - most)
    data = read(offset, most)
    end = data.rfind(b"\n")
    while end >= 0:
        begin = data.rfind(b"\n", 0, end)
        if begin < 0 and offset:  # the beginning of this line is not here
            return None
        row = _row(data[begin + 1 : end])
        if isinstance(row, dict):
            return row
        end = begin
    return None


def last_values(rows: Sequence[Row], names: Iterable[str]) -> dict[str, Any]:
    """What each of these columns has last; nothing of one that has no number."""
    found: dict[str, Any] = {}
    left = set(names)
    for row in reversed(rows):
        for name in [name for name in left if number(row.get(name)) is not None]:
            found[name] = row[name]
            left.discard(name)
        if not left:
            break
    return found


def last_rows(read: Callable[[int, int], bytes], size: int, file: str, most: int) -> list[Row]:
    """The whole rows in the last `most` bytes of a metrics file of `size` bytes. `read`: (offset, limit) → bytes."""
    offset = max(0, size - most)
    data, header = read(offset, most), None
    if offset:
        data = data[data.find(b"\n") + 1 :]
        if is_csv(file):
            header = read(0, HEADER_BYTES).partition(b"\n")[0] + b"\n"
    return parse_rows(data, file, header=header)


def number(value: Any) -> float | None:
    """A number, also one written as text (`nan`, `Infinity`); None for whatever is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def number_text(value: float | None) -> str:
    """A number for people: whole ones whole, others with four digits."""
    if value is None:
        return ""
    return f"{value:.0f}" if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


def point_text(point: tuple[float, float] | None) -> str:
    """`0.25 at 100`: y and x of a curve; "" for none."""
    return f"{point[1]:.4g} at {number_text(point[0])}" if point is not None else ""


def series(rows: Sequence[Row], cell: str, x: str, metric: str) -> Series:
    """The curve of one metric over `x`."""
    return Series(cell, metric, tuple(zip(*paired(column(rows, x), column(rows, metric)), strict=True)))


def begins_late(rows: Sequence[Row], x: str) -> bool:
    """Whether a file begins more than one of its steps after 0: an earlier try may have the beginning."""
    across = _finite(rows, x)
    return bool(across) and across[0] > _widest(across)


def leading(before: Sequence[Row], rows: Sequence[Row], x: str) -> list[Row]:
    """The rows of an earlier file that come before all of `rows`; empty where they would leave a gap wider than the
    steps of both."""
    across = _finite(rows, x)
    found = [row for row, at in zip(before, column(before, x), strict=True) if at is not None and at < across[0]]
    known = _finite(found, x)
    return found if known and across[0] - known[-1] <= max(_widest(known), _widest(across)) else []


def run_once(rows: Sequence[Row], x: str) -> Sequence[Row]:
    """Without the rows of steps that were run again: where `x` goes back, what stands from there on counts."""
    across = [at if at is not None and math.isfinite(at) else None for at in column(rows, x)]
    kept: list[tuple[float, Row]] = []
    for at, row in zip(across, rows, strict=True):
        last = kept[-1][0] if kept else -math.inf
        while at is not None and at < last and kept and kept[-1][0] >= at:
            kept.pop()
        kept.append((last if at is None else at, row))
    return rows if len(kept) == len(rows) else [row for _, row in kept]


def _finite(rows: Sequence[Row], x: str) -> list[float]:
    return [at for at in column(rows, x) if at is not None and math.isfinite(at)]


def _widest(across: Sequence[float]) -> float:
    return max((after - at for at, after in pairwise(across)), default=0.0)


def column(rows: Sequence[Row], name: str) -> list[float | None]:
    """What each row has under this name, as `number`."""
    try:
        values: list[Any] = list(map(itemgetter(name), rows))
    except KeyError:
        values = [row.get(name) for row in rows]
    # As JSON has them, a million are looked at in no time; whatever else stands there is read one by one.
    kinds = set(map(type, values))
    if kinds == {float}:
        return values
    if kinds == {int} and max(map(abs, values)) < 1 << 53:
        return list(map(float, values))
    return list(map(number, values))


def over_curve(rows: Sequence[Row], how: str, name: str) -> float | None:
    """`min` or `max` of the finite values under a name, or the `last` value, whatever it is. NaN where none is finite;
    None where no row has a number there."""
    values = [value for value in column(rows, name) if value is not None]
    if how == "last" or not values:
        return values[-1] if values else None
    finite = [value for value in values if math.isfinite(value)]
    return (min if how == "min" else max)(finite, default=math.nan)


def paired(across: Sequence[float | None], up: Sequence[float | None]) -> tuple[Sequence[float], Sequence[float]]:
    """x and y of each row that has both; x is finite."""
    try:
        if math.isfinite(sum(across)) and sum(up) is not None:  # type: ignore[arg-type]
            return across, up  # type: ignore[return-value]
    except TypeError:  # one is missing
        pass
    both = zip(across, up, strict=True)
    found = [(x, y) for x, y in both if x is not None and y is not None and math.isfinite(x)]
    return [x for x, _ in found], [y for _, y in found]


def point(last: Row | None, x: str, metrics: Sequence[str]) -> Point | None:
    """Where the curve stands, by its last row; None when that has nothing of it."""
    if last is None:
        return None
    curve = next((key for key in metrics if key in last), None)
    across, up = number(last.get(x)), number(last.get(curve)) if curve else None
    if across is None and up is None:
        return None
    return Point(number_text(across), "" if up is None else f"{up:.4g}", across, up)


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
        found = number_text(number(row.get(x))) or "?"
    return found
