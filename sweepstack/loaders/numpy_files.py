"""Reads numpy's files, `.npy` and `.npz`, without ever unpickling."""

from __future__ import annotations

import ast
import io
import math
import struct
import warnings
from collections.abc import Iterable, Iterator
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepstack.core.printable import printable
from sweepstack.loaders.base import NO_NUMBER, NONE, Bad, Content, NonFinite, OpenFile, Unreadable, Unsupported, beyond
from sweepstack.loaders.finite import FORMATS, FiniteCheck
from sweepstack.loaders.scan import BLOCK, Region, Scan
from sweepstack.loaders.zipdir import ZipPart, is_zip, read_directory
from sweepstack.onbox.common.dataclass import dataclass

MAGIC = b"\x93NUMPY"
MAX_TEXT = 10_000
"""Characters of a header: numpy's own bound for files that it does not trust."""
MAX_HEADER = 4 * MAX_TEXT + 12
"""Bytes of a header."""
MAX_DIMENSIONS = 64
"""Of an array in numpy 2."""
MAX_RECORD = 1 << 19
"""Bytes of one element: an array of larger records has no use, and a reader no room."""
SPARE = 4 << 30
"""Bytes that a compressed file may unpack to beside what `zipdir` lets it: arrays of zeros shrink a thousandfold, and
no block of them stays in memory."""
_ENTRY = ".npy"
_PLAIN = {"f": "f", "i": "i", "u": "u", "c": "c", "b": "bool"}


@dataclass(frozen=True)
class Header:
    """What stands before the numbers of one array: `length` in bytes. `format` None: judged by numpy, not by bits."""

    length: int
    dtype: np.dtype[Any]
    count: int

    @property
    def format(self) -> str | None:
        """The number format by `finite.FORMATS`."""
        kind = _PLAIN.get(self.dtype.kind)
        name = "bool" if kind == "bool" else f"{kind}{self.dtype.itemsize}"
        return name if self.dtype.fields is None and name in FORMATS else None

    @property
    def big_endian(self) -> bool:
        """Whether its numbers stand with the high byte first."""
        return self.dtype.str.startswith(">")


class NpyFile:
    """One array. Raises Unreadable when it is none, is cut off, or holds Python objects."""

    def __init__(self, file: OpenFile) -> None:
        if is_zip(file):
            raise Unreadable("is an npz file: say load: npz")
        self.file = file
        self.header = read_header(file.read(0, min(file.size, MAX_HEADER)), file.size)
        self.regions = [_region(self.header, "array", 0, file.size, None)]

    def content(self, scanned: Scan) -> Content:
        """No names: an array has none."""
        if not self.header.count:
            raise Unreadable("holds no numbers")
        found = Content(nonfinite=[NonFinite(name, bad) for name, bad in scanned.nonfinite.items()])
        if _floats(self.header):
            found.add_floats("array", constant="array" in scanned.constant)
        if self.header.format is None:
            _by_numpy(found, "array", self.header, _stored(self.file, self.header, self.header.length, self.file.size))
        return found


