"""Where the parts of a zip file lie, by its directory and each part's own header, which must agree."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator

from sweepstack.core.printable import printable
from sweepstack.loaders.base import OpenFile, Unreadable, beyond, wrong_crc
from sweepstack.onbox.common.dataclass import dataclass

LOCAL_HEADER = struct.Struct("<4s5H3L2H")
LOCAL_MAGIC = b"PK\x03\x04"
END, END_MAGIC = struct.Struct("<4s4H2LH"), b"PK\x05\x06"
LOCATOR, LOCATOR_MAGIC = struct.Struct("<4sLQL"), b"PK\x06\x07"
END64, END64_MAGIC = struct.Struct("<4sQ2H2L4Q"), b"PK\x06\x06"
ENTRY_SIZE, ENTRY_MAGIC = 46, b"PK\x01\x02"
BEHIND, BEHIND_MAGIC = struct.Struct("<4sL"), b"PK\x07\x08"
MAX_PARTS = 1_000_000
MAX_GROWTH = 64
SPARE = 64 << 20
"""Compressed parts may unpack to MAX_GROWTH times the file's size, and these bytes: more is a bomb."""
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_PATCHED = 0x20
_BEHIND = 0x8
"""A part's CRC and sizes stand behind its bytes; its own header may leave them out."""
_NO_UNPACKING = (  # NotImplementedError: flags of things that zipfile does not do, such as patched data
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    OSError,
    NotImplementedError,
    RuntimeError,
)


@dataclass(frozen=True)
class ZipPart:
    """A part of a zip file: its bytes as stored lie from `start` to `end`; `size` and `crc` are its content's."""

    name: str
    start: int
    end: int
    size: int
    crc: int
    compressed: bool
    info: zipfile.ZipInfo


@dataclass(frozen=True)
class ZipDirectory:
    """The parts by name, in file order, and the archive for reading compressed ones."""

    parts: dict[str, ZipPart]
    archive: zipfile.ZipFile

    @property
    def without_crcs(self) -> bool:
        """Whether its writer computed none: torch.save can be told so, and torch.load never asks."""
        return not any(part.crc for part in self.parts.values())

    def read(self, file: OpenFile, name: str, limit: int) -> bytes:
        """The content of one of `parts`, its CRC checked where there are any. Raises Unreadable, also over `limit`
        bytes."""
        part = self.parts[name]
        if part.size > limit:
            raise beyond(f"{printable(name)} is too large: {part.size:,} bytes, {limit:,} at most")
        if not part.compressed:
            data = file.read(part.start, part.size)
            if zlib.crc32(data) != part.crc and not self.without_crcs:
                raise Unreadable(wrong_crc([name]))
            return data
        try:
            return self.archive.read(part.info)
        except _NO_UNPACKING as error:
            raise Unreadable(f"{printable(name)} does not unpack: {type(error).__name__}") from None

    def unpack(self, part: ZipPart, block_size: int) -> Iterator[bytes]:
        """The content of a compressed part in blocks, all but the last of `block_size`; its CRC and size are met.

        Raises Unreadable, at the end too: what was yielded before counts only when it has come to its end.
        """
        try:
            with self.archive.open(part.info) as stream:
                left = part.size
                while left:
                    block = stream.read(min(block_size, left))
                    if len(block) < min(block_size, left):
                        raise Unreadable(f"{printable(part.name)} is shorter than it says")
                    left -= len(block)
                    yield block
                stream.read(1)  # no byte: zipfile gives none beyond the size. Here an empty part's CRC is met, too
        except _NO_UNPACKING as error:
            raise Unreadable(f"{printable(part.name)} does not unpack ({type(error).__name__})") from None

    def ask_zipfile(self) -> None:
        """Raises Unreadable where Python's zipfile, which numpy reads with, would refuse to open a part."""
        for part in self.parts.values():
            try:
                self.archive.open(part.info).close()
            except _NO_UNPACKING as error:
                raise Unreadable(f"{printable(part.name)} can't be opened ({type(error).__name__})") from None


def is_zip(file: OpenFile) -> bool:
    """Does the file begin as a zip file does?"""
    return file.begins_with(LOCAL_MAGIC)


def read_directory(file: OpenFile, spare: int = SPARE) -> ZipDirectory:
    """The directory of a zip file. Raises Unreadable when it is damaged, or made to mislead. `spare`: see SPARE."""
    try:
        archive = zipfile.ZipFile(os.fdopen(os.dup(file.fd), "rb"))
        infos = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, struct.error, EOFError, NotImplementedError, IndexError) as error:
        raise Unreadable(f"is cut off or damaged: no zip directory ({type(error).__name__})") from None
    if len(infos) > MAX_PARTS:
        raise beyond(f"has {len(infos):,} parts, {MAX_PARTS:,} at most")
    _check_end(file)
    parts: dict[str, ZipPart] = {}
    position = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        part = _part(file, info)
        if info.header_offset < position or (position == 0 and info.header_offset != 0):
            raise Unreadable(f"{printable(part.name)} overlaps another part, or something stands before it")
        if part.end > archive.start_dir:
            raise Unreadable(f"{printable(part.name)} runs into the zip directory")
        if part.name in parts:
            raise Unreadable(f"has two parts named {printable(part.name)}")
        parts[part.name] = part
        position = part.end
    unpacked = sum(part.size for part in parts.values() if part.compressed)
    if unpacked > MAX_GROWTH * file.size + spare:
        raise beyond(f"would unpack to {unpacked:,} bytes, as a zip bomb does")
    return ZipDirectory(parts, archive)


