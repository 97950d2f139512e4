"""Random months of a box in simulated time: the few dozen that every run plays. `python -m bench lease` plays 1,000."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from bench.lease_bench import summary
from bench.lease_plan import STORIES, Month, month
from bench.lease_world import Verdict, World

SEEDS = 500
QUICKER = {"the journal can't be written": 1, "several of these": 1}
"""Where the second month of a story is played in a fraction of the time of the first."""


def first(story: str, count: int) -> list[Month]:
    """The first months of a story."""
    return [one for one in months() if one.story == story][:count]


@cache
def months() -> list[Month]:
    return [month(seed) for seed in range(SEEDS)]


# The other month of a story in make proof: other figures, the same events.
@pytest.mark.parametrize(
    ("story", "number"),
    [
        pytest.param(story, number, marks=() if number == QUICKER.get(story, 0) else pytest.mark.proof)
        for story in STORIES
        for number in (0, 1)
    ],
)
def test_a_bill_ends_in_time_or_it_is_said_why(story: str, number: int, tmp_path: Path) -> None:
    """Nothing that is sealed or half done is lost, no cell that works is ended, and no key is in a journal or log."""
    one = first(story, 2)[number]
    verdict = World(one, tmp_path / f"{one.seed}").play()
    assert not verdict.broken, (one, verdict.broken, verdict.log)
    assert verdict.why or not verdict.late, (one, verdict.log)


def test_without_a_lease_the_bill_ends_with_the_month(tmp_path: Path) -> None:
    """So that a lease that ends nothing would be seen."""
    plain = [one for one in first("nothing goes wrong", 20) if one.platform in ("runpod", "vastai", "autodl")]
    both: list[tuple[Verdict, float]] = []
    for one in plain:
        leased, bare = (World(one, tmp_path / f"{one.seed}-{on}", leased=on) for on in (True, False))
        verdict = leased.play()
        bare.play()
        both.append((verdict, bare.hours_after(verdict.need)))
        assert verdict.hours <= one.lease / 3600 + 1 / 6
    found = summary(both)
    assert found["in_time"] == found["months"]
    assert found["without"]["median"] > 10 * found["with"]["worst"]


@pytest.mark.proof
def test_a_month_is_the_same_each_time(tmp_path: Path) -> None:
    one = first("several of these", 1)[0]
    assert one == month(one.seed)
    first_time, again = (World(one, tmp_path / name).play() for name in ("a", "b"))
    assert (first_time.need, first_time.hours, first_time.log) == (again.need, again.hours, again.log)
