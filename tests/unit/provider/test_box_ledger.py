"""Every box ever rented is in the ledger, from the platform's answer to the proof of its end."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import Any

import pytest

from sweepstack.billing.ledger import Bill, spent
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.platform import Wait
from sweepstack.provider.resources.base import ReadAnswer
from sweepstack.provider.resources.error_context import naming
from tests.unit.provider.support import BOX, FACTS, Sweep, still_creating

STOPPABLE = {
    **FACTS,
    "paths": {"scratch": "scratch", "data": "data", "durable": "mnt/durable"},
    "stop": {"kills": ["scratch"], "keeps": ["data", "durable"], "price_per_hour": 0.01},
}


def bills(sweep: Sweep) -> tuple[Bill, ...]:
    return spent(sweep.store, datetime.now(UTC)).bills


def test_from_the_answer_to_the_proof_of_the_end(sweep: Sweep) -> None:
    box = sweep.cleared()
    (bill,) = bills(sweep)
    assert (bill.box, bill.native_id, bill.platform, bill.account) == ("box-0", box.native_id, "local", box.account)
    assert [(span.phase, span.price_per_hour, span.begin, span.end) for span in bill.spans] == [
        ("running", 0.5, box.created_at, None)
    ]
    BOX.delete(sweep.op(), box.native_id, box)
    (bill,) = bills(sweep)
    assert (bill.ended_how, bill.per_hour) == ("cleared", 0.0)
    assert bill.spans[0].end == bill.ended_at is not None
    assert len(sweep.store.ledger()[0]) == 2


def test_the_whole_ledger_is_read_once_for_all_boxes_of_a_look(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a hundred boxes read the bills of all hundred."""
    boxes = [sweep.box(f"box-{number}") for number in range(4)]
    honest, whole = EvidenceStore.ledger, []

    def ledger(store: EvidenceStore, native_id: str | None = None) -> Any:
        whole.append(native_id is None)
        return honest(store, native_id)

    monkeypatch.setattr(EvidenceStore, "ledger", ledger)
    op = sweep.op()
    for box in boxes:
        assert isinstance(BOX.read(op, box.native_id, box), ReadAnswer)
    assert sum(whole) == 1
    for box in boxes:
        assert f"box {box.name} LOCKED: 0 of 0 cells verified; $0.50/h, $12.00/day; $0.00 so far" in sweep.said.infos
    assert sweep.said.infos.count("; the sweep $2.00/h") == 4
    BOX.read(sweep.op(), boxes[0].native_id, boxes[0])
    assert sum(whole) == 2, "another command reads it anew"


def test_an_adopted_box_is_one_bill(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPSTACK_DRILL_CREATE", "lose-answer")
    sweep.box()
    monkeypatch.delenv("SWEEPSTACK_DRILL_CREATE")
    sweep.box()
    assert len(bills(sweep)) == len(sweep.store.ledger()[0]) == 1


def test_a_box_that_is_not_ready_bills_already(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPSTACK_DRILL_CREATE", "fail-after-create")
    still_creating(sweep.box)
    (bill,) = bills(sweep)
    assert bill.open is not None
    assert bill.open.price_per_hour == 0.5


def test_a_vanished_box_stops_counting_when_that_is_proved(sweep: Sweep) -> None:
    box = sweep.box()
    shutil.rmtree(sweep.root(box))
    after = sweep.box()
    gone, new = bills(sweep)
    assert (gone.native_id, gone.ended_how, gone.per_hour) == (box.native_id, "vanished", 0.0)
    assert (new.native_id, new.generation, new.per_hour) == (after.native_id, 2, 0.5)


def test_a_new_price_is_a_new_span(sweep: Sweep) -> None:
    box = sweep.box()
    BOX.update(sweep.op(), box.native_id, box, sweep.box_inputs(price_per_hour=0.75))
    (bill,) = bills(sweep)
    assert [span.price_per_hour for span in bill.spans] == [0.5, 0.75]


def test_a_price_of_nothing_is_a_price(sweep: Sweep) -> None:
    box = sweep.box()
    state = BOX.update(sweep.op(), box.native_id, box, sweep.box_inputs(price_per_hour=0.0))
    assert state.price_per_hour == 0.0
    (bill,) = bills(sweep)
    assert [span.price_per_hour for span in bill.spans] == [0.5, 0.0]
    state = BOX.update(sweep.op(), box.native_id, state, sweep.box_inputs(price_per_hour=None))
    assert state.price_per_hour == 0.0


@pytest.mark.parametrize("by_queue", [False, True], ids=["wanted running", "woken by its queue"])
def test_a_new_price_survives_a_stop_and_a_start(sweep: Sweep, by_queue: bool) -> None:
    box = sweep.box(teardown=STOPPABLE)
    dearer = sweep.box_inputs(price_per_hour=0.75, teardown=STOPPABLE)
    state = BOX.update(sweep.op(), box.native_id, box, dearer)
    state = BOX.update(sweep.op(), box.native_id, state, dearer.model_copy(update={"want": "stopped"}))
    assert state.phase == "stopped"
    if by_queue:
        sweep.queue(state, want="running", teardown=STOPPABLE)
    else:
        BOX.update(sweep.op(), box.native_id, state, dearer)
    (bill,) = bills(sweep)
    assert [(span.phase, span.price_per_hour) for span in bill.spans if span.phase == "running"] == [
        ("running", 0.5),
        ("running", 0.75),
        ("running", 0.75),
    ]


def test_a_stop_and_a_start_from_outside_are_written_down(sweep: Sweep) -> None:
    """A person stops it in the console, and the ledger counted on at the running price. What is on record of
    another box is no part of it."""
    box = sweep.box(teardown=STOPPABLE)
    sweep.platform.stop(box.native_id, box.account)
    damaged = sweep.store.root / "records" / "births" / "box-9-g1.json"
    damaged.write_text("{")
    BOX.read(sweep.op(), box.native_id, box)
    damaged.unlink()
    (bill,) = bills(sweep)
    assert bill.open is not None
    assert (bill.open.phase, bill.per_hour) == ("stopped", 0.01)
    with pytest.raises(Unreachable, match=r"may bill \$0.01/h"), naming(sweep.op(), Evidence(box.evidence), "box-0"):
        raise Unreachable("no answer")
    sweep.platform.start(box.native_id, box.account, wait=Wait(30))
    BOX.read(sweep.op(), box.native_id, box)
    BOX.read(sweep.op(), box.native_id, box)
    (bill,) = bills(sweep)
    assert [(span.phase, span.price_per_hour) for span in bill.spans] == [
        ("running", 0.5),
        ("stopped", 0.01),
        ("running", 0.5),
    ]
