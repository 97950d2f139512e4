"""The `sweepctl` script."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Runs one command. Raises SystemExit with its exit code; an error that no command handles passes through."""
    _with_streams()
    gc.set_threshold(1_000_000, 50, 50)  # a command lives for seconds; of ten thousand cells it makes a million objects
    from sweepstack.cli.app import app

    app()


def _with_streams() -> None:
    """Opens the null device for each stream that the shell closed (`<&-`, `>&-`).

    Otherwise a file that is opened later would get the number of that stream, and output for a person would go into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
