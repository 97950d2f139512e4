"""What set-up says: one line when a step starts, one now and then while it runs, one when it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

TICK_SECONDS = 10.0
"""Between two signs of life of a step, where a person looks on."""
LOG_TICK_SECONDS = 30.0
"""The same where the output is no terminal: a log is read afterwards."""


class Step:
    """A running step; `note` is shown with the next tick (“compiling 812 of 1,390 packages”)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.note = ""
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


class Console:
    """Prints steps that may run side by side. Safe to call from several threads; remembers what each step took."""

    def __init__(self, tick_seconds: float | None = None) -> None:
        self._lock = threading.Lock()
        self._tick_seconds = tick_seconds or (TICK_SECONDS if sys.stdout.isatty() else LOG_TICK_SECONDS)
        self.took: list[tuple[str, float]] = []

    def say(self, text: str) -> None:
        with self._lock:
            try:
                sys.stdout.write(text + "\n")
                sys.stdout.flush()
            except BrokenPipeError:  # the reader is gone (`| head`): the work goes on in silence
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    @contextlib.contextmanager
    def step(self, name: str, expectation: str = "") -> Iterator[Step]:
        """Announces `name`, ticks until the block ends, then says how long it took. A failing block is not 'done'."""
        step = Step(name)
        self.say(f"  {name}" + (f" ({expectation})" if expectation else ""))
        finished = threading.Event()

        def tick() -> None:
            while not finished.wait(self._tick_seconds):
                self.say(f"    … {name}: {step.seconds:.0f} s" + (f", {step.note}" if step.note else ""))

        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield step
        finally:
            finished.set()
            ticker.join()
        self.took.append((name, step.seconds))
        self.say(f"    {name}: done in {step.seconds:.1f} s" + (f", {step.note}" if step.note else ""))
