"""A box that was given up by name ends, whatever became of its evidence, its records, or the program."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.local_decisions import Decision
from sweepstack.core.resources import BoxState
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError, TeardownRefused
from sweepstack.provider.resources.base import Decision as Change
from sweepstack.provider.session import Severity
from sweepstack.teardown.abandonment import alone, record_abandonment
from tests.unit.provider.support import BOX, GATE, IDENTITY, QUEUE, Sweep, abandonment, approval_for, approved


def elsewhere(sweep: Sweep) -> str:
    """The folder is on another host: this machine was renamed, or the state is used from another one."""
    return "file://another-host/" + sweep.identity.evidence.removeprefix("file://").split("/", 1)[1]


def unreachable(sweep: Sweep) -> str:
    """Object storage that does not answer."""
    return "s3://nobucket/x"


def in_zeros(sweep: Sweep) -> str:
    """A power cut."""
    (sweep.store.root / "sweep.json").write_bytes(b"\0" * 80)
    return sweep.identity.evidence


def gone(sweep: Sweep) -> str:
    shutil.rmtree(sweep.store.root)
    return sweep.identity.evidence


def read_only(sweep: Sweep) -> str:
    """Nothing can be written any more: all that is read is there, and each folder of records is a file for a write."""
    records = sweep.store.root / "records"
    for name in ("clearances", "losses"):
        shutil.rmtree(records / name, ignore_errors=True)
        (records / name).write_text("no folder")
    return sweep.identity.evidence


LOST = [elsewhere, unreachable, in_zeros, gone, read_only]


@pytest.fixture(autouse=True)
def no_object_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    for name, value in (known | {"AWS_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1"}).items():
        monkeypatch.setenv(name, value)


def upped(sweep: Sweep, box: BoxState) -> BoxState:
    """The box after an `up` with the approval that is in its state."""
    inputs = BOX.inputs_type.model_validate(
        box.model_dump(include=set(BOX.inputs_type.model_fields)) | {"clearance": "cleared: abandoned"}
    )
    return BOX.update(sweep.op(name=box.name), box.native_id, box, inputs)


def destroyed(sweep: Sweep, box: BoxState) -> None:
    """Gate, queue, box, as the engine deletes them."""
    GATE.delete(sweep.op("Gate"), "g", sweep.gate(box))
    queue = QUEUE.state_type(**sweep.queue_inputs(box).model_dump(), launched_at=box.created_at)
    QUEUE.delete(sweep.op("Queue"), "q", queue)
    BOX.delete(sweep.op(name=box.name), box.native_id, box)


@pytest.mark.parametrize("lost", LOST, ids=lambda lost: lost.__name__)
def test_without_its_evidence(sweep: Sweep, lost: Callable[[Sweep], str]) -> None:
    box = sweep.at_work()
    box = box.model_copy(update={"evidence": lost(sweep)})
    with pytest.raises(TeardownRefused, match="Nothing was deleted"):
        destroyed(sweep, box)
    box = approved(box, approval_for(box, abandon=(abandonment(box),)))
    destroyed(sweep, upped(sweep, box))
    assert sweep.listed() == []
    assert sweep.alive(box) == set()


@pytest.mark.parametrize(
    "lost",
    [pytest.param(one, marks=() if one in (in_zeros, read_only) else pytest.mark.proof) for one in LOST],
    ids=lambda lost: lost.__name__,
)  # a damaged marker, and records that take no write; the test above has each way
def test_a_word_of_another_kind_needs_evidence_as_before(sweep: Sweep, lost: Callable[[Sweep], str]) -> None:
    box = sweep.cleared()
    box = box.model_copy(update={"evidence": lost(sweep)})
    with pytest.raises(SweepstackError):
        upped(sweep, box)
    assert sweep.listed() == [box.native_id]


def test_its_queue_needs_no_evidence_either(sweep: Sweep) -> None:
    """An `up` in which cells wait and no runner lives asks the queue, too."""
    box = sweep.box()
    inputs = sweep.queue_inputs(box)
    box = approved(box, approval_for(box, abandon=(abandonment(box),)))
    state = QUEUE.state_type(**inputs.model_dump(), launched_at=box.created_at)
    in_zeros(sweep)
    QUEUE.update(sweep.op("Queue"), "q", state, inputs.model_copy(update={"approval": box.approval}))
    assert "nothing more is started on it" in sweep.said.text(Severity.INFO)
    with pytest.raises(EvidenceError):
        QUEUE.update(sweep.op("Queue"), "q", state, inputs)


def test_the_sweep_ends_where_its_records_can_t_be_written(sweep: Sweep, tmp_path: Path) -> None:
    """The last delete of a destroy: nothing bills any more, and that a record stays open is said."""
    lease = sweep.store.root / "records" / "lease.json"
    lease.unlink()
    lease.mkdir()
    (lease / "no-record").touch()
    IDENTITY.delete(sweep.op("Identity"), sweep.identity.identity, sweep.identity)
    assert "the records could not be closed" in sweep.said.warnings


# By the record of it alone: no program can be run, so that no approval comes into the state


def recorded(sweep: Sweep, box: BoxState, **changes: Any) -> None:
    """What `sweepctl give-up` leaves behind, without the stack file."""
    word = alone(approval_for(box, **changes), abandonment(box))
    try:
        store: EvidenceStore | None = EvidenceStore.open(box.evidence)
    except EvidenceError:
        store = None
    known = {"what": "abandoned", "reason": "not worth it", "platform": "local", "box": box.name, "by": "ada"}
    known |= {"native_id": box.native_id, "account": box.account, "identity": box.identity, "evidence": box.evidence}
    assert record_abandonment(store, word, Decision.model_validate(known | {"at": word.at})).where


# On this computer, and in the evidence. The ways in proof: test_without_its_evidence has each.
@pytest.mark.parametrize(
    "lost",
    [pytest.param(one, marks=() if one in (gone, None) else pytest.mark.proof) for one in (*LOST, None)],
    ids=lambda lost: lost.__name__ if lost else "nothing_lost",
)
def test_by_its_record_alone(sweep: Sweep, lost: Callable[[Sweep], str] | None) -> None:
    box = sweep.at_work()
    box = box.model_copy(update={"evidence": lost(sweep) if lost else box.evidence})
    recorded(sweep, box)
    destroyed(sweep, box)
    assert (sweep.listed(), sweep.alive(box)) == ([], set())


@pytest.mark.parametrize("lost", [gone, None], ids=["on_this_computer", "in_the_evidence"])
def test_a_record_that_expired_or_is_of_another_box_opens_nothing(
    sweep: Sweep, lost: Callable[[Sweep], str] | None
) -> None:
    box, other = sweep.box("box-0"), sweep.box("box-1")
    if lost:
        lost(sweep)
    now = datetime.now(UTC)
    recorded(sweep, box, expires=now)
    recorded(sweep, other)
    with pytest.raises(TeardownRefused):
        BOX.delete(sweep.op(name="box-0"), box.native_id, box)
    BOX.delete(sweep.op(name="box-1"), other.native_id, other)
    assert sweep.listed() == [box.native_id]


@pytest.mark.parametrize("lost", [gone, None], ids=["on_this_computer", "in_the_evidence"])
def test_an_up_that_does_not_give_it_up_takes_the_record_back(
    sweep: Sweep, lost: Callable[[Sweep], str] | None
) -> None:
    """The stack file was put back without it: the next change shows that, and the box is locked again."""
    box = sweep.box()
    if lost:
        lost(sweep)
    recorded(sweep, box)
    seen = sweep.seen(box)
    assert seen.inputs.clearance == "cleared: abandoned, what is on it may be lost"
    assert "CLEARED" in sweep.said.infos
    wanted = seen.inputs.model_copy(update={"clearance": "locked", "live": None})
    assert BOX.changes(seen.inputs, wanted)["clearance"] is Change.UPDATE
    with contextlib.suppress(EvidenceError):  # without evidence the change itself fails, after that
        BOX.update(sweep.op(), box.native_id, box, wanted)
    with pytest.raises(TeardownRefused):
        BOX.delete(sweep.op(), box.native_id, box)
