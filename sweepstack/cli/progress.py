"""Shows progress on stderr for work that takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from sweepstack.cli.output import size, span

PATIENCE = 2.0
"""Seconds before progress is shown."""
LINE_SECONDS = 10.0


class Progress:
    """A bar on a terminal, elsewhere a line every ten seconds; nothing if the work takes less than two.

    Thread-safe. `total` and `done` count bytes if `unit` is "bytes", else items.
    """

    def __init__(self, what: str, *, unit: str = "", quiet: bool = False) -> None:
        self.what = what
        self.text = ""
        self.done = 0.0
        self.total: float | None = None
        self._unit = unit
        self._quiet = quiet
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def say(self, text: str) -> None:
        """Sets the text of the current step."""
        self.text = text

    def at(self, text: str, done: float, total: float) -> None:
        """How far the current step is."""
        self.text, self.done, self.total = text, done, total

    def advance(self, amount: float = 1) -> None:
        """Adds to the amount that is done."""
        with self._lock:
            self.done += amount

    def expect(self, amount: float) -> None:
        """Adds to the amount that is to do."""
        with self._lock:
            self.total = (self.total or 0) + amount

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        if self._stop.wait(PATIENCE):
            return
        if sys.stderr.isatty():
            self._bar()
        else:
            self._lines()

    def _bar(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            ProgressColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bar

        columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
        if self._unit == "bytes":
            columns += [BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
        else:
            columns += [TimeElapsedColumn()]
        with Bar(*columns, console=Console(file=sys.stderr), transient=True) as bar:
            task = bar.add_task(self.what, total=self.total)
            while not self._stop.wait(0.1):
                bar.update(task, description=f"{self.what} {self.text}", completed=self.done, total=self.total)

    def _lines(self) -> None:
        while True:
            print(f"… {self._line()}", file=sys.stderr, flush=True)
            if self._stop.wait(LINE_SECONDS):
                return

    def _line(self) -> str:
        elapsed = span(time.monotonic() - self._began)
        amount = ""
        if self.total:
            show = size if self._unit == "bytes" else "{:.0f}".format
            amount = f" {show(self.done)} of {show(self.total)}"
        colon = ":" if amount or self.text else ""
        return f"{self.what}{colon}{amount} {self.text} ({elapsed})".replace("  ", " ")
