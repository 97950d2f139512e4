"""Versions of the code: whom a look at the sweep's other boxes waits for."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from sweepstack.core.journal import Journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Birth
from sweepstack.provider.resources import code_mixing
from sweepstack.teardown.box_context import BoxAt


def born(native_id: str) -> Birth:
    at = datetime(2026, 11, 21, 9, tzinfo=UTC)
    return Birth(
        box="box-0",
        generation=1,
        tag="t",
        platform="local",
        account="me",
        native_id=native_id,
        price_per_hour=None,
        begun_at=at,
        created_at=at,
    )


def test_a_box_that_does_not_answer_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queues ask for two boxes: both are being asked at the same time, or the barrier breaks."""
    both = threading.Barrier(2, timeout=120)

    def observe(box: BoxAt, *, files: bool) -> tuple[Observation, None]:
        both.wait()
        return Observation(Existence.EXISTS, journal=Journal(head=box.native_id)), None

    monkeypatch.setattr(code_mixing, "observe", observe)
    births = [born(f"local-{secrets.token_hex(4)}") for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(code_mixing._live, births))
    assert [journal.head for journal in found if journal] == [birth.native_id for birth in births]
    monkeypatch.setattr(code_mixing, "observe", pytest.fail)
    assert code_mixing._live(births[0]) is found[0], "asked a moment ago"
