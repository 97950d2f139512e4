"""The readers of archives: tar, WebDataset, zip. Nothing of them is written to a disk."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import numpy as np

from sweepstack.core.extras import lacks
from sweepstack.core.printable import printable
from sweepstack.extensions.formats.shared import LibraryFile
from sweepstack.loaders.base import Bad, Content, NoAnswer, NonFinite, OpenFile, Spec, Unreadable, beyond, some
from sweepstack.loaders.csv_file import unpacked
from sweepstack.loaders.scan import BLOCK, Scan
from sweepstack.loaders.torch_files.archive import zip_regions
from sweepstack.loaders.zipdir import is_zip, read_directory

MAX_MEMBERS = 1_000_000
MAX_PART = 256 << 20
"""Bytes of a part of a sample that is read."""
_NO_TAR = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, OSError, ValueError)


class Tar(LibraryFile):
    """A tar archive, also of gzip. Read member by member; links and devices in it are no mistake, and not followed."""

    def content(self, scanned: Scan) -> Content:
        """Names of members. Raises Unreadable for one that is cut off, an archive without its end, or an empty one."""
        return Content({name for name, _ in self.members()})

    def members(self, wanted: Any = lambda _name: False) -> Iterator[tuple[str, bytes]]:
        """Each member with its bytes, those that are `wanted`; of the others they are read and let go."""
        count = 0
        with unpacked(self.file) as handle:
            stream = _Stream(handle)
            try:
                with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|", errorlevel=2) as archive:
                    for member in archive:
                        count += 1
                        if count > MAX_MEMBERS:
                            raise beyond(f"has more than {MAX_MEMBERS:,} members")
                        yield member.name, self._data(archive, member, wanted(member.name))
                stream.check_end()
            except _NO_TAR as error:
                raise Unreadable(f"is cut off or damaged: tarfile refuses it ({type(error).__name__})") from None
        if not count:
            raise Unreadable("holds no member, or is no tar archive")

    @staticmethod
    def _data(archive: tarfile.TarFile, member: tarfile.TarInfo, wanted: bool) -> bytes:
        if not member.isreg():
            return b""
        if wanted and member.size > MAX_PART:
            raise beyond(f"{printable(member.name)} has {member.size:,} bytes, {MAX_PART:,} at most")
        opened = archive.extractfile(member)
        assert opened is not None
        data, left = [], member.size
        while left:
            block = opened.read(min(left, BLOCK))
            if not block:
                raise Unreadable(f"{printable(member.name)} is cut off")
            left -= len(block)
            data += [block] if wanted else []
        return b"".join(data)


class _Stream:
    """The bytes of an archive as tarfile asks for them; the last 1,024 of them are kept."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle, self._last, self._total = handle, b"", 0

    def read(self, size: int) -> bytes:
        """The next ones."""
        data = self._handle.read(size)
        self._last, self._total = (self._last + data[-1024:])[-1024:], self._total + len(data)
        return data

    def check_end(self) -> None:
        """Raises Unreadable without the zeros that end an archive: tarfile takes one that is cut between members."""
        while self.read(BLOCK):
            pass  # to the end of a gzip, where its CRC is
        if self._total < 1024 or self._total % 512 or self._last.strip(b"\0"):
            raise Unreadable("is cut off: it lacks the zeros that end a tar archive, or has something behind them")


class Webdataset(Tar):
    """A tar archive of samples: `0001.jpg`, `0001.json`, …, the parts of each one behind the other."""

    def content(self, scanned: Scan) -> Content:
        """Names of parts (`jpg`, `json`) that each sample has. Raises Unreadable for a sample that comes twice, is torn
        apart or lacks a part, and for a json, npy or image that does not read."""
        done, now, parts = set[str](), "", set[str]()
        shape: frozenset[str] | None = None
        found = Content()
        for name, data in self.members(lambda one: _ending(one) in _READERS):
            folder, _, last = name.rpartition("/")
            stem, _, ending = last.partition(".")
            if not stem or not ending:
                continue  # what begins with a dot, or has no ending, is of no sample
            key = f"{folder}/{stem}"
            if key != now:
                shape = self._same(shape, parts, now)
                done.add(now)
                now, parts = key, set()
                if key in done:
                    raise Unreadable(f"has the sample {printable(key)} in two places")
            if ending in parts:
                raise Unreadable(f"has {printable(name)} twice")
            parts.add(ending)
            self._read(name, data, found)
        shape = self._same(shape, parts, now)
        if not shape:
            raise Unreadable("holds no sample")
        found.names = set(shape)
        return found

    @staticmethod
    def _same(shape: frozenset[str] | None, parts: set[str], key: str) -> frozenset[str] | None:
        if shape is not None and parts != shape:
            other = some(sorted(shape ^ parts))
            raise Unreadable(f"has a sample {printable(key)} that differs from the others by {other}")
        return frozenset(parts) if parts else None

    @staticmethod
    def _read(name: str, data: bytes, found: Content) -> None:
        reader = _READERS.get(_ending(name))
        if reader is None:
            return
        try:
            bad = reader(data)
        except (NoAnswer, Unreadable, MemoryError):
            raise
        except Exception as error:
            raise Unreadable(f"{printable(name)} does not read ({type(error).__name__})") from None
        if bad and len(found.nonfinite) < 1000:
            found.nonfinite.append(NonFinite(name, Bad(bad, bad)))


class Zip:
    """A zip archive: each part whole, by its CRC."""

    def __init__(self, file: OpenFile, spec: Spec) -> None:
        if not is_zip(file):
            raise Unreadable("is no zip archive, damaged from the start, or empty")
        self.directory = read_directory(file, spare=1 << 30)
        self.regions = zip_regions(self.directory, {})

    def content(self, scanned: Scan) -> Content:
        """Names of parts. Raises Unreadable."""
        for part in self.directory.parts.values():
            for _ in self.directory.unpack(part, BLOCK) if part.compressed else ():
                pass
        return Content(set(self.directory.parts))


def _ending(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[2].lower()


def _json_part(data: bytes) -> int:
    json.loads(data)
    return 0


def _npy_part(data: bytes) -> int:
    values = np.load(io.BytesIO(data), allow_pickle=False)
    return int(values.size - np.count_nonzero(np.isfinite(values))) if values.dtype.kind in "fc" else 0


def _image_part(data: bytes) -> int:
    if why := lacks("image"):
        raise NoAnswer(f"holds images, which can't be read here: {why}")
    from sweepstack.extensions.formats.image import decode

    decode(io.BytesIO(data))
    return 0


_READERS: dict[str, Any] = {
    "json": _json_part,
    "npy": _npy_part,
    **dict.fromkeys(("png", "jpg", "jpeg"), _image_part),
}
