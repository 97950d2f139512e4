"""The `sweepctl` script."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Runs one command. Raises SystemExit with its exit code; errors that no command answers leave it as they are."""
    _with_streams()
    gc.set_threshold(1_000_000, 50, 50)  # a command lives for seconds; of ten thousand cells it makes a million objects
    from sweepstack.cli.app import app

    app()


def _with_streams() -> None:
    """Opens the null device where a shell closed a stream (`<&-`, `>&-`): Python has None there, and a file that is
    opened later would get the stream's number, and with it what was meant for a person."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