class NpzFile:
    """Arrays by name. Raises Unreadable when it is no zip file of arrays."""

    def __init__(self, file: OpenFile) -> None:
        if not is_zip(file):
            raise Unreadable("is not an npz file: no zip file, damaged from the start, or an npy")
        self.file = file
        self.directory = read_directory(file, SPARE)
        self.directory.ask_zipfile()
        self.headers: dict[str, Header] = {}
        for name, part in self.directory.parts.items():
            if name.endswith(_ENTRY):
                try:
                    self.headers[name] = read_header(self._beginning(part), part.size)
                except Unreadable as error:
                    raise type(error)(f"{printable(name)} {error}") from None
        self.regions = [self._region(part) for part in self.directory.parts.values() if not part.compressed]

    def content(self, scanned: Scan) -> Content:
        """Names without `.npy`, as numpy.load has them, and non-finite numbers by array."""
        if not any(header.count for header in self.headers.values()):
            raise Unreadable("holds no numbers")
        names = {name.removesuffix(_ENTRY) for name in self.directory.parts}
        bad = scanned.nonfinite.items()
        found = Content(names, [NonFinite(n.removesuffix(_ENTRY), b, self.headers[n].count == 1) for n, b in bad])
        for name, part in self.directory.parts.items():
            header, shown = self.headers.get(name), name.removesuffix(_ENTRY)
            constant = name in scanned.constant
            if part.compressed:
                constant = _unpacked(found, shown, self.directory.unpack(part, BLOCK), header)
            elif header is not None and header.format is None:
                _by_numpy(found, shown, header, _stored(self.file, header, part.start + header.length, part.end))
            if header is not None and _floats(header):
                found.add_floats(shown, constant=constant)
        return found

    def _beginning(self, part: ZipPart) -> bytes:
        if part.compressed:
            return next(self.directory.unpack(part, min(MAX_HEADER, max(part.size, 1))), b"")
        return self.file.read(part.start, min(part.size, MAX_HEADER))

    def _region(self, part: ZipPart) -> Region:
        header = self.headers.get(part.name)
        if header is None:
            return Region(part.start, part.end, part.name, part.crc)
        return _region(header, part.name, part.start, part.end, part.crc)


def read_header(data: bytes, size: int) -> Header:
    """The header of an array in `data`, the first bytes of `size`. Raises Unreadable with a reason that may follow a
    name: not one, of objects, cut off, too long."""
    if len(data) < 10 or not data.startswith(MAGIC):
        raise Unreadable("is no numpy array, or damaged from the start")
    version = data[6]
    if version not in (1, 2, 3) or data[7] != 0 or (version > 1 and len(data) < 12):
        raise Unreadable(f"is of numpy's format {version}, and 1 to 3 are read")
    begin = 10 if version == 1 else 12
    (length,) = struct.unpack_from("<H" if version == 1 else "<I", data, 8)
    if begin + length > len(data):
        raise Unreadable("is cut off in its header, or has one that is too long")
    try:
        shape, dtype = _shape_and_dtype(version, data[8 : begin + length])
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, OverflowError, TokenError, MemoryError):
        raise Unreadable("has a header that does not read") from None
    if not all(isinstance(part, int) and not isinstance(part, bool) and part >= 0 for part in shape):
        raise Unreadable("has a header that does not read")
    if len(shape) + dtype.ndim > MAX_DIMENSIONS:
        raise Unreadable(f"has {len(shape):,} dimensions, {MAX_DIMENSIONS} at most")
    if dtype.hasobject:
        raise Unsupported(
            "holds Python objects (dtype object): save it with a number type, or judge it by load: command"
        )
    if not 0 < dtype.itemsize <= MAX_RECORD:
        raise beyond(f"has elements of {dtype.itemsize:,} bytes, 1 to {MAX_RECORD:,} are read")
    count = math.prod(shape)
    expected = begin + length + count * dtype.itemsize
    if expected != size:
        raise Unreadable(f"is cut off or too long: {size:,} bytes, its shape needs {expected:,}")
    return Header(begin + length, dtype, count)


def _shape_and_dtype(version: int, data: bytes) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """As numpy reads them: `data` begins with the header's length. Raises what numpy raises, ValueError mostly."""
    with warnings.catch_warnings():  # a header that Python 2 wrote is read with a warning
        warnings.simplefilter("ignore")
        if version == 1:
            shape, _, dtype = np.lib.format.read_array_header_1_0(io.BytesIO(data))
            return shape, dtype
        if version == 2:
            shape, _, dtype = np.lib.format.read_array_header_2_0(io.BytesIO(data))
            return shape, dtype
    text = data[4:].decode("utf-8")  # version 3, which numpy reads with no public function
    fields = ast.literal_eval(text)
    proper = isinstance(fields, dict) and set(fields) == {"descr", "fortran_order", "shape"}
    if not proper or len(text) > MAX_TEXT or not isinstance(fields["shape"], tuple):
        raise ValueError
    if not isinstance(fields["fortran_order"], bool):
        raise ValueError
    return fields["shape"], np.lib.format.descr_to_dtype(fields["descr"])


