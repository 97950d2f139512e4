"""Tables for people: columns without lines, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sweepstack.core.printable import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

GAP = 2
NOTE, NARROW = 24, 12
"""Width kept for the last column, which may wrap: more before a name moves above its row, less before one is cut."""
LEAST = 9
"""A name of at most so many characters is not shortened."""
STYLES = {
    "verified": "green",
    "waived": "green",
    "cleared": "green",
    "running": "cyan",
    "sealed": "cyan",
    "blocked_disk": "red",
    "failed": "red",
    "damaged": "red",
    "suspect": "red",
    "unsupported": "red",
    "missing": "red",
    "unexpected": "red",
    "lost": "bold red",
    "locked": "yellow",
    "unknown": "yellow",
}
_ABOVE = "\ue000"
"""Marks a row whose name is printed above it."""


def printed(screen: Console, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table.

    A name that does not fit into its row gets a line of its own above the row; then the names in the other columns are
    shortened in the middle.
    """
    cells = [[visible(value, keep="\n\t") for value in row] for row in rows]
    room = _room(headers, cells, screen.width)
    above = []
    for row in cells:
        if len(row[0]) > room:
            above.append(row[0])
            row[0] = _ABOVE
    _shorten(headers, cells, screen.width, first=1)
    with screen.capture() as captured:
        screen.print(table_of(headers, cells))
    lines = []
    for line in captured.get().splitlines():
        if line.startswith(_ABOVE):
            lines.append(above.pop(0))
            line = " " + line.removeprefix(_ABOVE)
        lines.append(line.rstrip())
    return lines


def blocks(width: int, headers: Sequence[str], rows: Iterable[Sequence[str]], named: int) -> list[list[int]]:
    """The columns (by index) of each table that a wide one is printed as: the first `named` ones, and so many of the
    others as fit beside them whole. One table where all fit, or nothing has to be beside the names."""
    widths = _widths(headers, [[visible(value, keep="\n\t") for value in row] for row in rows], width)
    names = list(range(min(named, len(headers))))
    start = sum(widths[index] + GAP for index in names)
    found, taken = [[*names]], start
    for index in range(len(names), len(headers)):
        if taken + widths[index] > width and len(found[-1]) > len(names):
            found.append([*names])
            taken = start
        found[-1].append(index)
        taken += widths[index] + GAP
    return found


def in_one_line(width: int, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table with one line for each row: long names are shortened in the middle, and the last column is cut off."""
    cells = [[visible(value, keep="\n\t") for value in row] for row in rows]
    _shorten(headers, cells, width, first=0)
    return table_of(headers, cells, wrap=False)


def table_of(headers: Sequence[str], rows: Iterable[Sequence[str]], *, wrap: bool = True) -> Table:
    """Left-aligned columns; the last one may wrap. Known states are coloured."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0))
    for index, header in enumerate(headers):
        table.add_column(header, no_wrap=index < len(headers) - 1)  # rich narrows the column that may wrap
    for row in rows:
        last = len(row) - 1
        table.add_row(
            *(
                # A word that is wider than the last column goes on in a further line: it may be what is copied.
                Text(
                    text,
                    STYLES.get(text, ""),
                    no_wrap=not wrap or None,
                    overflow="fold" if wrap and index == last else "ellipsis",
                )
                for index, text in enumerate(row)
            )
        )
    return table


def _widths(headers: Sequence[str], rows: Sequence[Sequence[str]], last: int) -> list[int]:
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(headers, *rows, strict=True)]
    return [*widths[:-1], min(widths[-1], last)]


def _beside(widths: Sequence[int]) -> int:
    """The width of a row without its first column."""
    return sum(widths[1:]) + GAP * (len(widths) - 1)


def _room(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """The width that is left for the first column, at least that of its header."""
    widths = _widths(headers, rows, NOTE)
    if len(widths) < 2 or widths[0] + _beside(widths) <= width:
        return widths[0]
    return max(width - _beside(widths), len(headers[0]), LEAST)


def _shorten(headers: Sequence[str], rows: Sequence[list[str]], width: int, *, first: int) -> None:
    """Shortens names in the columns from `first` on, except the last, just enough to make the rows fit."""
    widths = _widths(headers, rows, NARROW)
    middle = range(first, len(widths) - 1)
    most = max((widths[index] for index in middle), default=0)
    while most > LEAST and sum(widths) + GAP * (len(widths) - 1) > width:
        most -= 1
        for index in middle:
            widths[index] = min(widths[index], max(most, len(headers[index])))
    for row in rows:
        for index in middle:
            row[index] = _middle(row[index], widths[index])


def _middle(name: str, most: int) -> str:
    """The name's beginning and end: `a-long-…-box-3`."""
    if len(name) <= most:
        return name
    tail = (most - 1) // 2
    return f"{name[: most - 1 - tail]}…{name[len(name) - tail :]}"
