"""Prints a log without control sequences, and finds where its last lines begin."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable

from sweepstack.cli.cell_file import CHUNK

_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b[^\[\]]|[\x00-\x08\x0b\x0c\x0e-\x1a]"
)
"""Control sequences that are removed: all but colours."""
_ERASE = "\r\x1b[K"


class Printer:
    """Writes a log's bytes to stdout, and joins characters and sequences that a chunk cut in two.

    On a terminal, what a progress bar wrote over is left out: only the last text of each line is shown.

    `left`: the reader of stdout has ended (`| head`), which raised BrokenPipeError.
    """

    def __init__(self) -> None:
        self.left = False
        self._returned = False
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, data: bytes) -> None:
        text = self._text.decode(data)
        try:
            sys.stdout.write(self._settled(_CONTROL.sub("", text)) if sys.stdout.isatty() else text)
            sys.stdout.flush()
        except BrokenPipeError:
            self.left = True
            raise

    def _settled(self, text: str) -> str:
        """Each line as it stood in the end. One that an earlier chunk began is erased before it is written anew."""
        returned, self._returned = self._returned, text.endswith("\r")
        first, *rest = (("\r" if returned else "") + text).replace("\r\n", "\n").split("\n")
        begun, *over = first.split("\r")
        again = f"{_ERASE}{_last(over)}" if any(over) else begun
        return "\n".join([again, *(_last(line.split("\r")) for line in rest)])


def _last(parts: list[str]) -> str:
    return next(filter(None, reversed(parts)), "")


def start_of(read: Callable[[int, int], bytes], end: int, tail: int | None) -> int:
    """The offset at which the last `tail` lines begin; reads backwards, so that a long log costs no more."""
    if tail is None:
        return 0
    start, newlines = end, 0
    while start > 0:
        step = min(CHUNK, start)
        data = read(start - step, step)
        for index in range(len(data) - 1, -1, -1):
            if data[index : index + 1] == b"\n" and start - step + index != end - 1:
                newlines += 1
                if newlines == tail:
                    return start - step + index + 1
        start -= step
    return 0 if tail else end
