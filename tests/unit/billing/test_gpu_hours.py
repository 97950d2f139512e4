"""GPU-hours that workers on a cluster hold, by the journals of their boxes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.billing.gpu_hours import Rate, held, used_line
from sweepstack.core.journal import Journal, parse_journal
from sweepstack.onbox.common.canonical import GENESIS, canonical_json, sha256_hex

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


def journal(*events: tuple[float, dict[str, Any]]) -> Journal:
    """(hours after noon, the entry) as a chain."""
    data, head = b"", GENESIS
    for number, (hours, event) in enumerate(events, 1):
        entry = {**event, "seq": number, "prev": head, "time": (NOON + timedelta(hours=hours)).isoformat()}
        head = sha256_hex(canonical_json(entry))
        data += canonical_json({**entry, "hash": head}) + b"\n"
    return parse_journal(data)


def began(worker: str) -> dict[str, Any]:
    return {"event": "runner-started", "worker": worker}


def test_each_start_of_a_worker_counts_from_its_begin_to_its_end() -> None:
    """One ended by itself after 2 h, one was proved to have ended after 3 h, and began again for what is left."""
    found = journal(
        (0, began("1_0.0")),
        (1, began("1_1.0")),
        (2, {"event": "runner-stopped", "worker": "1_0.0", "why": "nothing to take"}),
        (4, {"event": "worker-ended", "worker": "1_1.0", "proof": "scheduler: NODE_FAIL", "by": "1_1.1"}),
        (4, began("1_1.1")),
    )
    assert held(found, 2, NOON + timedelta(hours=5)) == pytest.approx((2 + 3 + 1) * 2)
    assert held(found, 2, None) == pytest.approx((2 + 3 + 0) * 2), "none runs: until the last line"


def test_a_box_without_a_worker_has_used_nothing() -> None:
    assert held(Journal(), 8, NOON) == 0
    assert held(Journal(), 8, None) == 0


@pytest.mark.parametrize(
    ("rate", "projected", "words"),
    [
        (Rate(1.5), None, "used 12.0 GPU-hours ($18.00)"),
        (
            Rate(1.5, 100),
            40.0,
            "used 12.0 GPU-hours ($18.00) of 100; about 40.0 ($60.00) when the last cell is through",
        ),
        (Rate(None, 30), 40.0, "MORE THAN THE ALLOCATION: used 12.0 GPU-hours of 30; about 40.0 when the last cell is"),
        (
            Rate(None, 12),
            40.0,
            "ALLOCATION USED UP: used 12.0 GPU-hours of 12; about 40.0 when the last cell is through. What",
        ),
    ],
)
def test_how_it_is_told(rate: Rate, projected: float | None, words: str) -> None:
    assert used_line(rate, 12.0, projected).startswith(words)
