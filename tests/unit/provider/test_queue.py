"""Queue: given when the box may work, stopped when it may end, and honest about what it can't see."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from provider.models import QueueState
from provider.resources.base import Gone
from provider.session import Severity
from sweep import onbox
from sweep.canonical import canonical_json
from sweep.channel.local import LocalChannel
from sweep.errors import SweepstackError, TeardownRefused
from sweep.model import Teardown
from tests.unit.provider.support import (
    QUEUE,
    Sweep,
    abandonment,
    approval_for,
    approved,
    picture,
    still_creating,
)


def state_of(inputs: Any) -> QueueState:
    return QueueState(**inputs.model_dump(), launched_at=datetime.now(UTC))


# Giving


def test_cells_run_and_the_state_is_what_was_given(sweep: Sweep) -> None:
    box = sweep.box()
    queue = sweep.queue(box)
    assert queue.launched_at.tzinfo is not None
    sweep.drained(box)
    assert sweep.states(box) == {"a": "sealed", "b": "sealed"}
    launch = sweep.store.launch("box-0", 1)
    assert launch is not None
    assert launch.cells == {cell.name: cell.config_digest for cell in sweep.cells}


def test_a_queue_without_cells_launches_nothing(sweep: Sweep) -> None:
    box = sweep.box()
    QUEUE.create(sweep.op("Queue"), sweep.queue_inputs(box, cells=[]))
    assert sweep.store.launches() == []


def test_nothing_is_given_while_a_teardown_is_open(sweep: Sweep) -> None:
    box = sweep.box()
    sweep.store.write_teardown(Teardown(native_ids=(box.native_id,), begun_at=datetime.now(UTC)))
    with pytest.raises(SweepstackError, match="queue of box-0: a teardown has begun"):
        sweep.queue(box)
    assert sweep.store.launches() == []
    assert not (sweep.root(box) / onbox.HOME).exists()


@pytest.mark.parametrize("how", ["cleared", "abandoned", "empty"])
def test_nothing_is_given_to_a_box_that_is_cleared(sweep: Sweep, how: str) -> None:
    """What was launched now would be in no receipt."""
    if how == "cleared":
        box = sweep.cleared()
    else:
        box = sweep.trained() if how == "abandoned" else sweep.box()
        box = approved(box, approval_for(box, abandon=(abandonment(box),) if how == "abandoned" else ()))
    launches, before = sweep.store.launches(), picture(sweep.root(box))
    sweep.queue(box, "a", "b", "c")
    assert sweep.store.launches() == launches
    assert picture(sweep.root(box)) == before
    assert "the box is cleared, nothing more is started on it" in sweep.said.text(Severity.INFO)


def test_settings_that_fail_at_once_keep_the_queue_in_the_state(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Created, then failed: the next `up` updates it."""
    monkeypatch.setattr("sweep.launch.SETTLE_SECONDS", 10.0)
    box = sweep.box()
    error = still_creating(lambda: sweep.queue(box, job={"run": "cat no-such-file.py {word} {out}"}))
    assert error.identifier == f"{box.native_id}/queue"
    canonical_json(error.outputs)
    old = QueueState.model_validate(error.outputs)
    assert "failed at once" in str(error)
    assert "No such file" in str(error)
    assert "Next: mend it, then pulumi up --stack sweep-t" in str(error)
    sweep.drained(box)
    new = QUEUE.update(sweep.op("Queue"), error.identifier, old, sweep.queue_inputs(box))
    assert new.launched_at == old.launched_at
    sweep.drained(box)
    assert sweep.states(box) == {"a": "sealed", "b": "sealed"}


def test_an_update_says_what_it_took_out_and_what_waits(sweep: Sweep) -> None:
    one = sweep.at_work("a")
    sweep.roster = ("a", "b", "c")
    queue = sweep.queue(one, "a", "b", job={"slots": 1})
    two = sweep.box("box-1")
    sweep.said.lines.clear()
    sweep.hold("c")
    sweep.queue(two, "a", "b", "c")
    said = sweep.said.text(Severity.INFO)
    assert "queue of box-1: 1 cells that had not started are taken over from box box-0" in said
    assert "queue of box-1: 1 cells stay with the box that was given them first" in said
    QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(one, "a", elsewhere=("b", "c")))
    assert "taken out" not in sweep.said.text(Severity.INFO), "what box-1 took is no news"
    sweep.queue(two, "b", "c", dropped={"c": "a drill"})
    assert "queue of box-1: c taken out" in sweep.said.text(Severity.INFO)
    sweep.queue(two, "b", "c")
    sweep.until_state(two, "sealed", "b")
    assert sweep.started().count("b b") == 1


# Checking


def test_a_started_cell_that_would_change_is_refused_in_the_preview(sweep: Sweep) -> None:
    box = sweep.at_work()
    old = sweep.queue_inputs(box)
    changed = [{"name": "a", "params": {"word": '"other"'}}, {"name": "b", "params": {"word": '"b"'}}]
    (failure,) = QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, cells=changed)).failures
    assert failure.property == "cells"
    assert failure.reason.startswith("a started with another config")
    assert "cells.add" in failure.reason
    assert "cells.drop" in failure.reason


