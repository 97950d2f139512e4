"""One pass over a file's bytes: SHA-256, CRC-32 and finite numbers, block by block.

A block is read into the same small buffer and stays in the processor's cache for all three, so that a file costs
little more than its SHA-256. Memory: one block.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from sweepstack.loaders.base import NONE, Bad, OpenFile, Progress, Unreadable
from sweepstack.onbox.common.dataclass import dataclass, field

if TYPE_CHECKING:  # numpy takes longer to import than a thousand small files to read: regions with numbers need it
    from sweepstack.loaders.finite import FiniteCheck

BLOCK = 1 << 18
"""Bytes. A multiple of every number's size; fits the second-level cache together with the scratch memory."""
REPORT_EVERY = 32 << 20


class _Kept(threading.local):
    """The memory of a thread for one file after the other: to make it takes longer than to read a small file."""

    def __init__(self) -> None:
        self.block = memoryview(bytearray(BLOCK))
        self.checks: dict[tuple[str, bool], FiniteCheck] = {}


_kept = _Kept()


@dataclass(frozen=True)
class Region:
    """Bytes `start` to `end` of a file: numbers of `format` (see `finite.FORMATS`), or opaque; `crc` to be met.

    `skip`: bytes at its beginning that are no numbers (a header), but are under the CRC.
    """

    start: int
    end: int
    name: str
    crc: int | None = None
    format: str | None = None
    big_endian: bool = False
    skip: int = 0


@dataclass
class Scan:
    """`sha256` as hex; names of regions whose CRC differs; non-finite numbers by region; floating-point regions that
    hold one number only, again and again; seconds by stage."""

    sha256: str = ""
    wrong_crc: list[str] = field(default_factory=list)
    nonfinite: dict[str, Bad] = field(default_factory=dict)
    constant: set[str] = field(default_factory=set)
    stages: dict[str, float] = field(default_factory=dict)


def scan(file: OpenFile, regions: Sequence[Region] = (), progress: Progress | None = None) -> Scan:
    """Reads the whole file once. `regions` are sorted, lie in the file and do not overlap, else Unreadable."""
    return _Pass(file, progress).run(regions)


class _Pass:
    def __init__(self, file: OpenFile, progress: Progress | None) -> None:
        self.file = file
        self.progress = progress
        self.sha = hashlib.sha256()
        self.buffer, self.checks = _kept.block, _kept.checks
        self.result = Scan(stages={"read": 0.0, "sha256": 0.0, "crc": 0.0, "finite": 0.0})
        self.unreported = 0

    def run(self, regions: Sequence[Region]) -> Scan:
        position = 0
        for region in regions:
            if not position <= region.start <= region.start + region.skip <= region.end <= self.file.size:
                raise Unreadable(f"{region.name} overlaps another part, or lies outside of the file")
            self._opaque(position, region.start)
            self._region(region)
            position = region.end
        self._opaque(position, self.file.size)
        self.file.check_unchanged()
        if self.progress and self.unreported:
            self.progress(self.unreported)
        self.result.sha256 = self.sha.hexdigest()
        return self.result

    def _opaque(self, start: int, end: int) -> None:
        while start < end:
            start += len(self._block(start, end))

    def _region(self, region: Region) -> None:
        check = self._check(region)
        stages = self.result.stages
        same = check.constancy() if check is not None else None
        crc, bad, start, numbers = 0, NONE, region.start, region.start + region.skip
        while start < region.end:
            block = self._block(start, region.end if start >= numbers else numbers)
            header = start < numbers
            start += len(block)
            if region.crc is not None:
                begin = perf_counter()
                crc = zlib.crc32(block, crc)
                stages["crc"] += perf_counter() - begin
            if check is not None and same is not None and not header:
                begin = perf_counter()
                bad = bad.and_more(check.bad(block))
                same.feed(block)
                stages["finite"] += perf_counter() - begin
        if region.crc is not None and crc != region.crc:
            self.result.wrong_crc.append(region.name)
        if bad.total:
            self.result.nonfinite[region.name] = bad
        if same is not None and same.holds:
            self.result.constant.add(region.name)

    def _block(self, start: int, end: int) -> memoryview:
        """The next block, whole unless `end` comes first, and already hashed."""
        begin = perf_counter()
        block = self.buffer[: min(BLOCK, end - start)]
        filled = 0
        while filled < len(block):
            count = os.preadv(self.file.fd, [block[filled:]], start + filled)
            if not count:
                raise Unreadable("shrank while it was read")
            filled += count
        middle = perf_counter()
        self.sha.update(block)
        self.result.stages["read"] += middle - begin
        self.result.stages["sha256"] += perf_counter() - middle
        self.unreported += len(block)
        if self.progress and self.unreported >= REPORT_EVERY:
            self.progress(self.unreported)
            self.unreported = 0
        return block

    def _check(self, region: Region) -> FiniteCheck | None:
        if region.format is None:
            return None
        key = (region.format, region.big_endian)
        if key not in self.checks:
            from sweepstack.loaders.finite import FiniteCheck

            self.checks[key] = FiniteCheck(region.format, block=BLOCK, big_endian=region.big_endian)
        check = self.checks[key]
        if (region.end - region.start - region.skip) % check.format.itemsize:
            raise Unreadable(f"{region.name} does not hold whole numbers")
        return check if check.format.can_fail else None
