"""The provider's answer to the program: by real boxes, journals and receipts."""

from __future__ import annotations

import json
import shutil

import pytest

from sweepstack.core.functions import READY, SHARES
from sweepstack.core.records import Again
from sweepstack.evidence.traces import generations
from sweepstack.launch.cell_shares import AskedBox, Shares, SplitQuestion
from sweepstack.launch.retries import RECORD, Retries, Retry, add, recorded_retries
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.provider.session import Session, Severity
from sweepstack.provider.split_invoke import answer, invoke
from tests.unit.provider.support import QUEUE, STACK, Sweep


def asked(sweep: Sweep, *boxes: str, stack: str = STACK) -> SplitQuestion:
    where = {box: AskedBox(slots=2) for box in boxes}
    return SplitQuestion(project="project", stack=stack, pull_to="results", cells=sweep.cells, boxes=where)


def test_started_cells_stay_and_the_new_box_gets_half_of_the_rest(sweep: Sweep) -> None:
    sweep.roster = ("a", "b", "c", "d", "e", "f")
    sweep.hold(*sweep.roster)
    box = sweep.box()
    assert not answer(sweep.project, asked(sweep, "box-0")).begun
    sweep.queue(box)
    sweep.until_state(box, "running", "a", "b")
    found = answer(sweep.project, asked(sweep, "box-0", "box-1"))
    assert {"a", "b"} < set(found.cells["box-0"])
    assert found.left == {"box-0": 4, "box-1": 2}
    assert answer(sweep.project, asked(sweep, "box-0", "box-1")) == found
    assert found.begun
    assert sweep.store.journal("box-0", 1) is None, "a preview writes nothing"
    assert answer(sweep.project, asked(sweep, "box-0", "box-1").model_copy(update={"up": True})) == found
    copied = sweep.store.journal("box-0", 1)
    assert copied is not None
    assert copied.cells["a"].state == "running"
    sweep.vanish(box)  # with its journal: what was given may have started
    assert answer(sweep.project, asked(sweep, "box-0")).begun


def test_what_is_verified_needs_no_box_until_it_is_asked_for_again(sweep: Sweep) -> None:
    box = sweep.trained()
    assert answer(sweep.project, asked(sweep, "box-0", "box-1")).left == {"box-0": 0}
    sweep.verified(box)
    assert answer(sweep.project, asked(sweep, "box-0")).verified == 2
    sweep.vanish(box)
    assert answer(sweep.project, asked(sweep, "box-0", "box-1")).cells == {}
    manifest = sweep.store.receipt(sweep.store.latest_receipt() or "").cells[0].manifest
    retry = Retry.model_validate({"retry": 1, "salt": 1, "manifest": manifest, "by": "me", "at": box.created_at})
    sweep.store.update_record(RECORD, Retries, lambda _: Retries(cells={"a": retry}))
    assert answer(sweep.project, asked(sweep, "box-0", "box-1")).left == {"box-0": 1}


def test_a_count_of_the_stack_file_runs_a_cell_again_as_sweepctl_retry_does(sweep: Sweep) -> None:
    """Once for each time that it grows; what was brought up is on record, and a lower count is refused."""
    box = sweep.trained()
    manifest = {cell.name: cell.manifest for cell in sweep.store.receipt(sweep.verified(box)).cells}["a"]
    known = QUEUE.check(sweep.op("Queue"), None, sweep.queue_inputs(box)).inputs

    def told(**counts: int) -> Shares:
        return answer(sweep.project, asked(sweep, "box-0").model_copy(update={"retry": counts}))

    found = told(a=1)
    assert found.left == {"box-0": 1}
    assert found.retries == {"a": Again(retry=1, salt=1, counted=1, manifest=manifest)}
    given = {name: again.model_dump() for name, again in found.retries.items()}
    checked = QUEUE.check(sweep.op("Queue"), known, sweep.queue_inputs(box, retries=given))
    assert checked.inputs.retries == found.retries
    assert "queue of box-0: 1 to run again (a)" in sweep.said.text(Severity.INFO)
    assert recorded_retries(sweep.store) == {}, "a preview writes nothing"
    sweep.queue(box, retries=given)
    sweep.drained(box)
    *first, again_started = sweep.started()
    assert (sorted(first), again_started) == (["a a", "b b"], "a a")  # two slots: either may be the first
    record = recorded_retries(sweep.store)["a"]
    assert (record.again, record.reason) == (found.retries["a"], "cells.retry of the stack file")
    assert "@" in record.by
    assert told(a=1).retries == {} == told().retries
    assert QUEUE.check(sweep.op("Queue"), checked.inputs, sweep.queue_inputs(box)).inputs == checked.inputs
    again = told(a=3).retries["a"]
    assert (again.retry, again.salt, again.counted) == (2, 2, 3)
    add(sweep.store, {"a": Retry(**again.model_dump(), by="me", at=box.created_at)})
    assert (told(a=3).retries, told(a=3).refused) == ({}, ())
    (refused,) = told(a=2).refused
    assert "cells.retry.a: 2 is lower than 3, which was brought up already" in refused
    assert "Write 4 to run it again" in refused


def test_a_count_in_the_file_of_a_sweep_that_begins_runs_nothing_twice(sweep: Sweep) -> None:
    found = answer(sweep.project, asked(sweep, "x", stack="other").model_copy(update={"retry": {"a": 2}}))
    assert found.retries == {"a": Again(retry=1, counted=2)}


def test_damaged_copies_are_trained_again(sweep: Sweep) -> None:
    sweep.verified(sweep.trained())
    (sweep.store.cell_dir("b") / "result.json").write_text("{}")
    assert answer(sweep.project, asked(sweep, "box-0")).verified == 1


def test_another_stack_begins_anew_and_what_can_not_be_read_declares_all(sweep: Sweep) -> None:
    assert answer(sweep.project, asked(sweep, "x", "y", "z", stack="other")).left == {"x": 1, "y": 1}
    (sweep.project / "results" / "sweep.json").write_text("{")
    found = answer(sweep.project, asked(sweep, "x", "y", "z"))
    assert list(found.cells) == ["x", "y", "z"]
    assert "damaged" in found.unknown
    assert found.begun


def test_receipts_are_read_for_a_box_without_a_birth_record_alone(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    monkeypatch.setattr(
        "sweepstack.provider.split_invoke.generations", lambda store: looks.append(1) or generations(store)
    )
    sweep.verified(sweep.trained())
    assert list(answer(sweep.project, asked(sweep, "box-0")).cells) == ["box-0"]
    assert not looks
    shutil.rmtree(sweep.project / "results" / "records" / "births")
    assert list(answer(sweep.project, asked(sweep, "box-0", "box-1")).cells) == ["box-0"]
    assert looks


def test_the_engine_s_question(sweep: Sweep) -> None:
    session = Session(sweep.project, sweep.said.emit)
    text = invoke(session, SHARES, {"asked": asked(sweep, "box-0").model_dump_json()})["shares"]
    assert json.loads(text)["left"] == {"box-0": 2}
    assert invoke(session, READY, {}) == {}
    with pytest.raises(SweepstackError, match="no function"):
        invoke(session, "sweepstack:index:other", {})
    with pytest.raises(SweepstackError, match="shares"):
        invoke(session, SHARES, {})