def test_a_started_cell_that_is_left_away_is_refused_in_the_preview(sweep: Sweep) -> None:
    box = sweep.at_work()
    old = sweep.queue_inputs(box)
    (failure,) = QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, "b")).failures
    assert failure.reason.startswith("a has started: put it back, and stop it with cells.drop")
    assert QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, "b", dropped={"a": "slow"})).failures == []


def test_cells_that_wait_may_come_go_and_change(sweep: Sweep) -> None:
    box = sweep.box()
    sweep.hold("a")
    queue = sweep.queue(box, "a", "b", job={"slots": 1})
    sweep.until_state(box, "running", "a")
    changed = [{"name": "a", "params": {"word": '"a"'}}, {"name": "b", "params": {"word": '"other"'}}]
    assert QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, cells=changed)).failures == []
    assert QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, "a", "c")).failures == []


def test_new_code_is_announced(sweep: Sweep) -> None:
    box = sweep.box()
    sweep.hold("b")
    queue = sweep.queue(box, job={"slots": 1})
    sweep.until_state(box, "sealed", "a")
    (sweep.project / "job" / "train.sh").write_text("echo new\n")
    QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box))
    assert "1 pending take the new code, 1 sealed with" in sweep.said.text(Severity.INFO)


# Reading


def test_read_of_a_queue_at_work(sweep: Sweep) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(box))
    seen = QUEUE.read(sweep.op("Queue"), "q", queue)
    assert not isinstance(seen, Gone)
    assert (seen.state, seen.unhealthy) == (queue, ())
    assert QUEUE.changes(sweep.queue_inputs(box), seen.inputs) == {}


def test_read_asks_for_an_update_when_cells_wait_and_nobody_works(sweep: Sweep) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(box))
    channel = sweep.channel(box)
    for process in channel.processes():
        channel.terminate(process.pid, grace=0)
    sweep.drained(box)
    seen = QUEUE.read(sweep.op("Queue"), "q", queue)
    assert not isinstance(seen, Gone)
    assert seen.unhealthy == ("queue of box-0: 2 cells wait and no runner is alive; `pulumi up` resumes them",)
    abandoned = approval_for(box, abandon=(abandonment(box),))
    seen = QUEUE.read(sweep.op("Queue"), "q", queue.model_copy(update={"approval": abandoned}))
    assert not isinstance(seen, Gone)
    assert seen.unhealthy == ()
    sweep.release()
    QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box))
    sweep.drained(box)
    assert sweep.states(box) == {"a": "sealed", "b": "sealed"}


def test_read_of_a_queue_whose_box_is_gone(sweep: Sweep) -> None:
    """It stays in the state, so that its delete writes down what was lost."""
    box = sweep.trained()
    queue = state_of(sweep.queue_inputs(box))
    sweep.vanish(box)
    seen = QUEUE.read(sweep.op("Queue"), "q", queue)
    assert not isinstance(seen, Gone)
    assert seen.unhealthy == ()


def test_a_box_s_journal_that_is_damaged_is_unknown(sweep: Sweep) -> None:
    box = sweep.trained()
    queue = state_of(sweep.queue_inputs(box))
    path = sweep.root(box) / onbox.JOURNAL
    path.write_bytes(path.read_bytes().replace(b"cell-sealed", b"cell-sailed", 1))
    seen = QUEUE.read(sweep.op("Queue"), "q", queue)
    assert not isinstance(seen, Gone)
    assert "unknown, journal line" in seen.unhealthy[0]


# Ending


def test_a_queue_at_work_is_not_stopped(sweep: Sweep) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(box))
    pids = sweep.workers(box)
    with pytest.raises(TeardownRefused, match="a  running"):
        QUEUE.delete(sweep.op("Queue"), "q", queue)
    assert sweep.workers(box) == pids


def test_the_runner_of_an_abandoned_box_is_stopped_and_nothing_removed(sweep: Sweep) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(approved(box, approval_for(box, abandon=(abandonment(box),)))))
    QUEUE.delete(sweep.op("Queue"), "q", queue)
    assert sweep.alive(box) == set()
    assert sweep.listed() == [box.native_id]
    assert sweep.channel(box).size(onbox.QUEUE)
    QUEUE.delete(sweep.op("Queue"), "q", queue)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]"])
def test_a_runner_whose_pid_is_not_known_is_stopped_with_all_that_runs(sweep: Sweep, content: bytes | None) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(approved(box, approval_for(box, abandon=(abandonment(box),)))))
    path = sweep.root(box) / onbox.RUNNER_PID
    path.unlink() if content is None else path.write_bytes(content)
    QUEUE.delete(sweep.op("Queue"), "q", queue)
    assert sweep.alive(box) == set()


def test_a_runner_that_does_not_end_is_an_error(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(approved(box, approval_for(box, abandon=(abandonment(box),)))))
    monkeypatch.setattr(LocalChannel, "terminate", lambda *_, **__: None)
    with pytest.raises(
        SweepstackError, match=r"queue of box-0: its runner still holds .*pulumi destroy --stack sweep-t"
    ):
        QUEUE.delete(sweep.op("Queue"), "q", queue)
