"""What a box holds in no copy is said where it dies, and where that can't be told."""

from __future__ import annotations

import pytest

from sweepstack.core.box_end import StopFacts, TeardownFacts
from sweepstack.operations.sweep.collect import in_no_copy
from tests.unit.entries import box_entry
from tests.unit.review.plans import box


@pytest.mark.parametrize(
    ("kills", "told"), [(("scratch", "data"), True), (("data",), True), (("scratch",), False), ((), True)]
)
def test_it_dies_with_the_tier_of_the_sweeps_folder(kills: tuple[str, ...], told: bool) -> None:
    """Where nothing is known of what dies, all may."""
    stop = StopFacts(kills=("scratch",), keeps=("data",), price_per_hour=None)
    ends = TeardownFacts(verb="destroy", kills=kills, keeps=(), stop=stop)
    seen = box("b", entry=box_entry(name="b", teardown=ends))
    unread = {"b": "logs of failed attempts, if there are any: the evidence can't be read"}
    assert in_no_copy(None, [seen], "destroy") == (unread if told else {})
    assert in_no_copy(None, [seen], "stop") == {}
