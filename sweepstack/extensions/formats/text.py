"""The readers of text: JSON lines, tables with tabs, YAML."""

from __future__ import annotations

import json
import math
from typing import Any

import yaml  # type: ignore[import-untyped]  # comes with the engine's SDK

from sweepstack.core.printable import printable
from sweepstack.extensions.formats.shared import LibraryFile, leaves
from sweepstack.loaders.base import (
    NO_NUMBER,
    Bad,
    Content,
    NonFinite,
    OpenFile,
    Spec,
    Unreadable,
    Unsupported,
    beyond,
    unique_keys,
)
from sweepstack.loaders.csv_file import GZIP, NO_GZIP, CsvFile, unpacked
from sweepstack.loaders.scan import Region, Scan

MAX_LINE = 64 << 20
"""Bytes of one line."""
MAX_YAML = 16 << 20
"""Bytes: PyYAML takes a hundred times as many in memory."""
MOST = 1000
"""Names of values that are no numbers."""


class Jsonl(LibraryFile):
    """JSON, a value a line. Blank lines are nothing. Memory: one line."""

    def content(self, scanned: Scan) -> Content:
        """Keys at the top level of any line, and where NaN or an infinity stands, by key. A key that is null in each
        line has no name. Raises Unreadable with the line."""
        found, numbers, held, ended = Content(), 0, set[str](), True
        bad: dict[str, int] = {}
        with unpacked(self.file) as handle:
            try:
                while line := handle.readline(MAX_LINE + 1):
                    numbers += 1
                    ended = line.endswith(b"\n")
                    if len(line) > MAX_LINE:
                        raise beyond(f"has a line {numbers:,} of more than {MAX_LINE:,} bytes")
                    if not line.strip():
                        continue
                    value = _json(line, numbers)
                    held.update(key for key, child in value.items() if child is not None) if isinstance(
                        value, dict
                    ) else held.add("")
                    for name, child in leaves(value):
                        _take(name, child, bad, found)
            except NO_GZIP as error:
                raise Unreadable(f"does not unpack ({type(error).__name__})") from None
        if not held:
            raise Unreadable("holds no value")
        if not ended and not self.file.begins_with(GZIP):
            found.notes.append("its last line has no end: it may be cut where a value ends")
        found.names = held - {""}
        found.nonfinite = [NonFinite(name, Bad(count, count)) for name, count in bad.items()]
        found.absent = list(dict.fromkeys(found.absent))
        return found


def _json(line: bytes, number: int) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"), object_pairs_hook=unique_keys)
    except Unreadable as twice:
        raise Unreadable(f"{twice} in line {number:,}") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is not JSON in line {number:,} ({type(error).__name__})") from None


class Tsv(CsvFile):
    """A table with tabs, and else as CSV."""

    def __init__(self, file: OpenFile, spec: Spec) -> None:
        super().__init__(file, "\t")


class _SafeLoader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's safe loader, which refuses a mapping that names a key twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    raise Unreadable(f"names a key twice: {printable(key.value)}")
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


class Yaml:
    """YAML of plain values, in one document or several. Read into memory as a whole, so bounded."""

    regions: tuple[Region, ...] = ()

    def __init__(self, file: OpenFile, spec: Spec) -> None:
        if file.size > MAX_YAML:
            raise beyond(f"is too large for YAML: {file.size:,} bytes, {MAX_YAML:,} at most")
        try:
            self.documents = list(yaml.load_all(file.read(0, file.size).decode("utf-8-sig"), _SafeLoader))
        except yaml.constructor.ConstructorError as error:
            if "python/" in str(error.problem):
                raise Unsupported(
                    "names a Python type, which nothing here builds: save plain values, or judge it by load: command"
                ) from None
            raise Unreadable(f"is not YAML ({printable(str(error.problem), 80)})") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise Unreadable(f"is not YAML ({type(error).__name__})") from None

    def content(self, scanned: Scan) -> Content:
        """Keys at the top level, and where NaN or an infinity stands. Raises Unreadable where there is no value."""
        found = Content({str(key) for one in self.documents if isinstance(one, dict) for key in one})
        if all(one is None for one in self.documents):
            raise Unreadable("holds no value")
        bad: dict[str, int] = {}
        for name, child in leaves(self.documents if len(self.documents) > 1 else self.documents[0]):
            _take(name, child, bad, found)
        found.nonfinite = [NonFinite(name, Bad(count, count)) for name, count in bad.items()]
        return found


def _take(name: str, value: Any, bad: dict[str, int], found: Content) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        bad[name] = bad.get(name, 0) + 1
    elif (value is None or (isinstance(value, str) and NO_NUMBER.fullmatch(value.strip()))) and len(
        found.absent
    ) < MOST:
        found.absent.append(name)
