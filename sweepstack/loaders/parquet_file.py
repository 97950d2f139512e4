"""Reads Parquet files with pyarrow: column names, page checksums, finite numbers."""

from __future__ import annotations

from typing import Any

from sweepstack.core.extras import lacks
from sweepstack.loaders.base import Bad, Content, NoAnswer, NonFinite, OpenFile, Unreadable, beyond
from sweepstack.loaders.scan import Region, Scan

MAGIC = b"PAR1"
BATCH_ROWS = 1 << 16
MAX_COLUMNS = 100_000


class ParquetFile:
    """A Parquet file. Memory: one batch of rows. Raises NoAnswer where pyarrow is not installed."""

    regions: tuple[Region, ...] = ()

    def __init__(self, file: OpenFile) -> None:
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise NoAnswer(f"can't be read here: {lacks('parquet') or error}") from None
        if not file.begins_with(MAGIC):  # pyarrow looks at the end alone
            raise Unreadable("is no parquet file, or damaged from the start")
        self.file = file
        self._library: Any = pyarrow

    def content(self, scanned: Scan) -> Content:
        """Reads all rows. Names of columns; NaN and infinities by column; columns of numbers with nulls in them."""
        arrow = self._library
        try:
            with self.file.stream() as handle:
                opened = arrow.parquet.ParquetFile(handle, page_checksum_verification=True)
                return self._read(arrow, opened)
        except (arrow.ArrowMemoryError, MemoryError):
            raise MemoryError from None
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise Unreadable(f"pyarrow refuses it ({type(error).__name__})") from None

    def _read(self, arrow: Any, opened: Any) -> Content:
        names = [str(name) for name in opened.schema_arrow.names]
        if len(names) > MAX_COLUMNS:
            raise beyond(f"has {len(names):,} columns, {MAX_COLUMNS:,} at most")
        if len(set(names)) != len(names):
            raise Unreadable("names a column twice")
        if not opened.metadata.num_rows:
            raise Unreadable("holds no row")
        bad, nulls = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        for batch in opened.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            for name, column in zip(names, batch.columns, strict=True):
                for leaf in _leaves(arrow, column):
                    bad[name] += _nonfinite(arrow, leaf)
                    nulls[name] += leaf.null_count if _is_number(arrow, leaf) else 0
        found = Content(set(names), [NonFinite(name, Bad(c, c)) for name, c in bad.items() if c])
        found.absent = [name for name, count in nulls.items() if count]
        return found


def _leaves(arrow: Any, column: Any) -> list[Any]:
    """The columns of plain values in a column of lists or records."""
    pending, found = [column], []
    while pending:
        one = pending.pop()
        if arrow.types.is_struct(one.type):
            pending += one.flatten()
        elif arrow.types.is_map(one.type):
            pending += [one.keys, one.items]
        elif arrow.types.is_dictionary(one.type):
            pending.append(one.dictionary_decode())
        elif hasattr(one, "flatten") and arrow.types.is_nested(one.type):
            pending.append(one.flatten())
        else:
            found.append(one)
    return found


def _is_number(arrow: Any, column: Any) -> bool:
    return bool(arrow.types.is_integer(column.type) or arrow.types.is_floating(column.type))


def _nonfinite(arrow: Any, column: Any) -> int:
    if not arrow.types.is_floating(column.type):
        return 0
    import pyarrow.compute as compute

    valid = column.drop_null()
    if arrow.types.is_float16(valid.type):
        valid = valid.cast(arrow.float32())
    return len(valid) - int(compute.sum(compute.is_finite(valid)).as_py() or 0)
