"""`sweepctl status --watch`: refreshes the status until Ctrl-C.

On a terminal a live table; elsewhere a block each time that something has changed; with `--json` one document a line.
Below it a line for each event, when it comes.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sweepstack.cli.commands.status.sweep import exit_code, status_document
from sweepstack.cli.events import Events
from sweepstack.cli.output import NO, UNSURE, Out, in_one_line, note, plain, span, terminal
from sweepstack.cli.render import SHOWN, render
from sweepstack.core.columns import fitted
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations.events.event import Event
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import SweepView, compose

if TYPE_CHECKING:
    from rich.console import RenderableType

STATE_SECONDS = 30.0
"""Seconds for which the engine's state is reused: asking for it starts the engine, which costs most here."""
LEAST_SECONDS = 0.2
LINES = 5
"""The latest events that the live picture shows."""
FOOT = 2
"""Lines below the picture: a blank one, and its time."""
_DIGITS = re.compile(r"[0-9.,]+")


@dataclass(frozen=True)
class Picture:
    """One snapshot. `problem`: why the last try failed; `view` and `code` are then those of the snapshot before."""

    view: SweepView
    code: int
    at: datetime
    problem: str = ""
    events: tuple[Event, ...] = ()
    """All that hold."""
    new: tuple[Event, ...] = ()
    """Those that no picture before had."""


def watch(target: Target, interval: timedelta, timeout: timedelta, out: Out) -> int:
    """Refreshes every `interval` until Ctrl-C, which is no error: the exit code is that of `status` for the last
    picture.

    Exit 1 if `timeout` is up. A later outage is reported and waited for; an outage at the beginning is an error.
    """
    pictures = Pictures(target, interval.total_seconds(), timeout.total_seconds(), files=out.as_json)
    live = sys.stdout.isatty() and not out.as_json
    try:
        if live:
            _live(pictures)
        else:
            _blocks(pictures, out)
        over = True
    except KeyboardInterrupt:
        if pictures.last is None:
            raise
        over = False
    finally:
        pictures.end()
    assert pictures.last is not None
    if live:
        render(pictures.last.view, out)
    if over:
        note(f"watched for {span(timeout.total_seconds())}, the limit of --timeout")
    return pictures.last.code or (NO if over else 0)


class Pictures:
    """Iterates over pictures: one now, and one each `interval` seconds until the time is up. `last`: the latest one."""

    def __init__(self, target: Target, interval: float, seconds: float, *, files: bool = True) -> None:
        self.last: Picture | None = None
        self.interval = max(interval, LEAST_SECONDS)
        self._target, self._files = target, files
        self._deadline = time.monotonic() + seconds
        self._sources: Sources | None = None
        self._opened = 0.0
        self._events = Events()
        self._shown: set[str] = set()

    def __iter__(self) -> Iterator[Picture]:
        while True:
            self.last = self._next(self.last)
            yield self.last
            left = self._deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(self.interval, left))

    def _next(self, last: Picture | None) -> Picture:
        try:
            return self._look(again=last is None or bool(last.code or last.problem) or not last.view.boxes)
        except SweepstackError as error:
            if last is None:
                raise
            return Picture(last.view, UNSURE, last.at, str(error), last.events)

    def end(self) -> None:
        """Waits a moment for what is being told."""
        self._events.end()

    def _look(self, *, again: bool) -> Picture:
        """Takes a picture. `again`: asks for a new state, whatever the age of the last one."""
        if self._sources is None or again or time.monotonic() - self._opened > STATE_SECONDS:
            self._sources, self._opened = open_sources(self._target), time.monotonic()
        snapshot = take_snapshot(self._sources, files=self._files)
        view = compose(snapshot)
        events = tuple(self._events.look(self._sources, snapshot, view))
        new = tuple(event for event in events if event.id not in self._shown)
        self._shown |= {event.id for event in new}
        code = exit_code(self._sources, snapshot, view)
        return Picture(view, code, snapshot.now.astimezone(), events=events, new=new)


def _blocks(pictures: Iterable[Picture], out: Out) -> None:
    """Prints a block, or a line of JSON, for each picture in which something has changed."""
    said: Hashable = None
    problem = ""
    for picture in pictures:
        if picture.problem != problem:
            problem = picture.problem
            note(problem or "it answers again")
        happened = what_happened(picture.view)
        if happened == said and not picture.new:
            continue
        if out.as_json:
            print(json.dumps(status_document(picture.view, picture.events), ensure_ascii=False), flush=True)
        elif happened != said:
            out.line(f"{'' if said is None else chr(10)}{picture.at:%Y-%m-%d %H:%M:%S}", style="dim")
            render(picture.view, out)
        said = happened
        for event in picture.new:
            out.line(event.line(), wrap=False)


def what_happened(view: SweepView) -> Hashable:
    """The values whose change prints a block: states, attempts, verdicts, alarms. Others change all the time."""
    return (
        tuple((cell.name, cell.state, cell.attempts, cell.box, cell.verdict, cell.suspect) for cell in view.cells),
        tuple((box.name, box.native_id, box.phase, box.setup, box.blocked, _words(box.alarms)) for box in view.boxes),
        tuple((gate.box, gate.state, _words(gate.reasons)) for gate in view.gates),
        tuple((orphan.native_id, orphan.kind) for orphan in view.unknown),
        view.bills,
        _words(view.alarms),
        _words(view.notes),
        view.next,
    )


def _words(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(_DIGITS.sub("", line) for line in lines)


def _live(pictures: Pictures) -> None:
    """Redraws an alternate screen, which disappears at the end; the caller prints the last picture."""
    from rich.live import Live

    screen = terminal(sys.stdout)
    with Live(console=screen, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        lines: list[str] = []
        for picture in pictures:
            lines = [*lines, *(event.line() for event in picture.new)][-LINES:]
            live.update(_frame(picture, lines, pictures.interval, *screen.size), refresh=True)


def _frame(picture: Picture, lines: Sequence[str], interval: float, width: int, height: int) -> RenderableType:
    """The picture, with as many cells as fit on the terminal beside the other parts; `lines`: the latest events."""
    from rich.console import Group
    from rich.text import Text

    frame = Frame(width)
    render(picture.view, frame, most=0)
    room = height - frame.lines - len(lines) - FOOT - 1  # the header of the cells
    frame = Frame(width)
    render(picture.view, frame, most=min(max(room, 1), max(SHOWN, room)))
    for line in lines:
        frame.line(line, wrap=False)
    foot = f"{picture.at:%H:%M:%S}, every {span(interval)}; Ctrl-C ends"
    if picture.problem:
        foot = f"as of {picture.at:%H:%M:%S}: {' '.join(picture.problem.split())}"
    frame.parts += [Text(), Text(foot, style="red" if picture.problem else "dim")]
    return Group(*frame.parts)


class Frame(Out):
    """Collects the output instead of printing it."""

    def __init__(self, width: int) -> None:
        super().__init__(as_json=False)
        self.parts: list[Any] = []
        self.lines = 0
        self._width = width

    def line(self, text: str = "", style: str | None = None, *, wrap: bool = True) -> None:
        from rich.text import Text

        for part in fitted(plain(text)).split("\n"):
            self.parts.append(Text(part, style=style or "", no_wrap=True, overflow="ellipsis"))
            self.lines += 1

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[str]], named: int = 0) -> None:
        table = in_one_line(self._width, headers, rows)
        self.parts.append(table)
        self.lines += table.row_count + 1
