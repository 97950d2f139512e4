"""Boxes on which nothing was launched: who is named, with what, and from when on."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sweepstack.billing.unlaunched import unheld
from sweepstack.core.records import Birth, Launch
from sweepstack.evidence.store import EvidenceStore

BEGAN = datetime(2026, 11, 27, 2, 0, tzinfo=UTC)
BIRTH = Birth(
    box="box-0", generation=1, tag="sweepstack-a-box-0-g1", platform="runpod", account="me", native_id="pod1",
    price_per_hour=0.26, begun_at=BEGAN, created_at=BEGAN, launch_by=BEGAN + timedelta(hours=2),
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore.found(f"file://{socket.gethostname()}{tmp_path}/evidence", "abc", "p", "s")


def test_it_is_named_with_its_cost_and_the_command_once_its_lease_would_be_over(store: EvidenceStore) -> None:
    (soon,) = unheld(store, [BIRTH], BEGAN + timedelta(hours=1))
    assert (soon.over, soon.long_over) == (False, False)
    assert soon.words("s").endswith(
        "no lease holds it yet, nothing was launched on it; from 04:00 UTC on this is an alarm"
    )
    (late,) = unheld(store, [BIRTH], BEGAN + timedelta(hours=3))
    assert (late.over, late.long_over) == (True, False)
    assert late.words("s").startswith(
        "box-0 (pod1 on runpod) was rented 3.0 h ago at $0.26/h (about $0.78), and nothing was launched on it"
    )
    assert "Next: pulumi up --stack s; or, to end it, sweepctl give-up --stack s data/box-0" in late.words("s")
    assert unheld(store, [BIRTH], BEGAN + timedelta(hours=4))[0].long_over


def test_who_is_not(store: EvidenceStore) -> None:
    """A box that has ended, one that was never asked for, one of an older version or of `lease: none`, a launched one;
    and who is: one whose answer was lost."""
    now = BEGAN + timedelta(hours=9)
    lost = BIRTH.model_copy(update={"native_id": None, "asked_at": BEGAN})
    others = (
        BIRTH.model_copy(update={"ended_at": now}),
        BIRTH.model_copy(update={"native_id": None}),
        BIRTH.model_copy(update={"launch_by": None}),
    )
    assert [one.birth for one in unheld(store, [*others, lost], now)] == [lost]
    store.write_launch(
        Launch(box="box-0", generation=1, native_id="pod1", cells={}, code="sha256:" + "0" * 64, at=BEGAN)
    )
    assert unheld(store, [BIRTH], now) == ()


def test_an_older_record_is_read_and_written_as_it_was() -> None:
    old = BIRTH.model_copy(update={"launch_by": None})
    assert "launch_by" not in old.model_dump(mode="json")
    assert Birth.model_validate(old.model_dump(mode="json")) == old
    assert Birth.model_validate(BIRTH.model_dump(mode="json")) == BIRTH
