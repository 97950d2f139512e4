"""The ledger beside a platform's bill: what agrees, what differs, what is missing on either side."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.billing.ledger import Bill, Span, compare, total
from sweepstack.core.records import LedgerEntry
from sweepstack.onbox.host.capabilities import Billed

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
PREFIX = "sweepstack-a1b2c3-"


def bill(native_id: str = "7", hours: float = 10.0, price: float | None = 0.6, platform: str = "acme") -> Bill:
    """A box that ran so long and has ended."""
    known = {"box": "box-0", "native_id": native_id, "platform": platform, "account": "me"}
    entries = [
        LedgerEntry(**known, phase="running", price_per_hour=price, at=NOW - timedelta(hours=hours + 1)),
        LedgerEntry(**known, phase="ended", price_per_hour=0.0, at=NOW - timedelta(hours=1)),
    ]
    (found,) = total(entries, [], NOW).bills
    return found


@pytest.mark.parametrize(
    ("billed", "verdict"),
    [
        (Billed("7", 6.0), "agrees"),
        (Billed("7", 6.10), "agrees"),  # ten minutes at $0.60/h, and a cent
        (Billed("7", 5.90), "agrees"),
        (Billed("7", 6.12), "differs"),
        (Billed("7", 5.88), "differs"),
        (Billed("7", 8.0, traffic=2.0), "agrees"),
        (Billed("7", 8.0), "differs"),
        (None, "not billed"),
    ],
)
def test_a_line_of_ours(billed: Billed | None, verdict: str) -> None:
    (line,), others = compare([bill()], [billed] if billed else [], NOW, "acme", PREFIX)
    assert (line.verdict, others) == (verdict, [])
    assert line.difference == (None if billed is None else pytest.approx(billed.usd - billed.traffic - 6.0))


def test_a_box_of_a_few_minutes_may_not_be_on_the_bill_yet() -> None:
    (line,), _ = compare([bill(hours=0.1)], [], NOW, "acme", PREFIX)
    assert line.verdict == "agrees"


def test_without_a_price_it_is_unknown_and_never_agrees() -> None:
    (line,), _ = compare([bill(price=None)], [Billed("7", 6.0)], NOW, "acme", PREFIX)
    assert (line.verdict, line.ours) == ("unknown", None)


@pytest.mark.parametrize(("theirs", "verdict"), [(7.0, "unknown"), (5.0, "differs")])
def test_a_span_without_a_price_makes_ours_a_lower_bound(theirs: float, verdict: str) -> None:
    ran = bill()
    stood = replace(ran, spans=(*ran.spans, Span("stopped", None, NOW, None)))
    (line,), _ = compare([stood], [Billed("7", theirs)], NOW, "acme", PREFIX)
    assert (line.ours, line.unpriced, line.difference, line.verdict) == (6.0, 1, None, verdict)


def test_what_the_ledger_lacks_is_told_apart_by_its_tag() -> None:
    leaked, foreign, untagged = (
        Billed("8", 3.0, tag=f"{PREFIX}box-1-g1"),
        Billed("9", 4.0, tag="mine"),
        Billed("10", 5.0),
    )
    lines, others = compare([bill()], [Billed("7", 6.0), leaked, foreign, untagged], NOW, "acme", PREFIX)
    assert [(line.native_id, line.box, line.verdict) for line in lines] == [
        ("7", "box-0", "agrees"),
        ("8", "box-1-g1", "not in the ledger"),
    ]
    assert others == [foreign, untagged]


def test_boxes_of_another_platform_are_not_looked_for_on_this_bill() -> None:
    assert compare([bill(platform="other")], [], NOW, "acme", PREFIX) == ([], [])