def _region(header: Header, name: str, start: int, end: int, crc: int | None) -> Region:
    return Region(start, end, name, crc, header.format, header.big_endian, header.length)


def _stored(file: OpenFile, header: Header, start: int, end: int) -> Iterator[bytes]:
    """The bytes of an array's elements as they lie in the file, whole elements at a time."""
    step = max(1, BLOCK // header.dtype.itemsize) * header.dtype.itemsize
    while start < end:
        yield file.read(start, min(step, end - start))
        start += step


def _floats(header: Header) -> bool:
    """Whether it is an array of two or more floating-point numbers that are judged by their bits."""
    return header.format is not None and FORMATS[header.format].can_fail and header.count > 1


def _unpacked(found: Content, name: str, blocks: Iterable[bytes], header: Header | None) -> bool:
    """Unpacks to the end, so that the CRC is met, and adds what is not finite: are all its numbers the same? What is no
    array has none."""
    if header is None:
        for _ in blocks:
            pass
        return False
    if header.format is None:
        _by_numpy(found, name, header, _elements(blocks, header))
        return False
    check = FiniteCheck(header.format, block=2 * BLOCK, big_endian=header.big_endian)
    bad, same = NONE, check.constancy()
    for block in _elements(blocks, header):
        bad = bad.and_more(check.bad(memoryview(block)))
        same.feed(memoryview(block))
    found.nonfinite += [NonFinite(name, bad, header.count == 1)] if bad.total else []
    return same.holds


def _elements(blocks: Iterable[bytes], header: Header) -> Iterator[bytes]:
    """Cuts a stream into whole elements, its header taken off."""
    rest, skip = b"", header.length
    for block in blocks:
        data = rest + block[skip:]
        skip = max(0, skip - len(block))
        whole = len(data) - len(data) % header.dtype.itemsize
        rest = data[whole:]
        if whole:
            yield data[:whole]


def _by_numpy(found: Content, name: str, header: Header, blocks: Iterable[bytes]) -> None:
    """Adds what is not finite, and texts in place of numbers, in arrays that are not judged by their bits: of records,
    of times, of texts."""
    count, absent = 0, False
    for block in blocks:
        values = np.frombuffer(block, header.dtype)
        count += _count(values)
        absent = absent or _absent(values)
    found.nonfinite += [NonFinite(name, Bad(count, count))] if count else []
    found.absent += [name] if absent else []


def _count(values: NDArray[Any]) -> int:
    if values.dtype.fields is not None:
        return sum(_count(values[name]) for name in values.dtype.names or ())
    if values.dtype.kind in "mM":
        return int(np.count_nonzero(np.isnat(values)))
    if values.dtype.kind not in "fc":
        return 0
    return int(values.size - np.count_nonzero(np.isfinite(values)))


def _absent(values: NDArray[Any]) -> bool:
    """Is there a text such as "nan" in it?"""
    if values.dtype.fields is not None:
        return any(_absent(values[name]) for name in values.dtype.names or ())
    if values.dtype.kind not in "US" or not values.dtype.itemsize:
        return False
    flat = np.ascontiguousarray(values).ravel()
    if values.dtype.kind == "U":  # from a damaged file, numbers that are no characters: no str may be made of them
        codes = flat.view(np.dtype("u4").newbyteorder(values.dtype.byteorder))
        flat = np.where(codes < 128, codes, 1).astype("u1").view(f"S{values.dtype.itemsize // 4}")
    return any(NO_NUMBER.fullmatch(text.decode("latin-1").strip()) for text in set(flat.tolist()))
