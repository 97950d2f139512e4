"""The reader of safetensors files: the library judges the header, our own pass every byte."""

from __future__ import annotations

import json
import struct
from typing import Any

from sweepstack.core.printable import printable
from sweepstack.loaders.base import Content, NonFinite, OpenFile, Unreadable, beyond, unique_keys
from sweepstack.loaders.finite import FORMATS
from sweepstack.loaders.scan import Region, Scan

MAX_HEADER = 100_000_000
"""Bytes; the format's own bound."""
_DTYPES = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "BF16": "bf16",
    "C64": "c8",
    "F8_E4M3": "f8_e4m3fn",
    "F8_E5M2": "f8_e5m2",
    "F8_E4M3FNUZ": "f8_e4m3fnuz",
    "F8_E5M2FNUZ": "f8_e5m2fnuz",
    "F8_E8M0": "f8_e8m0",
    "I64": "i8",
    "I32": "i4",
    "I16": "i2",
    "I8": "i1",
    "U64": "u8",
    "U32": "u4",
    "U16": "u2",
    "U8": "u1",
    "BOOL": "bool",
}
_PACKED = ("F4", "F6_E2M3", "F6_E3M2")
"""What the library knows besides: numbers of less than a byte."""


class SafetensorsFile:
    """A safetensors file's structure. Raises Unreadable when it is none."""

    def __init__(self, file: OpenFile) -> None:
        self.names, self.regions = _read_header(file)
        _ask_library(file)

    def content(self, scanned: Scan) -> Content:
        """Names of tensors, and non-finite numbers by tensor."""
        if not any(region.end > region.start for region in self.regions):
            raise Unreadable("holds no tensor")
        found = Content(set(self.names))
        for region in self.regions:
            format_ = FORMATS[region.format or "u1"]
            if bad := scanned.nonfinite.get(region.name):
                single = region.end - region.start == format_.itemsize
                found.nonfinite.append(NonFinite(region.name, bad, single))
            if format_.can_fail and region.end - region.start > format_.itemsize:
                found.add_floats(region.name, constant=region.name in scanned.constant)
        return found


def _read_header(file: OpenFile) -> tuple[list[str], list[Region]]:
    if file.size < 8:
        raise Unreadable("is too short for a safetensors file")
    (length,) = struct.unpack("<Q", file.read(0, 8))
    if length > MAX_HEADER or 8 + length > file.size:
        raise Unreadable("is no safetensors file, or cut off in its header")
    try:
        header = json.loads(file.read(8, length).decode("utf-8"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        raise Unreadable("has a header that is not JSON") from None
    if not isinstance(header, dict):
        raise Unreadable("has a header that is not an object")
    header.pop("__metadata__", None)
    base = 8 + length
    regions = sorted((_region(name, entry, base) for name, entry in header.items()), key=lambda r: (r.start, r.end))
    position = base
    for region in regions:
        if region.start != position:
            raise Unreadable(f"{printable(region.name)} does not lie where its neighbour ends")
        position = region.end
    if position != file.size:
        raise Unreadable(f"is cut off or too long: its header speaks of {position:,} bytes")
    return list(header), regions


def _region(name: str, entry: Any, base: int) -> Region:
    if isinstance(entry, dict) and entry.get("dtype") in _PACKED:
        raise beyond(f"{printable(name)} is of {entry['dtype']}, whose numbers this reader does not know")
    try:
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        format_ = _DTYPES[dtype]
        numbers = [start, end, *shape]
    except (KeyError, TypeError, ValueError):
        raise Unreadable(f"{printable(name)} has no known dtype, shape and offsets") from None
    if set(map(type, numbers)) != {int} or min(numbers) < 0:  # True is no size, and of another type
        raise Unreadable(f"{printable(name)} has sizes that are no sizes")
    size = FORMATS[format_].itemsize
    for length in shape:
        size *= length
    if end - start != size:
        raise Unreadable(f"{printable(name)} has {end - start:,} bytes where its shape needs {size:,}")
    return Region(base + start, base + end, name, None, format_)


def _ask_library(file: OpenFile) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file.path, framework="numpy") as handle:
            handle.keys()
    except (SafetensorError, OSError, ValueError) as error:
        raise Unreadable(f"safetensors refuses it ({type(error).__name__})") from None
