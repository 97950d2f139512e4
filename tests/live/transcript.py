"""What a live loop says, on the screen and in a file, without secrets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from sweepstack.platforms.common.redact import learn, redact

RED, PLAIN = "\x1b[1;31m", "\x1b[0m"


class Transcript:
    """Each line goes through the masking of our logs before it is shown or written, and is on disk at once: a killed
    run leaves what it said so far. A closed terminal or a full disk raises nothing: what was rented has to end.

    `secrets`: name → value, masked whatever the names look like. Variables with names such as …_KEY are masked, too.
    """

    def __init__(self, path: Path, secrets: Mapping[str, str], screen: TextIO | None = None) -> None:
        learn(secrets)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._screen = path, screen or sys.stdout
        self._file = path.open("w", encoding="utf-8")
        self._colored = self._screen.isatty() and not os.environ.get("NO_COLOR")

    def say(self, text: str, *, red: bool = False) -> None:
        """On the screen and in the file."""
        text = redact(text)
        self._show(f"{RED}{text}{PLAIN}" if red and self._colored else text)
        self._keep(text)

    def note(self, text: str) -> None:
        """In the file alone: all that a command printed."""
        self._keep(redact(text))

    def beat(self, text: str) -> None:
        """On the screen alone: that something still goes on."""
        self._show(redact(text))

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()

    def _show(self, text: str) -> None:
        with suppress(OSError):
            self._screen.write(f"{text}\n")
            self._screen.flush()

    def _keep(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text.rstrip("\n") + "\n")
            self._file.flush()
