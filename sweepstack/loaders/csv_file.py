"""The reader of CSV files: one header, rows as long as it is, and numbers that are numbers."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from io import FileIO
from typing import BinaryIO, cast

from sweepstack.core.printable import printable
from sweepstack.loaders.base import NO_NUMBER, Bad, Content, NonFinite, OpenFile, Unreadable, beyond, plural, some
from sweepstack.loaders.scan import Region, Scan
from sweepstack.onbox.common.dataclass import dataclass, field

MAX_FIELD = 1 << 20
"""Characters of one field."""
MAX_COLUMNS = 100_000
GZIP = b"\x1f\x8b"
"""How a gzip begins."""
NO_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading an `unpacked` file raises where it is cut or damaged."""


def unpacked(file: OpenFile) -> BinaryIO:
    """A file from its beginning on, unpacked where it is a gzip: its CRC is met at the end."""
    handle = file.stream()
    if not file.begins_with(GZIP):
        return handle
    opened = gzip.GzipFile(fileobj=handle)
    opened.myfileobj = cast(FileIO, handle)  # closed with it
    return cast(BinaryIO, opened)


@dataclass
class Column:
    """What one column held. A column is one of numbers when nothing in it is anything else."""

    name: str
    numbers: int = 0
    words: int = 0
    nonfinite: int = 0
    empty: int = 0
    absent: int = 0


@dataclass
class CsvFile:
    """A CSV file: UTF-8, commas, `"` as quote, the first row names the columns. Read row by row, also of a gzip."""

    file: OpenFile
    separator: str = ","
    regions: tuple[Region, ...] = field(default=())

    def content(self, scanned: Scan) -> Content:
        """Names of columns; NaN and infinities by column, also a number too large (1e999).

        Rows must be as long as the header; blank lines are nothing. An empty field is no number and no mistake, but it
        is noted in a column of numbers, since some programs write NaN so. A column in which every field is empty has
        no name: `keys` that name it ask for what is in it.
        """
        rows = self._rows()
        header = next(rows, (0, []))[1]
        if not header:
            raise Unreadable("has no header")
        if len(header) > MAX_COLUMNS:
            raise beyond(f"has {len(header):,} columns, {MAX_COLUMNS:,} at most")
        twins = sorted(name for name, times in Counter(header).items() if times > 1)
        if twins:
            raise Unreadable(f"names a column twice: {some(twins)}")
        columns = [Column(name) for name in header]
        count = 0
        for line, row in rows:
            count += 1
            if len(row) != len(header):
                raise Unreadable(
                    f"is ragged: line {line:,} has {plural(len(row), 'field')}, the header {len(header):,}"
                )
            for column, text in zip(columns, row, strict=True):
                _take(column, text)
        if not count:
            raise Unreadable("has a header and no row")
        found = Content({column.name for column in columns if column.empty < count})
        found.absent = [column.name or "the first column" for column in columns if column.absent]
        found.nonfinite = [
            NonFinite(column.name or "the first column", Bad(c, c)) for column in columns if (c := column.nonfinite)
        ]
        unused = [column.name for column in columns if column.empty == count]
        if unused:
            found.notes.append(f"nothing in {some(unused)}")
        gaps = [column for column in columns if column.empty and column.numbers and not column.words]
        if gaps:
            total = sum(column.empty for column in gaps)
            found.notes.append(f"{total:,} empty ({some([column.name for column in gaps])})")
        if len(columns) == 1 and any(mark in columns[0].name for mark in ";\t" if mark != self.separator):
            said = "tabs" if self.separator == "\t" else "commas"
            found.notes.append(f"its one column is {printable(columns[0].name)!r}: {said} are what separates columns")
        return found

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line in which it ends, fields) of each row that is not blank."""
        csv.field_size_limit(MAX_FIELD)
        with unpacked(self.file) as handle:
            text = io.TextIOWrapper(handle, encoding="utf-8-sig", errors="strict", newline="")
            reader = csv.reader(text, strict=True, delimiter=self.separator)
            try:
                for row in reader:
                    if row:
                        yield reader.line_num, row
            except UnicodeDecodeError as error:
                raise Unreadable(f"is not UTF-8 text ({error.reason})") from None
            except csv.Error as error:
                raise Unreadable(f"is not CSV at line {reader.line_num:,} ({error})") from None
            except NO_GZIP as error:
                raise Unreadable(f"does not unpack ({type(error).__name__})") from None


def _take(column: Column, text: str) -> None:
    stripped = text.strip()
    if not stripped:
        column.empty += 1
        return
    try:
        number = float(stripped)
    except ValueError:
        column.words += 1
        column.absent += NO_NUMBER.fullmatch(stripped) is not None
        return
    column.numbers += 1
    column.nonfinite += not math.isfinite(number)
