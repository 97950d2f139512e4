"""Asks a person a question at the terminal. Keys typed before the question do not count.

What a person has to write and a command keeps on record: `--reason` and `--saw`.
"""

from __future__ import annotations

import contextlib
import sys
import termios

from sweepstack.core.columns import COLUMNS, fitted
from sweepstack.onbox.common.errors import Unsure


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


PLACES = frozenset({"…", "...", "what the console shows"})
"""What commands that are printed hold in its place. A line that is pasted as it stands says nothing."""


def own_words(option: str, typed: str) -> str:
    """The text on one line, "" for none. Raises Unsure for what only holds the place of a text."""
    words = " ".join(typed.split())
    if words in PLACES:
        what = "what you saw" if option == "--saw" else "why"
        raise Unsure(f'{option} "{words}": write {what}; "{words}" is only the place for it')
    return words
