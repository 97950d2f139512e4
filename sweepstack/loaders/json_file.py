"""The reader of JSON files: keys at the top level, and numbers that are numbers."""

from __future__ import annotations

import json
import math
from typing import Any

from sweepstack.loaders.base import (
    NO_NUMBER,
    Bad,
    Content,
    NonFinite,
    OpenFile,
    Unreadable,
    beyond,
    dotted,
    unique_keys,
)
from sweepstack.loaders.scan import Region, Scan

MAX_BYTES = 256 << 20


class JsonFile:
    """A JSON file. Read into memory as a whole, so bounded. Raises Unreadable when it is none."""

    regions: tuple[Region, ...] = ()

    def __init__(self, file: OpenFile) -> None:
        if file.size > MAX_BYTES:
            raise beyond(f"is too large for JSON: {file.size:,} bytes, {MAX_BYTES:,} at most")
        try:
            self.root = json.loads(file.read(0, file.size).decode("utf-8-sig"), object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"is not JSON ({type(error).__name__})") from None

    def content(self, scanned: Scan) -> Content:
        """Top-level keys, and where NaN or an infinity stands, also one that is a number too large (1e999)."""
        names = set(self.root) if isinstance(self.root, dict) else set()
        found = Content(names)
        pending: list[tuple[str, Any]] = [("", self.root)]
        while pending:
            name, value = pending.pop()
            if isinstance(value, float) and not math.isfinite(value):
                found.nonfinite.append(NonFinite(name or "value", Bad(1, 1)))
            elif value is None or (isinstance(value, str) and NO_NUMBER.fullmatch(value.strip())):
                found.absent.append(name or "value")
            elif isinstance(value, dict):
                pending.extend((dotted(name, key), child) for key, child in reversed(value.items()))
            elif isinstance(value, list):
                children = [(dotted(name, str(index)), child) for index, child in enumerate(value)]
                pending.extend(reversed(children))
        return found
