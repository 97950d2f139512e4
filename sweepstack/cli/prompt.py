"""The one way in which a command asks a person: what was typed before the question is no answer to it."""

from __future__ import annotations

import contextlib
import sys
import termios

from sweepstack.core.columns import COLUMNS, fitted


def answer(question: str) -> str:
    """What is typed after `question` was shown (on stderr), without the line's end; "" where the terminal is gone.

    A "yes" that was typed while the command was still at work is thrown away: its person had not seen the question.
    """
    with contextlib.suppress(termios.error, OSError, ValueError):  # no terminal, and so nothing typed ahead
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    if len(question) > COLUMNS:  # what is to be typed is asked on one line
        question = f"{fitted(question.rstrip().replace(' Type ', chr(10) + 'Type '))} "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
