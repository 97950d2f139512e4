"""The output of `sweepctl`: tables or one JSON document on stdout, errors and progress on stderr.

Tables for people: columns without lines, as wide as the terminal.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from sweepstack.cli.narrow_streams import is_narrow
from sweepstack.core.columns import fitted
from sweepstack.core.printable import visible
from sweepstack.onbox.common.units import spell_bytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sweepstack.evidence.s3.object_store import Traffic


YES, NO, UNSURE = 0, 1, 2
"""Exit codes: yes; no; could not tell, or the command was not understood."""


def plain(text: str) -> str:
    r"""Text of a file, a box or an API, with control and invisible characters written as `\u{1b}`."""
    return visible(text, keep="\n\t")


asked_for_json = False
"""Whether the command line has `--json`: then an error is printed as a document too."""
typed = ""
"""The command line, as it may be typed again; "" where there is none."""
_documents = 0
"""How many JSON documents this process has printed; a command prints one."""
_done: dict[str, Any] = {}
"""What the command has done already, for the document of an error."""


class Out:
    """Prints a command's answer. With `as_json` only the document goes to stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, value: Any) -> None:
        """Prints the one JSON document of this command."""
        global _documents
        if self.as_json:
            _documents += 1
            print(json.dumps(value, indent=2, ensure_ascii=is_narrow(sys.stdout)), flush=True)

    def line(self, text: str = "", style: str | None = None, *, wrap: bool = True) -> None:
        """Prints a line for people, wrapped (`core.columns.fitted`); nothing with `--json`.

        `wrap` False: a log line.
        """
        if not self.as_json:
            shown = fitted(plain(text)) if wrap else plain(text)
            console().print(shown, style=style, markup=False, highlight=False, soft_wrap=True)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[str]], named: int = 0) -> None:
        """Prints left-aligned columns, as wide as the terminal; in full width if the output is piped. `named`: so many
        columns name a row, and the others are values, which are never cut: those that have no room beside the names
        follow in further tables."""
        if self.as_json:
            return
        whole = [list(row) for row in rows]
        for block in blocks(console().width, headers, whole, named) if named else [range(len(headers))]:
            shown = [[row[index] for index in block] for row in whole]
            print("\n".join(printed(console(), [headers[index] for index in block], shown)), flush=True)

    def next(self, commands: Sequence[str]) -> None:
        """Prints the last lines of the command: what to type next."""
        for line in following(commands):
            self.line(line)


def warm() -> None:
    """Starts to import the modules of a screen while the command waits for boxes. Returns at once."""
    threading.Thread(target=console, daemon=True, name="screen").start()


class Pipe:
    """Where a program or a file takes the output. It does without rich, whose import is a tenth of a look."""

    width, is_terminal = 400, False  # tables are not narrowed to 80 columns

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def print(self, text: str, **_: object) -> None:
        """Prints a text as it is."""
        print(text.expandtabs(), file=self._stream, flush=True)


def console() -> Console | Pipe:
    """Stdout, for people or piped."""
    return _on(sys.stdout)


def _on(stream: TextIO) -> Console | Pipe:
    asked = {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys()  # for colours: rich knows what they mean
    return terminal(stream) if asked or stream.isatty() else Pipe(stream)


def terminal(stream: TextIO) -> Console:
    """A terminal, or what is to be one. rich respects NO_COLOR."""
    from rich.console import Console

    return Console(file=stream, width=None if stream.isatty() else Pipe.width, highlight=False, emoji=False)


def complain(message: str, next: Sequence[str] = ()) -> None:
    """Prints the error that ends a command on stderr, with what helps; with `--json` also as a document."""
    if asked_for_json:
        error_document(message, next)
    err = _on(sys.stderr)
    lines = [f"error: {message}", *(f"next   {command}" for command in dict.fromkeys(next))]
    for line in lines:
        style = "red" if line is lines[0] and "\n" not in line else None
        err.print(fitted(plain(line)), style=style, markup=False, soft_wrap=True)


def error_document(message: str, next: Sequence[str]) -> None:
    """Prints `{"error": …, "next": […]}`, with what `keep_for_error` has, on stdout, unless this command has printed
    its document already."""
    if not _documents:
        Out(as_json=True).document({"error": message, "next": list(next), **_done})


def keep_for_error(**done: Any) -> None:
    """Puts what the command has done already beside `error` and `next`, if it ends with an error after that."""
    _done.update(done)


def following(commands: Sequence[str]) -> list[str]:
    """The last lines of a screen: what to type next, each command once."""
    return [f"{'next' if index == 0 else '    '}   {command}" for index, command in enumerate(dict.fromkeys(commands))]


def aside(*lines: str) -> None:
    """Prints lines on stderr, wrapped: text beside the answer, or beside the output of another program."""
    for line in lines:
        print(fitted(plain(line)), file=sys.stderr, flush=True)


def note(message: str) -> None:
    """Prints a note on stderr; it does not change the answer."""
    aside(f"note   {message}")


def money(usd: float | None) -> str:
    """`1.89`, or `?` if it is not known."""
    return "?" if usd is None else f"{usd:.2f}"


def size(count: float) -> str:
    """Bytes for people, in powers of ten, as disks and networks count."""
    return spell_bytes(count)


def moved(traffic: Traffic | None) -> str:
    """How many bytes were transferred for evidence in object storage, and how many were unchanged; "" for a folder."""
    return f"moved {size(traffic.moved)}, {size(traffic.unchanged)} unchanged" if traffic else ""


def moved_json(traffic: Traffic | None) -> dict[str, int] | None:
    """The same in bytes, for the JSON document."""
    return {"up": traffic.up, "down": traffic.down, "unchanged": traffic.unchanged} if traffic else None


def span(seconds: float) -> str:
    """A duration for people: `12 s`, `41 min`, `3 h 20 min`, `2 d 4 h`."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


GAP = 2
NOTE, NARROW = 24, 12
"""Width kept for the last column, which may wrap: more before a name moves above its row, less before one is cut."""
LEAST = 9
"""A name of at most so many characters is not shortened."""
STYLES = {
    "verified": "green",
    "waived": "green",
    "pruned": "green",
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


def printed(screen: Console | Pipe, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
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
    lines = []
    for line in _padded(headers, cells) if isinstance(screen, Pipe) else _drawn(screen, headers, cells):
        if line.startswith(_ABOVE):
            lines.append(above.pop(0))
            line = " " + line.removeprefix(_ABOVE)
        lines.append(line.rstrip())
    return lines


def _drawn(screen: Console, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    with screen.capture() as captured:
        screen.print(table_of(headers, rows))
    return captured.get().splitlines()


def _padded(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """What `_drawn` has for a pipe: done here where each row fits into one line, which nearly all do."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(headers, *rows, strict=True)]
    if sum(widths) + GAP * len(widths) > Pipe.width or any(set("\n\t") & set("".join(row)) for row in rows):
        return _drawn(terminal(sys.stdout), headers, rows)
    return [
        "".join(text + " " * (width + GAP - cell_len(text)) for text, width in zip(row, widths, strict=True))
        for row in (headers, *rows)
    ]


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
