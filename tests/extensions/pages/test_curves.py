"""A curve that is thinned out shows what the whole one does: its ends, its peaks, where it breaks."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sweepstack.extensions.pages.curves import thinned

heights = st.lists(st.one_of(st.floats(-1e3, 1e3), st.sampled_from([math.nan, math.inf, 1e308])), max_size=300)


@given(heights, st.integers(2, 80))
def test_ends_peaks_and_breaks_stay(ys: list[float], most: int) -> None:
    points = [(float(x), y) for x, y in enumerate(ys)]
    found = thinned([x for x, _ in points], ys, most)
    assert [x for x, _ in found] == sorted({x for x, _ in found})
    assert set(map(str, found)) <= set(map(str, points))
    if len(points) <= most:
        assert found == points
        return
    assert (found[0][0], found[-1][0]) == (0, len(ys) - 1)
    assert len(found) <= 3 * max(1, (most - 2) // 2) + 2
    for pick in (min, max):
        finite = [y for y in ys if math.isfinite(y)]
        assert not finite or pick(finite) == pick(y for _, y in found if math.isfinite(y))
    assert any(not math.isfinite(y) for y in ys) == any(not math.isfinite(y) for _, y in found)
