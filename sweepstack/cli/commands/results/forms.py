"""The table of `sweepctl results` as text for other programs: CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of GitHub's Markdown."""
    lines = (headers, ["---"] * len(headers), *rows)
    return "".join("| " + " | ".join(value.replace("|", "\\|") for value in row) + " |\n" for row in lines)


def comma_separated(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Comma-separated values, a line a row."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([headers, *rows])
    return buffer.getvalue()
