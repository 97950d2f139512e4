"""Asks a person a question at the terminal. Keys typed before the question do not count."""

from __future__ import annotations

import contextlib
import sys
import termios

from sweepstack.core.columns import COLUMNS, fitted


def answer(question: str) -> str:
    """Shows `question` on stderr and returns the line typed after it; "" if the terminal is gone.

    A "yes" typed while the command was still at work is discarded: the person had not seen the question.
    """
    with contextlib.suppress(termios.error, OSError, ValueError):  # no terminal, so nothing was typed ahead
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    if len(question) > COLUMNS:  # keeps what is to be typed on one line
        question = f"{fitted(question.rstrip().replace(' Type ', chr(10) + 'Type '))} "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