def _check_end(file: OpenFile) -> None:
    """Raises Unreadable unless the file ends with the end of its directory, and all that stands there agrees.

    Python's zipfile lets much of it be anything; the zip reader in torch does not.
    """
    tail = file.read(max(0, file.size - (1 << 16) - END.size), min(file.size, (1 << 16) + END.size))
    found = tail.rfind(END_MAGIC)
    if found < 0 or found + END.size > len(tail):
        raise Unreadable("is cut off or damaged: no end of the zip directory")
    _, disk, first_disk, here, entries, length, start, comment = END.unpack_from(tail, found)
    end = file.size - len(tail) + found
    proper = found + END.size + comment == len(tail)
    if tail[max(0, found - LOCATOR.size) : found].startswith(LOCATOR_MAGIC):
        _, record_disk, record, disks = LOCATOR.unpack_from(tail, found - LOCATOR.size)
        proper = proper and (record_disk, disks) == (0, 1) and record + END64.size <= end - LOCATOR.size
        if proper:
            magic, size, _, _, disk, first_disk, here, entries, length, start = END64.unpack(
                file.read(record, END64.size)
            )
            end -= LOCATOR.size
            proper = magic == END64_MAGIC and record + 12 + size == end
            end = record
    if not proper or (disk, first_disk) != (0, 0) or here != entries or start + length != end:
        raise Unreadable("has a damaged end of its zip directory")
    _walk(file.read(start, length), entries)


def _walk(directory: bytes, entries: int) -> None:
    """Raises Unreadable unless the directory is `entries` headers, each as long as it says, and nothing else.

    Python's zipfile reads on where the last one claims more than there is.
    """
    position = 0
    for _ in range(entries):
        if len(directory) - position < ENTRY_SIZE or not directory.startswith(ENTRY_MAGIC, position):
            raise Unreadable("has a damaged zip directory")
        position += ENTRY_SIZE + sum(struct.unpack_from("<3H", directory, position + 28))
    if position != len(directory):
        raise Unreadable("has a damaged zip directory")


def _part(file: OpenFile, info: zipfile.ZipInfo) -> ZipPart:
    name = printable(info.orig_filename)
    if info.flag_bits & _ENCRYPTED:
        raise Unreadable(f"{name} is encrypted")
    if info.volume:
        raise Unreadable(f"{name} lies in another file of several")
    if info.external_attr & 0x10 or info.is_dir():
        raise Unreadable(f"{name} is a folder")
    if info.flag_bits & _PATCHED:
        raise Unreadable(f"{name} is patched data, which no library reads")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Unreadable(f"{name} is compressed in a way that is not read (method {info.compress_type})")
    compressed = info.compress_type == zipfile.ZIP_DEFLATED
    if not compressed and info.compress_size != info.file_size:
        raise Unreadable(f"{name} has two sizes")
    if not 0 <= info.header_offset <= file.size - LOCAL_HEADER.size:
        raise Unreadable(f"{name} lies outside of the file")
    fields = LOCAL_HEADER.unpack(os.pread(file.fd, LOCAL_HEADER.size, info.header_offset))
    name_length, extra_length = fields[9], fields[10]
    encoding = "utf-8" if info.flag_bits & 0x800 else "cp437"
    stored_name = os.pread(file.fd, name_length, info.header_offset + LOCAL_HEADER.size)
    if fields[0] != LOCAL_MAGIC or stored_name != info.orig_filename.encode(encoding, "surrogateescape"):
        raise Unreadable(f"{name} is not where the zip directory says")
    start = info.header_offset + LOCAL_HEADER.size + name_length + extra_length
    _check_agreement(file, info, fields, start + info.compress_size)
    return ZipPart(info.orig_filename, start, start + info.compress_size, info.file_size, info.CRC, compressed, info)


def _check_agreement(file: OpenFile, info: zipfile.ZipInfo, fields: tuple[int, ...], end: int) -> None:
    """Raises Unreadable where a part's own header, or what stands behind it, gives another CRC than the directory."""
    own = {fields[6]}
    if info.flag_bits & _BEHIND:
        behind = os.pread(file.fd, BEHIND.size, end)
        magic, crc = BEHIND.unpack(behind) if len(behind) == BEHIND.size else (b"", 0)
        own = (own - {0}) | ({crc} if magic == BEHIND_MAGIC else set())
    if own - {info.CRC}:
        raise Unreadable(f"{printable(info.orig_filename)} has two CRCs")
