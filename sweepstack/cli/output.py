"""The output of `sweepctl`: tables or one JSON document on stdout, errors and progress on stderr."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sweepstack.cli.narrow_streams import is_narrow
from sweepstack.cli.tables import blocks, printed
from sweepstack.core.columns import fitted
from sweepstack.core.printable import visible
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import spell_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from sweepstack.evidence.s3.object_store import Traffic

YES, NO, UNSURE = 0, 1, 2
"""Exit codes: yes; no; could not tell, or the command was not understood."""


def plain(text: str) -> str:
    r"""Text of a file, a box or an API, with control and invisible characters written as `\u{1b}`."""
    return visible(text, keep="\n\t")


asked_for_json = False
"""Whether the command line has `--json`: then an error is printed as a document too."""
_documents = 0
"""How many JSON documents this process has printed; a command prints one."""
_done: dict[str, Any] = {}
"""What the command has done already, for the document of an error."""


class No(SweepstackError):
    """The answer is no. `next` are the commands that help, printed below the message."""

    def __init__(self, message: str, next: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.next = list(next)


class Unsure(No):
    """The answer is not known."""


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


def console() -> Console:
    """Stdout for people. Piped tables are not narrowed to 80 columns. rich respects NO_COLOR."""
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 400, highlight=False, emoji=False)


def complain(message: str, next: Sequence[str] = ()) -> None:
    """Prints the error that ends a command on stderr, with what helps; with `--json` also as a document."""
    if asked_for_json:
        error_document(message, next)
    from rich.console import Console

    err = Console(file=sys.stderr, highlight=False, emoji=False)
    lines = [f"error: {message}", *(f"next   {command}" for command in next)]
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
    """The last lines of a screen: what to type next."""
    return [f"{'next' if index == 0 else '    '}   {command}" for index, command in enumerate(commands)]


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


def count(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`, `2 boxes`."""
    plural = noun + ("es" if noun.endswith("x") else "s")
    return f"{number} {noun if number == 1 else plural}"
