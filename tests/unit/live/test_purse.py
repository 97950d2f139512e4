"""What a live run may spend: counted before it is spent."""

from __future__ import annotations

import pytest

from tests.live.purse import MARGIN, RESERVE_SECONDS, OverBudget, Purse

HOUR = 3600.0


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_prices_times_time() -> None:
    clock = Clock()
    purse = Purse(10.0, now=clock)
    purse.take("a", 0.6)
    purse.reprice("a", 0.4)
    clock.seconds = HOUR
    assert purse.spent() == pytest.approx(0.4)
    purse.put_back("a")
    purse.put_back("a")
    clock.seconds = 5 * HOUR
    assert purse.spent() == pytest.approx(0.4)
    purse.take("b", 1.0)
    purse.take("b", 1.0)  # the same box, asked for again
    clock.seconds = 6 * HOUR
    assert purse.spent() == pytest.approx(1.4)


def test_what_is_not_known_costs_the_most() -> None:
    clock = Clock()
    purse = Purse(10.0, now=clock)
    purse.take("a", 0.6)
    purse.reprice("a", 0.0)
    clock.seconds = HOUR
    assert purse.spent() == pytest.approx(0.6)


def test_a_box_must_be_affordable_for_as_long_as_a_test_takes() -> None:
    clock = Clock()
    purse = Purse(RESERVE_SECONDS / HOUR * 1.5, now=clock)
    purse.take("a", 1.0)
    with pytest.raises(OverBudget, match="--spend is"):
        purse.take("b", 1.0)  # both of them would break it
    with pytest.raises(OverBudget):
        purse.take("c", 0.01)  # and then it is over
    assert purse.must_stop() == ""  # what runs may go on


def test_everything_stops_before_the_ceiling() -> None:
    clock = Clock()
    purse = Purse(1.0, now=clock)
    purse.take("a", 0.5)
    clock.seconds = MARGIN * 2 * HOUR - 1
    assert purse.must_stop() == ""
    clock.seconds = MARGIN * 2 * HOUR + 1
    assert "are used up" in purse.must_stop()
    assert purse.spent() < 1.0
