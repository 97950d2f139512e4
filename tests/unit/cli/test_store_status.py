"""`sweepctl status` of a stack of volumes: what they cost a month, and no cells to speak of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sweepstack.status.compose import compose
from sweepstack.status.engine.state import StackState
from sweepstack.status.snapshot import Snapshot
from tests.unit.entries import volume_entry


@pytest.mark.parametrize(
    ("guarded", "price", "bills", "said"),
    [
        (True, 7.0, "yes", "volume abl: $7.00/month, kept until 2031-01-31"),
        (True, None, "yes", "volume abl: price unknown, kept until 2031-01-31"),
        (True, 0.0, "nothing", "volume abl: $0.00/month, kept until 2031-01-31"),
        (False, 7.0, "nothing", "volume abl: $7.00/month, kept until 2031-01-31"),
    ],
)
def test_a_volume_s_month_is_said_and_bills_where_it_is_kept(
    guarded: bool, price: float | None, bills: str, said: str
) -> None:
    """A volume that a sweep mounts is the bill of the stack that keeps it."""
    volume = volume_entry(
        name="abl",
        guarded=guarded,
        kept=not guarded,
        keep_until="2031-01-31",
        price_per_month=price,
    )
    now = datetime(2026, 11, 21, tzinfo=UTC)
    view = compose(Snapshot(StackState("keep", volumes=(volume,)), now, (), {}))
    assert view.money_lines == (said,)
    assert view.bills == bills
    assert ("sweepctl approve --stack keep" in view.next[0]) is guarded
