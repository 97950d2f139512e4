"""Arrays that a library gives: what is not finite in them, and whether they are constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from sweepstack.core.printable import printable
from sweepstack.loaders.base import NONE, Content, NonFinite, beyond
from sweepstack.loaders.finite import DTYPES, FORMATS, FiniteCheck
from sweepstack.loaders.scan import BLOCK

NUMBERS = {name: kind for name, kind in DTYPES.items() if FORMATS[kind].can_fail}
"""Number types that can hold a NaN or an infinity."""
MAX_ROWS = 1 << 30
"""Bytes of an array that are read at once, at most."""


class Numbers:
    """A run of numbers, part by part. `kind` by `loaders.finite.FORMATS`."""

    def __init__(self, kind: str) -> None:
        self._check = FiniteCheck(kind, block=BLOCK)
        self._same, self._bad, self._length = self._check.constancy(), NONE, 0

    def feed(self, data: memoryview) -> None:
        """The next bytes of whole numbers, the low byte first."""
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            self._bad = self._bad.and_more(self._check.bad(block))
            self._same.feed(block)
        self._length += len(data)

    def note(self, found: Content, name: str) -> None:
        """Writes down what was found, under this name."""
        single = self._length == self._check.format.itemsize
        if self._bad.total:
            found.nonfinite.append(NonFinite(name, self._bad, single))
        if self._length and not single:
            found.add_floats(name, constant=self._same.holds)


class Arrays:
    """One array in parts, as numpy has them; of whole numbers, texts and objects nothing is noted."""

    def __init__(self) -> None:
        self._numbers: Numbers | None = None

    def feed(self, values: Any) -> None:
        """The next part, of the same number type."""
        kind = NUMBERS.get(values.dtype.name)
        if kind is None or not values.size:
            return
        self._numbers = self._numbers or Numbers(kind)
        whole = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        self._numbers.feed(whole.reshape(-1).view(np.uint8).data)

    def note(self, found: Content, name: str) -> None:
        """See `Numbers.note`."""
        if self._numbers is not None:
            self._numbers.note(found, name)


def add_array(found: Content, name: str, values: Any) -> None:
    """Notes one array of numpy."""
    arrays = Arrays()
    arrays.feed(np.asarray(values))
    arrays.note(found, name)


def add_parts(found: Content, name: str, array: Any, part: int, chunk: int = 1) -> None:
    """Notes an array of a library, read in parts of `part` bytes or `chunk` rows, whichever is more. `array` has shape,
    dtype and slices."""
    if not array.shape:
        add_array(found, name, array[()])
        return
    size = max(1, array.dtype.itemsize)
    for length in array.shape[1:]:
        size *= length
    rows, arrays = max(1, part // max(size, 1), chunk), Arrays()
    if rows * size > MAX_ROWS:
        raise beyond(f"{printable(name)} has rows of {size:,} bytes")
    for at in range(0, array.shape[0], rows):
        arrays.feed(array[at : min(at + rows, array.shape[0])])
    arrays.note(found, name)
