"""Checks that all numbers in a block of bytes are finite, at memory speed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepstack.loaders.base import NONE, Bad
from sweepstack.onbox.common.dataclass import dataclass


@dataclass(frozen=True)
class Format:
    """A number format. `itemsize` in bytes; `unit`: the numpy type that its bytes are looked at as.

    Not finite is what numpy says for float units; else a unit with all bits of `mask` set, or one equal to `exact`.
    A format with none of these can't hold anything but numbers.
    """

    itemsize: int
    unit: str
    mask: int = 0
    exact: int | None = None

    @cached_property
    def floating(self) -> bool:
        """Can numpy judge it?"""
        return self.unit.startswith("f")

    @cached_property
    def can_fail(self) -> bool:
        """Can it hold a NaN or an infinity?"""
        return self.floating or bool(self.mask) or self.exact is not None


FORMATS: dict[str, Format] = {
    "f8": Format(8, "f8"),
    "f4": Format(4, "f4"),
    "f2": Format(2, "u2", mask=0x7C00),  # numpy's own check of halves is 15 times slower
    "bf16": Format(2, "u2", mask=0x7F80),
    "c16": Format(16, "f8"),
    "c8": Format(8, "f4"),
    "c4": Format(4, "u2", mask=0x7C00),
    "bc4": Format(4, "u2", mask=0x7F80),
    "f8_e4m3fn": Format(1, "u1", mask=0x7F),
    "f8_e5m2": Format(1, "u1", mask=0x7C),
    "f8_e4m3fnuz": Format(1, "u1", exact=0x80),
    "f8_e5m2fnuz": Format(1, "u1", exact=0x80),
    "f8_e8m0": Format(1, "u1", exact=0xFF),
    **{name: Format(int(name[1]), "u1") for name in ("i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1")},
    "bool": Format(1, "u1"),
}
DTYPES: dict[str, str] = {
    "float64": "f8",
    "float32": "f4",
    "float16": "f2",
    "bfloat16": "bf16",
    "complex128": "c16",
    "complex64": "c8",
    "complex32": "c4",
    "float8_e4m3fn": "f8_e4m3fn",
    "float8_e5m2": "f8_e5m2",
    "float8_e4m3fnuz": "f8_e4m3fnuz",
    "float8_e5m2fnuz": "f8_e5m2fnuz",
    "float8_e8m0fnu": "f8_e8m0",
    "int64": "i8",
    "int32": "i4",
    "int16": "i2",
    "int8": "i1",
    "uint64": "u8",
    "uint32": "u4",
    "uint16": "u2",
    "uint8": "u1",
    "bool": "bool",
    "bcomplex32": "bc4",
    "float4_e2m1fn_x2": "u1",
    "qint32": "i4",
    "qint8": "i1",
    "quint8": "u1",
}
"""By the names that libraries give to number types."""


class FiniteCheck:
    """Checks blocks of at most `block` bytes that hold whole numbers of one format. Reuses its scratch memory."""

    def __init__(self, name: str, *, block: int, big_endian: bool = False) -> None:
        self.format = FORMATS[name]
        self.dtype: np.dtype[Any] = np.dtype((">" if big_endian else "<") + self.format.unit)
        self._scratch: NDArray[Any] = np.empty(
            block // self.dtype.itemsize, dtype=np.bool_ if self.format.floating else self.dtype
        )
        self._mask: Any = None if self.format.floating else np.array(self.format.mask, dtype=self.dtype)

    def holds(self, data: memoryview) -> bool:
        """Is every number in `data` finite?"""
        if not self.format.can_fail or not len(data):
            return True
        values: NDArray[Any] = np.frombuffer(data, self.dtype)
        scratch = self._scratch[: values.size]
        if self.format.floating:
            return bool(np.count_nonzero(np.isfinite(values, out=scratch)) == values.size)
        if self.format.mask:
            return bool(np.bitwise_and(values, self._mask, out=scratch).max() != self.format.mask)
        return not bool((values == self.format.exact).any())

    def count(self, values: NDArray[Any]) -> Bad:
        """How many of `values`, an array of `dtype`, are not finite. A complex number may count twice."""
        if self.format.floating:
            odd = int(values.size - np.count_nonzero(np.isfinite(values)))
            return Bad(odd, int(np.count_nonzero(np.isnan(values))))
        if not self.format.mask:
            odd = int(np.count_nonzero(values == self.format.exact))
            return Bad(odd, odd)
        found = values[(values & self._mask) == self.format.mask]
        fraction = (self.format.mask & -self.format.mask) - 1  # the bits below the exponent: an infinity has none
        return Bad(found.size, int(np.count_nonzero(found & fraction)) if fraction else found.size)

    def bad(self, data: memoryview) -> Bad:
        """How many of the numbers in `data` are not finite, as `count` says; nothing is counted where all are."""
        return NONE if self.holds(data) else self.count(np.frombuffer(data, self.dtype))

    def constancy(self) -> Constancy:
        """For a run of numbers of this format."""
        return Constancy(self.format.itemsize)


class Constancy:
    """Whether a run of numbers of `itemsize` bytes is one number only, again and again, bit by bit.

    Costs next to nothing for a run that is not: no block is looked at after the first difference.
    """

    def __init__(self, itemsize: int) -> None:
        self._itemsize = itemsize
        self._first: bytes | None = None
        self._differs = False

    @property
    def holds(self) -> bool:
        """True when at least one number was fed, and all were the same."""
        return self._first is not None and not self._differs

    def feed(self, block: memoryview) -> None:
        """The next whole numbers."""
        if self._differs or not len(block):
            return
        size = self._itemsize
        first = bytes(block[:size])
        self._first = first if self._first is None else self._first
        values: NDArray[Any] = np.frombuffer(block, np.uint8)
        self._differs = (
            first != self._first or bytes(block[-size:]) != first or not np.array_equal(values[size:], values[:-size])
        )
