"""Watches a running cell's metrics for the first NaN, for jobs that ask to be ended then."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

AT_ONCE = 4 << 20
"""The most bytes that one look reads: the next look reads on a second later."""


class MetricsWatch:
    """Reads new lines of a metrics file (one JSON object per line, or CSV with a heading). For one thread at a time."""

    def __init__(self, out: Path, metrics: Mapping[str, Any]) -> None:
        self._path = out / str(metrics["file"])
        self._x, self._y = metrics.get("x"), list(metrics.get("y") or [])
        self._offset, self._rest = 0, b""
        self._heading: list[str] = []
        self.found = ""

    def look(self) -> str:
        """Which metric became NaN, and where, for people; "" when none did. Never raises."""
        while not self.found:
            try:
                with open(self._path, "rb") as handle:
                    handle.seek(self._offset)
                    data = handle.read(AT_ONCE)
            except OSError:
                break
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self.found = self.found or self._nan_in(line)
            if len(data) < AT_ONCE:
                break
        return self.found

    def last_look(self) -> str:
        """`look` for a file that no process writes to any more: its last line may lack a newline."""
        found, rest = self.look(), self._rest
        self._rest = b""
        self.found = found or self._nan_in(rest)
        return self.found

    def _nan_in(self, line: bytes) -> str:
        row = self._row(line)
        for key in self._y or list(row):
            value = row.get(key)
            if isinstance(value, str) and value.strip().lower() in ("nan", "+nan", "-nan"):
                value = math.nan
            if isinstance(value, float) and math.isnan(value):
                at = row.get(self._x) if self._x else None
                return f"{key} is NaN" + (f" at {self._x} {at}" if at is not None else "")
        return ""

    def _row(self, line: bytes) -> dict[str, Any]:
        text = line.decode("utf-8", "replace").strip()
        if not text:
            return {}
        if not text.startswith("{") and self._path.suffix == ".csv":
            words = next(csv.reader([text]))
            if not self._heading:
                self._heading = words
                return {}
            return dict(zip(self._heading, words))
        try:
            row = json.loads(text)
        except ValueError:
            return {}
        return row if isinstance(row, dict) else {}
