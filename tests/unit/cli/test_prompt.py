"""A question to a person: only what is typed after it was shown is an answer."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from sweepstack.cli.prompt import answer

PACKAGE = Path(__file__).resolve().parents[3] / "sweepstack"


class Screen:
    """Types once it has shown the question."""

    def __init__(self, keyboard: int, typed: bytes) -> None:
        self.keyboard, self.typed = keyboard, typed
        self.shown = ""

    def write(self, text: str) -> None:
        self.shown += text
        if self.shown.endswith("? ") and self.typed:
            os.write(self.keyboard, self.typed)
            self.typed = b""

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("ahead", [b"yes\n", b"yes\nyes\n", b"yes"])
def test_a_yes_typed_ahead_is_no_answer(monkeypatch: pytest.MonkeyPatch, ahead: bytes) -> None:
    ours, theirs = os.openpty()
    try:
        os.write(ours, ahead)
        with os.fdopen(os.dup(theirs), encoding="utf-8") as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            monkeypatch.setattr(sys, "stderr", Screen(ours, b"no\n"))
            assert answer("let box-0 be destroyed? ") == "no"
            monkeypatch.undo()
    finally:
        os.close(ours)
        os.close(theirs)


def test_every_command_asks_so() -> None:
    asks = re.compile(r"stdin\.read|stdin\.buffer|\binput\(")
    found = [
        path.name
        for path in (*(PACKAGE / "cli").rglob("*.py"), *(PACKAGE / "extensions").rglob("*.py"))
        if "onbox" not in path.parts and asks.search(path.read_text())  # a box has no person at its terminal
    ]
    assert found == ["prompt.py"]
