"""The figures of measurements that were made side by side."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def compared(took: Mapping[str, Sequence[float]], ours: str, baseline: str) -> dict[str, Any]:
    """Way → seconds of each round, as medians (`seconds`), maxima (`max_seconds`), and the `ratio` of two medians."""
    middle = {way: statistics.median(times) for way, times in took.items()}
    most = {way: max(times) for way, times in took.items()}
    return {"seconds": middle, "max_seconds": most, "ratio": middle[ours] / middle[baseline]}
