"""Queue: given when the box may work, stopped when it may end, and honest about what it can't see."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sweepstack.config.own_files import own_files
from sweepstack.core.foreign_cells import elsewhere_text
from sweepstack.core.journal import parse_journal
from sweepstack.core.records import Again, Cell, Teardown
from sweepstack.core.resources import BoxState, QueueState
from sweepstack.core.workdir import NO_CODE, collect
from sweepstack.launch import ship
from sweepstack.launch.retries import Retry, add
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.canonical import canonical_json, digest_of, sha256_hex
from sweepstack.onbox.common.errors import PlatformError, SweepstackError, TeardownRefused
from sweepstack.onbox.common.next_version import work_of
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations import power
from sweepstack.operations.cell_moves import OtherBox, find
from sweepstack.provider.dispatch import diff, to_properties
from sweepstack.provider.resources.base import Decision, Gone
from sweepstack.provider.session import Severity
from sweepstack.provider.wire import UNKNOWN
from sweepstack.teardown.ownership import read_owner, sign, who
from tests.unit.provider.support import (
    BOX,
    QUEUE,
    Sweep,
    abandonment,
    approval_for,
    approved,
    picture,
    still_creating,
)
from tests.unit.provider.test_box_ledger import STOPPABLE


def state_of(inputs: Any) -> QueueState:
    return QueueState(**inputs.model_dump(), launched_at=datetime.now(UTC))


# Giving


def test_a_launch_renews_whose_the_box_is(sweep: Sweep) -> None:
    """A box that an older version made gets its owner; a colleague who goes on with the sweep becomes it."""
    box = sweep.box()
    channel = sweep.platform.channel(box.native_id, box.account)
    made = read_owner(channel)
    assert made is not None
    sign(channel, made.model_copy(update={"person": "alice@laptop", "held_until": datetime.now(UTC)}))
    sweep.queue(box)
    owner = read_owner(channel)
    assert owner is not None
    assert owner.person == who()
    assert owner.held_until > datetime.now(UTC)


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
    assert not (sweep.root(box) / box_layout.QUEUE).exists()


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
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 120.0)
    box = sweep.box()
    error = still_creating(lambda: sweep.queue(box, job={"run": "cat no-such-file.py {word} {out}"}))
    assert error.identifier == f"{box.native_id}/queue"
    canonical_json(error.outputs)
    old = QueueState.model_validate(error.outputs)
    assert "failed at once" in str(error)
    assert "No such file" in str(error)
    assert "Next: fix it, then pulumi up --stack sweep-t" in str(error)
    sweep.drained(box)
    new = QUEUE.update(sweep.op("Queue"), error.identifier, old, sweep.queue_inputs(box))
    assert new.launched_at == old.launched_at
    sweep.drained(box)
    assert sweep.states(box) == {"a": "sealed", "b": "sealed"}


def test_a_wait_that_a_person_ends_names_no_mistake(sweep: Sweep) -> None:
    """Ctrl-C in `up`. Nothing is wrong; what bills, and how to wait again."""
    box = sweep.box()
    sweep.cancelled.set()
    error = still_creating(lambda: sweep.queue(box))
    assert "the wait for the first step was ended; the box bills, and goes on with its cells" in str(error)
    assert "Next: sweepctl wait --stack sweep-t done" in str(error)
    assert "mend" not in str(error)
    sweep.cancelled.clear()
    old = QueueState.model_validate(error.outputs)
    QUEUE.update(sweep.op("Queue"), error.identifier, old, sweep.queue_inputs(box))  # a second runner comes in vain
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
    assert "queue of box-1: 1 cells are taken over from box box-0" in said
    assert "queue of box-1: 1 cells stay with the box that was given them first" in said
    QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(one, "a", elsewhere=("b", "c")))
    assert "taken out" not in sweep.said.text(Severity.INFO), "what box-1 took is no news"
    sweep.queue(two, "b", "c", dropped={"c": "a drill"})
    assert "queue of box-1: c taken out" in sweep.said.text(Severity.INFO)
    sweep.queue(two, "b", "c")
    sweep.until_state(two, "sealed", "b")
    assert sweep.started().count("b b") == 1


def others(*cells: str) -> list[str]:
    """Cells of another box, as the program names them."""
    return [elsewhere_text(Cell(name=name, params={"word": name})) for name in cells]


def test_cells_whose_new_box_is_not_rented_stay_and_are_taken_when_it_is(sweep: Sweep) -> None:
    sweep.roster = ("a", "b", "c")
    one = sweep.box()
    sweep.hold("a", "b")
    queue = sweep.queue(one, job={"slots": 1})
    sweep.until_state(one, "running", "a")
    inputs = sweep.queue_inputs(one, "a", elsewhere=others("b", "c"), job={"slots": 1})
    words = _said(sweep, lambda: QUEUE.check(sweep.op("Queue"), queue, inputs))
    assert "queue of box-0: 2 to move to another box (b, c)" in words
    words = _said(sweep, lambda: QUEUE.update(sweep.op("Queue"), "q", queue, inputs))
    assert "2 cells that had not started stay here until the box that is to have them takes them over" in words
    two = sweep.box("box-1")
    taken = _said(sweep, lambda: sweep.queue(two, "b", "c", elsewhere=others("a"), job={"slots": 1}))
    assert "queue of box-1: 2 cells are taken over from box box-0" in taken
    assert "stay here" not in _said(sweep, lambda: QUEUE.update(sweep.op("Queue"), "q", queue, inputs))
    sweep.release()
    sweep.drained(one)
    sweep.drained(two)
    assert sorted(sweep.started()) == ["a a", "b b", "c c"]


def test_cells_of_a_box_that_is_gone_are_taken_over_by_the_same_up(sweep: Sweep) -> None:
    """The delete of what is left of that box comes after this update, and still names what was lost with it."""
    one = sweep.box()
    sweep.hold("a", "b")
    lost = sweep.queue(one, "a", "b", job={"slots": 1})
    sweep.until_state(one, "running", "a")
    two = sweep.box("box-1")
    sweep.vanish(one)
    state = sweep.queue(two)
    assert "2 cells are taken over from box box-0" in sweep.said.infos
    assert sweep.born().ended_how == "gone"
    assert not isinstance(seen := QUEUE.read(sweep.op("Queue", "box-1"), "q", state), Gone)
    assert seen.unhealthy == ()
    QUEUE.delete(sweep.op("Queue"), "q", lost)
    (loss,) = sweep.store.losses()
    assert loss.cells == ("a", "b")
    sweep.release()
    sweep.until_state(two, "sealed", "a", "b")


def test_cells_that_only_a_box_that_is_gone_was_given_ask_for_an_update(sweep: Sweep) -> None:
    one = sweep.box()
    sweep.hold("a", "b")
    sweep.queue(one, "a", "b", job={"slots": 1})
    two = sweep.box("box-1")
    idle = sweep.queue(two, "b").model_copy(update={"cells": sweep.queue_inputs(two, "a", "b").cells})
    sweep.vanish(one)
    assert not isinstance(seen := QUEUE.read(sweep.op("Queue", "box-1"), "q", idle), Gone)
    assert seen.unhealthy == ("queue of box-1: 1 cell is in no queue yet; `pulumi up` brings it in",)


def test_cells_of_a_box_that_may_still_run_are_not_taken_over(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is not gone: the cell may train there, and would run twice."""
    one = sweep.at_work("a", "b")
    two = sweep.box("box-1")
    real = LocalPlatform.get

    def silent(self: LocalPlatform, native_id: str, account: str) -> Any:
        if native_id == one.native_id:
            raise PlatformError("no answer")
        return real(self, native_id, account)

    monkeypatch.setattr(LocalPlatform, "get", silent)
    sweep.queue(two)
    assert sweep.states(two) == {}
    launch = sweep.store.launch("box-0", one.generation)
    assert launch is not None
    assert set(launch.cells) == {"a", "b"}


def _said(sweep: Sweep, what: Any) -> str:
    sweep.said.lines.clear()
    what()
    return sweep.said.text(Severity.INFO)


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.STOPPING, Phase.RUNNING])
def test_only_a_box_that_is_stopped_is_spoken_for_by_its_copied_journal(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    """While it stops, its runner may still claim cells: what nobody can ask then is not known."""
    sweep.box()
    (birth,) = sweep.store.births()
    assert birth.native_id is not None
    record = sweep.platform.get(birth.native_id, birth.account)
    monkeypatch.setattr(
        "sweepstack.onbox.host.folder_platform.LocalPlatform.get", lambda *_: replace(record, phase=phase)
    )

    def silent(*_: Any) -> None:
        raise PlatformError("no answer")

    monkeypatch.setattr("sweepstack.onbox.host.folder_platform.LocalPlatform.channel", silent)
    assert find(birth) == OtherBox(None, phase is Phase.STOPPED)


def test_a_stop_leaves_the_word_that_the_copied_journal_is_whole(sweep: Sweep) -> None:
    box = sweep.at_work("a", "b")
    assert sweep.store.rest(box.name, box.generation) is None
    wipes_nothing = STOPPABLE | {"stop": {"kills": [], "keeps": ["scratch", "data", "durable"], "price_per_hour": 0.01}}
    inputs = sweep.box_inputs(teardown=wipes_nothing).model_copy(update={"want": "stopped"})
    assert BOX.update(sweep.op(), box.native_id, box, inputs).phase == "stopped"
    rest, journal = sweep.store.rest(box.name, box.generation), sweep.store.journal(box.name, box.generation)
    assert rest is not None
    assert journal is not None
    assert journal.entries
    assert (rest.native_id, rest.head) == (box.native_id, journal.head)


def test_a_queue_with_nothing_but_cells_that_are_to_move_goes_on(sweep: Sweep) -> None:
    """The program gives it none any more, the box that is to have them is not there, and its runner has died."""
    box = sweep.at_work("a", "b")
    queue = sweep.queue(box, "a", "b")
    channel = sweep.channel(box)
    for process in channel.processes():
        channel.terminate(process.pid, grace=0)
    sweep.drained(box)
    sweep.release()
    inputs = sweep.queue_inputs(box, cells=[], elsewhere=others("a", "b"))
    new = QUEUE.update(sweep.op("Queue"), "q", queue, inputs)
    sweep.drained(box)
    assert sweep.states(box) == {"a": "sealed", "b": "sealed"}
    seen = sweep.seen_queue(new)
    assert seen.unhealthy == ()


def test_a_changed_config_of_another_box_s_cell_asks_for_an_update(sweep: Sweep) -> None:
    """The cell may wait in this queue as it was; that other cells came or went is no reason."""
    box = sweep.box()
    old = to_properties(sweep.queue_inputs(box, "a", elsewhere=[*others("b"), "c"]))
    for names, changed in (
        (others("b", "c", "d"), ()),
        (others("c"), ()),
        (["b 0123456789abcdef"], ("elsewhere",)),
    ):
        new = to_properties(sweep.queue_inputs(box, "a", elsewhere=names))
        found = diff(sweep.op("Queue"), old, old, new)
        assert (found.changed, found.replaces) == (changed, ()), names
    odd = {**old, "elsewhere": 7}
    assert diff(sweep.op("Queue"), odd, odd, old).changed == ()


# Checking


def test_a_started_cell_that_would_change_or_is_left_away_is_refused_in_the_preview(sweep: Sweep) -> None:
    box = sweep.at_work()
    old = sweep.queue_inputs(box)
    changed = [{"name": "a", "params": {"word": '"other"'}}, {"name": "b", "params": {"word": '"b"'}}]
    (failure,) = QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, cells=changed)).failures
    assert failure.property == "cells"
    assert failure.reason.startswith("a started with another config")
    assert "cells.add" in failure.reason
    assert "cells.drop" in failure.reason
    (failure,) = QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, "b")).failures
    assert failure.reason == (
        "a has started: put it back into the stack file. Next, to stop it: "
        'sweepctl drop a --reason "…" --stack sweep-t, and pulumi up'
    )
    (failure,) = QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, "c")).failures
    assert failure.reason.startswith(
        "a, b have started: put them back into the stack file. Next, to stop them: sweepctl drop a b "
    )
    assert QUEUE.check(sweep.op("Queue"), old, sweep.queue_inputs(box, "b", dropped={"a": "slow"})).failures == []


def test_cells_that_wait_may_come_go_and_change(sweep: Sweep) -> None:
    box = sweep.box()
    sweep.hold("a")
    queue = sweep.queue(box, "a", "b", job={"slots": 1})
    sweep.until_state(box, "running", "a")
    changed = [{"name": "a", "params": {"word": '"a"'}}, {"name": "b", "params": {"word": '"other"'}}]
    assert QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, cells=changed)).failures == []
    assert QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, "a", "c")).failures == []
    assert "queue of box-0: 1 cell more (c), 1 taken out (b)" in sweep.said.text(Severity.INFO)


def test_a_new_priority_is_told_reaches_the_box_and_runs_nothing_again(sweep: Sweep) -> None:
    box = sweep.box()
    sweep.roster = ("a", "b", "c")
    sweep.hold("a")
    queue = sweep.queue(box, job={"slots": 1})
    assert "priority" not in queue.model_dump(mode="json", exclude_none=True)
    sweep.until_state(box, "running", "a")
    lines = sweep.root(box) / "data/sweep/queue.jsonl"
    before = lines.read_bytes()
    assert b'"priority"' not in (sweep.root(box) / "data/sweep/spec.json").read_bytes()
    new = sweep.queue_inputs(box, job={"slots": 1}, priority=['{"word": "c"}', '{"cell": "b"}'])
    assert QUEUE.check(sweep.op("Queue"), queue, new).failures == []
    assert "queue of box-0: order: 2 cells wait, first c, b" in sweep.said.text(Severity.INFO)
    QUEUE.update(sweep.op("Queue"), "q", queue, new)
    sweep.release()
    sweep.until_state(box, "sealed", "a", "b", "c")
    assert lines.read_bytes() == before
    assert [line.split()[0] for line in sweep.started()] == ["a", "c", "b"]


def half_done(sweep: Sweep, **job: Any) -> tuple[BoxState, QueueState]:
    """a is sealed, b runs, c and d wait."""
    sweep.roster = ("a", "b", "c", "d")
    box = sweep.box()
    sweep.hold("b")
    queue = sweep.queue(box, job={"slots": 1, **job})
    sweep.until_state(box, "sealed", "a")
    sweep.until_state(box, "running", "b")
    return box, queue


def new_code(sweep: Sweep) -> tuple[str, str]:
    """Another version of the job; the first digits of the old and of the new one."""
    before = collect(sweep.project / "job").digest
    (sweep.project / "job" / "note.txt").write_text("new")
    return short(before), short(collect(sweep.project / "job").digest)


def test_new_code_beside_results_of_the_old_is_refused_with_the_ways_out(sweep: Sweep) -> None:
    box, queue = half_done(sweep)
    changed = {"run": "sh train.sh {word} {out} x", "env": {"A": "1"}, "setup": "true", "slots": 1}
    QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, job=changed))
    for name in ("run", "setup", "env"):
        assert f"{name} changed: 2 pending take it, 2 that ran keep theirs" in sweep.said.infos
    old, new = new_code(sweep)
    (failure,) = QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box)).failures
    assert failure.property == "job"
    assert f"code {old}→{new}: 2 pending, 1 running with {old}, 1 sealed with {old}" in failure.reason
    for way in ("sweepctl retry --stack sweep-t --all", f'code: "{old}"', "job.mixing: allow"):
        assert way in failure.reason
    assert f" Changed since {old}: note.txt (new). " in failure.reason
    stays = sweep.queue_inputs(box, want="stopped", job={"secrets": ["SWEEP_TEST_A"]})
    assert QUEUE.check(sweep.op("Queue"), queue, stays).failures == [], "it starts nothing"
    none = sweep.queue_inputs(box, "a", "b", elsewhere=["c", "d"])
    assert QUEUE.check(sweep.op("Queue"), queue, none).failures == [], "no cell takes it"
    here = sweep.queue_inputs(box, "a", "b", elsewhere=others("c", "d"))
    (failure,) = QUEUE.check(sweep.op("Queue"), queue, here).failures
    assert "2 pending" in failure.reason, "until they are taken they run here"
    fresh = sweep.queue_inputs(box).model_copy(update={"box": "local-other"})
    assert QUEUE.check(sweep.op("Queue"), None, fresh).failures != [], "another box's cells ran with the old code"
    inputs = sweep.queue_inputs(box, job={"mixing": "allow", "slots": 1})
    checked = QUEUE.check(sweep.op("Queue"), queue, inputs)
    words = f"code {old}→{new}: 2 pending, 1 running with {old}, 1 sealed with {old}"
    assert (checked.failures, checked.inputs.versions) == ([], words)
    assert f"queue of box-0: {words}" in sweep.said.infos
    again = QUEUE.check(sweep.op("Queue"), checked.inputs, inputs)
    assert again.inputs == checked.inputs, "the words stay, so that they are no change of their own"


def flat_project(sweep: Sweep) -> dict[str, Any]:
    """Makes the project's own folder the job's, as a sweep of before ADR 22 shipped it: Pulumi.yaml and stack file were
    part of its code. The job of its queue."""
    (sweep.project / "Pulumi.yaml").write_text("name: flat\nruntime: python\n")
    (sweep.project / "Pulumi.t.yaml").write_text("config: {}\n")
    before = collect(sweep.project)
    sweep.store.write_code(before.digest, ship.pack(sweep.project, before))
    return {
        "workdir": ".",
        "run": f"sh job/train.sh {{word}} {{out}} {sweep.control}",
        "slots": 1,
        "code": before.digest,
    }


def test_a_sweep_whose_code_held_the_stack_file_keeps_its_digest(sweep: Sweep) -> None:
    job = flat_project(sweep)
    box, queue = half_done(sweep, **job)
    (sweep.project / "Pulumi.t.yaml").write_text("config: {more: cells}\n")
    now = collect(sweep.project, (), own_files(sweep.project)).digest
    assert now != job["code"]
    checked = QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, job={**job, "code": now}))
    assert checked.failures == []
    assert checked.inputs.job == queue.job, "an `up` changes nothing"
    QUEUE.update(sweep.op("Queue"), "", queue, checked.inputs)
    sweep.release()
    sweep.drained(box)
    assert {cell.code for cell in parse_journal(sweep.channel(box).read(box_layout.JOURNAL)).cells.values()} == {
        job["code"]
    }


def test_code_that_changed_beside_the_stack_file_is_new_code(sweep: Sweep) -> None:
    job = flat_project(sweep)
    box, queue = half_done(sweep, **job)
    (sweep.project / "job" / "note.txt").write_text("new")
    now = collect(sweep.project, (), own_files(sweep.project)).digest
    (failure,) = QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, job={**job, "code": now})).failures
    assert f"code {short(job['code'])}→{short(now)}: 2 pending" in failure.reason
    assert f"Changed since {short(job['code'])}: job/note.txt (new). " in failure.reason, "and no stack file"


def test_code_that_can_not_be_had_changes_nothing_and_starts_nothing(sweep: Sweep) -> None:
    """A teardown from a machine that has no copy of it; see test_liveness.py."""
    box = sweep.box()
    known = sweep.queue_inputs(box)
    sweep.queue(box)
    without = sweep.queue_inputs(box, job={"code": NO_CODE, "workdir": "not/here"})
    checked = QUEUE.check(sweep.op("Queue"), known, without)
    assert checked.failures == []
    assert checked.inputs.job == known.job
    (failure,) = QUEUE.check(sweep.op("Queue"), None, without).failures
    assert "no cell can be started" in failure.reason
    (failure,) = BOX.check(
        sweep.op(), None, sweep.box_inputs("box-1", no_code="job.workdir: x is not a folder")
    ).failures
    assert "nothing is rented without its code. job.workdir: x is not a folder" in failure.reason


def test_cells_that_failed_for_good_take_the_new_code(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 120.0)
    box = sweep.box()
    queue_inputs = sweep.queue_inputs(box, job={"run": "false"})
    still_creating(lambda: QUEUE.create(sweep.op("Queue"), queue_inputs))
    sweep.drained(box)
    new_code(sweep)
    assert QUEUE.check(sweep.op("Queue"), queue_inputs, sweep.queue_inputs(box)).failures == []
    assert ": 2 pending" in sweep.said.text(Severity.INFO)


def failed_in_box(sweep: Sweep, box: BoxState, name: str, *, final: bool, work: str = "", **more: Any) -> None:
    """The box's journal with a failure of this cell, as the runner writes it. `work`: an older one did not."""
    channel = sweep.channel(box)
    data = channel.read(box_layout.JOURNAL) if channel.size(box_layout.JOURNAL) else b""
    before = parse_journal(data)
    code = collect(sweep.project / "job").digest
    cell = next(one for one in sweep.cells if one.name == name)
    said: list[dict[str, Any]] = [
        {"event": "cell-started", "config_digest": cell.config_digest, "code": code, "version": code, "work": work},
        {"event": "cell-failed", "exit_code": 1, "reason": "exit code 1", "class": "bug", "final": final, **more},
    ]
    head = before.head
    for seq, event in enumerate(said, start=len(before.entries) + 1):
        entry = {**event, "cell": name, "attempt": 1, "seq": seq, "prev": head, "time": "2026-11-27T05:00:00.000Z"}
        head = sha256_hex(canonical_json(entry))
        data += canonical_json({**entry, "hash": head}) + b"\n"
    channel.write(box_layout.JOURNAL, data)


def test_a_cell_of_which_an_older_runner_told_no_checkpoint_is_not_said_to_have_none(sweep: Sweep) -> None:
    """Seen: after a retry of a sweep of 6f8d950f a cell began at 0, and the preview said nothing of its checkpoints."""
    box = sweep.box()
    queue = sweep.queue_inputs(box)
    failed_in_box(sweep, box, "a", final=True)
    new_code(sweep)
    assert QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box)).failures == []
    assert "failed, and starts anew with it: a (its checkpoints are not known)" in sweep.said.text(Severity.INFO)


def test_a_cell_that_will_be_tried_again_takes_the_new_code_unless_it_has_a_checkpoint(sweep: Sweep) -> None:
    """Seen: after a fix and `up` all cells with a try left ran the old code once more."""
    box = sweep.box()
    queue = sweep.queue_inputs(box)
    failed_in_box(sweep, box, "a", final=False, checkpoints=False)
    failed_in_box(sweep, box, "b", final=False, work=digest_of("work"), checkpoints=True, saved_step=40)
    old, new = new_code(sweep)
    (failure,) = QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box)).failures
    assert f"code {old}→{new}: 1 pending, 1 failed with {old} (b …)" in failure.reason
    mixed = sweep.queue_inputs(box, job={"mixing": "allow"})
    assert QUEUE.check(sweep.op("Queue"), queue, mixed).failures == []
    said = sweep.said.text(Severity.INFO)
    assert "failed, and starts anew with it: a" in said
    assert "b has a checkpoint of step 40, keeps its version and goes on from it" in said
    across = sweep.queue_inputs(box, job={"resume": "across-code"})
    assert QUEUE.check(sweep.op("Queue"), queue, across).failures == []
    said = sweep.said.text(Severity.INFO)
    assert (
        "failed, and starts anew with it: a; failed, and goes on with new code: b from its checkpoint of step 40"
        in said
    )
    add(sweep.store, {"b": Retry(retry=1, salt=0, by="ada", at=datetime.now(UTC))})
    assert QUEUE.check(sweep.op("Queue"), queue, across).failures == []
    assert len(QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box)).failures) == 1, "not from the start"
    add(sweep.store, {"b": Retry(retry=2, salt=2, by="ada", at=datetime.now(UTC))})
    assert QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box)).failures == []


def test_a_cell_whose_checkpoint_is_in_a_bucket_begins_at_0_on_no_later_box_unasked(sweep: Sweep) -> None:
    box = sweep.box()
    before = sweep.queue_inputs(box).job
    work = work_of({"code": before.code, "run": before.run}, 0)
    failed_in_box(sweep, box, "a", final=False, work=work, checkpoints=True)
    sweep.store.write_journal("box-0", 1, sweep.channel(box).read(box_layout.JOURNAL))
    sweep.store.write_birth(sweep.born().model_copy(update={"ended_at": datetime.now(UTC), "ended_how": "vanished"}))
    new_code(sweep)
    bucket = {"path": "kept", "source": "s3://bucket/kept", "mode": "MOUNT_CACHED"}

    def failures(**job: Any) -> list[str]:
        inputs = sweep.queue_inputs(box, job={"mounts": [bucket], "mixing": "allow", **job})
        later = inputs.model_copy(update={"box": "local-other", "box_name": "box-7"})
        return [failure.reason for failure in QUEUE.check(sweep.op("Queue"), None, later).failures]

    assert failures() == [], "it keeps its code"
    (refused,) = failures(run="sh train.sh {word} {out} x")
    assert refused.startswith("a has a checkpoint that another command, setup or environment wrote")
    assert "sweepctl retry a --from start (begins at 0); job.resume: across-code (goes on from it)" in refused
    assert failures(run="sh train.sh {word} {out} x", resume="across-code") == []


def test_a_failure_that_an_older_runner_wrote_is_judged_as_before(sweep: Sweep) -> None:
    box = sweep.box()
    queue = sweep.queue_inputs(box)
    failed_in_box(sweep, box, "a", final=False)
    failed_in_box(sweep, box, "b", final=True)
    old, new = new_code(sweep)
    (failure,) = QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box)).failures
    assert f"code {old}→{new}: 1 pending, 1 failed with {old} (a …)" in failure.reason


def test_retries_of_the_stack_file_count_for_all_boxes_when_code_is_mixed(sweep: Sweep) -> None:
    """A fix and `cells.retry` of all cells in one request: no cell keeps the old code."""
    box, queue = half_done(sweep)
    new_code(sweep)
    given = {name: {"retry": 1, "salt": 1, "counted": 1} for name in sweep.roster}
    assert QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, retries=given)).failures == []
    other = sweep.queue_inputs(box, "c", "d", elsewhere=["a", "b"], retries=given)
    fresh = other.model_copy(update={"box": "local-other", "box_name": "box-1"})
    checked = QUEUE.check(sweep.op("Queue", "box-1"), None, fresh)
    assert checked.failures == []
    assert set(checked.inputs.retries or {}) == {"c", "d"}, "those of its own cells"


def test_a_pin_is_found_by_its_first_digits_and_judged_before_there_is_a_box(sweep: Sweep) -> None:
    box, queue = half_done(sweep)
    old, new = new_code(sweep)
    pins = {"c": old, "d": old[:3]}
    checked = QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, pins=pins, job={"slots": 1}))
    assert checked.failures == []
    assert checked.inputs.pins == dict.fromkeys(("c", "d"), queue.job.code)
    (failure,) = QUEUE.check(
        sweep.op("Queue"), queue, sweep.queue_inputs(box, pins={"c": "0123456789", "d": old})
    ).failures
    assert failure.property == "pins"
    assert failure.reason.startswith('c is pinned to code: "0123456789", which is no version of this sweep. Known: ')
    assert old in failure.reason
    assert new in failure.reason
    known = sweep.queue_inputs(box, pins={"c": "0123456789"}).model_dump(mode="json", exclude_none=True)
    unknown = known | dict.fromkeys(("box", "account", "generation"), UNKNOWN)
    reasons = [failure.reason for failure in QUEUE.check_early(sweep.op("Queue"), {}, unknown)]
    assert len(reasons) == 2
    assert "is no version of this sweep" in reasons[0]
    assert f"1 sealed with {old}" in reasons[1]
    assert QUEUE.check_early(sweep.op("Queue"), known, unknown) == [], "a replacement's cells were judged before"


def test_cells_of_another_box_that_run_again_are_in_no_new_cell_s_way(sweep: Sweep) -> None:
    """`retry --all` is for the whole sweep: each queue has its own cells' retries as an input, and asks for all."""
    box, _ = half_done(sweep)
    new_code(sweep)
    elsewhere = sweep.queue_inputs(box, "c", "d", elsewhere=["a", "b"])
    other = elsewhere.model_copy(update={"box": "local-other", "box_name": "box-7"})
    assert QUEUE.check(sweep.op("Queue"), None, other).failures != []
    again = Retry(retry=1, salt=1, by="ada", at=datetime.now(UTC))
    add(sweep.store, {"a": again})
    assert QUEUE.check(sweep.op("Queue"), None, other).failures != [], "b still keeps the old code"
    add(sweep.store, {"b": again})
    assert QUEUE.check(sweep.op("Queue"), None, other).failures == []


def test_a_retry_on_record_is_an_input_that_changes(sweep: Sweep) -> None:
    box, queue = half_done(sweep)
    now = datetime.now(UTC)
    set_before = Retry(retry=1, salt=1, set_of=0, by="ada", at=now)
    add(sweep.store, {"a": set_before, "other": Retry(retry=3, salt=0, by="ada", at=now)})
    checked = QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, job={"slots": 1}))
    assert checked.inputs.retries == {"a": Again(retry=1, salt=1, set_of=0)}
    assert QUEUE.changes(queue, checked.inputs) == {"retries": Decision.UPDATE}
    (sweep.store.root / "sweep.json").unlink()
    unreadable = QUEUE.check(sweep.op("Queue"), checked.inputs, sweep.queue_inputs(box, job={"slots": 1}))
    assert unreadable.inputs.retries == checked.inputs.retries, "nobody knows better"


# Secrets


def test_secrets_that_are_not_set_are_refused_before_anything_is_rented(sweep: Sweep) -> None:
    inputs = sweep.box_inputs(secrets=["SWEEP_TEST_A", "SWEEP_TEST_B"])
    (failure,) = BOX.check(sweep.op(), None, inputs).failures
    assert "SWEEP_TEST_A, SWEEP_TEST_B are not set where this command runs" in failure.reason
    assert "Next: export SWEEP_TEST_A=… SWEEP_TEST_B=…" in failure.reason


def test_secrets_are_needed_only_while_cells_are_to_start(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another shell a finished sweep can still be cleared, and a running one left as it is."""
    box = sweep.box()
    job = {"secrets": ["SWEEP_TEST_A"]}
    (failure,) = QUEUE.check(sweep.op("Queue"), None, sweep.queue_inputs(box, job=job)).failures
    assert failure.property == "job"
    monkeypatch.setenv("SWEEP_TEST_A", "hunter2-hunter2")
    sweep.hold("a", "b")
    queue = sweep.queue(box, job=job)
    monkeypatch.delenv("SWEEP_TEST_A")
    assert QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, job=job)).failures == [], "the box has it"
    sweep.channel(box).write(box_layout.SECRETS, b"{}")
    assert len(QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, job=job)).failures) == 1
    sweep.release()
    sweep.drained(box)
    assert QUEUE.check(sweep.op("Queue"), queue, sweep.queue_inputs(box, job=job)).failures == [], "all is done"


def test_changed_secrets_ask_for_an_update(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP_TEST_A", "hunter2-hunter2")
    box = sweep.box()
    sweep.hold("a", "b")
    queue = sweep.queue(box, job={"secrets": ["SWEEP_TEST_A"]})
    assert "hunter2" not in queue.model_dump_json()
    seen = sweep.seen_queue(queue)
    assert seen.unhealthy == ()
    monkeypatch.setenv("SWEEP_TEST_A", "another-secret")
    seen = sweep.seen_queue(queue)
    assert "job.secrets changed" in seen.unhealthy[0]
    QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box, job={"secrets": ["SWEEP_TEST_A"]}))
    assert sweep.channel(box).read(box_layout.SECRETS) == canonical_json({"SWEEP_TEST_A": "another-secret"}) + b"\n"


# Reading


def test_a_queue_at_work_reads_as_it_is_and_is_not_stopped(sweep: Sweep) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(box))
    seen = sweep.seen_queue(queue)
    assert (seen.state, seen.unhealthy) == (queue, ())
    assert QUEUE.changes(sweep.queue_inputs(box), seen.inputs) == {}
    pids = sweep.workers(box)
    with pytest.raises(TeardownRefused, match="a  running"):
        QUEUE.delete(sweep.op("Queue"), "q", queue)
    assert sweep.workers(box) == pids


def test_read_asks_for_an_update_when_cells_wait_and_nobody_works(sweep: Sweep) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(box))
    channel = sweep.channel(box)
    for process in channel.processes():
        channel.terminate(process.pid, grace=0)
    sweep.drained(box)
    seen = sweep.seen_queue(queue)
    assert seen.unhealthy == ("queue of box-0: 2 cells wait and no runner is alive; `pulumi up` resumes them",)
    abandoned = approval_for(box, abandon=(abandonment(box),))
    seen = sweep.seen_queue(queue.model_copy(update={"approval": abandoned}))
    assert seen.unhealthy == ()
    sweep.release()
    QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box))
    sweep.drained(box)
    assert sweep.states(box) == {"a": "sealed", "b": "sealed"}


def test_a_box_that_could_not_stop_itself_is_told_in_every_preview(sweep: Sweep) -> None:
    """hosts.md S1: its runner had ended, and the box billed on without a word."""
    box = sweep.box()
    queue = sweep.queue(box)
    sweep.drained(box)
    journal = parse_journal(sweep.channel(box).read(box_layout.JOURNAL))
    entry = {"event": "box-off-failed", "native": "off", "reason": "it ended with 127", "tries": 1, "again": 60.0}
    line = {**entry, "prev": journal.head, "seq": len(journal.entries) + 1, "time": datetime.now(UTC).isoformat()}
    line["hash"] = sha256_hex(canonical_json(line))
    sweep.channel(box).append_locked(box_layout.JOURNAL, canonical_json(line) + b"\n", box_layout.QUEUE_LOCK)
    QUEUE.read(sweep.op("Queue"), "q", queue)
    assert "ALARM  box-0 should have stopped itself, could not (off: it ended with 127)" in sweep.said.warnings
    assert "sweepctl tend --stack" in sweep.said.warnings


def test_a_damaged_journal_is_unknown_and_the_queue_of_a_box_that_is_gone_stays(sweep: Sweep) -> None:
    """It stays in the state, so that its delete writes down what was lost."""
    box = sweep.trained()
    queue = state_of(sweep.queue_inputs(box))
    path = sweep.root(box) / box_layout.JOURNAL
    path.write_bytes(path.read_bytes().replace(b"cell-sealed", b"cell-sailed", 1))
    assert "unknown, journal line" in sweep.seen_queue(queue).unhealthy[0]
    sweep.vanish(box)
    assert sweep.seen_queue(queue).unhealthy == ()


# Ending


def test_the_runner_of_an_abandoned_box_is_stopped_and_nothing_removed(sweep: Sweep) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(approved(box, approval_for(box, abandon=(abandonment(box),)))))
    QUEUE.delete(sweep.op("Queue"), "q", queue)
    assert sweep.alive(box) == set()
    assert sweep.listed() == [box.native_id]
    assert sweep.channel(box).size(box_layout.QUEUE)
    QUEUE.delete(sweep.op("Queue"), "q", queue)


@pytest.mark.parametrize(
    "content", [None, b"[]", *(pytest.param(one, marks=pytest.mark.proof) for one in (b"", b"{}"))]
)  # the two in make test stay: no file, and one that is no runner's
def test_a_runner_whose_pid_is_not_known_is_stopped_with_all_that_runs(sweep: Sweep, content: bytes | None) -> None:
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(approved(box, approval_for(box, abandon=(abandonment(box),)))))
    path = sweep.root(box) / box_layout.RUNNER_PID
    path.unlink() if content is None else path.write_bytes(content)
    QUEUE.delete(sweep.op("Queue"), "q", queue)
    assert sweep.alive(box) == set()


def test_another_process_that_holds_the_runner_s_lock_is_waited_for_and_named(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command ended it, and each named the next one that was refused: no pid was named."""
    waited = power.RELEASE_SECONDS
    monkeypatch.setattr(power, "RELEASE_SECONDS", 0.1)
    box = sweep.trained()
    queue = state_of(sweep.queue_inputs(approved(box, approval_for(box, abandon=(abandonment(box),)))))
    holds = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    )
    path = sweep.root(box) / box_layout.RUNNER_LOCK
    with subprocess.Popen(
        [sys.executable, "-c", holds, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(SweepstackError) as refused:
            QUEUE.delete(sweep.op("Queue"), "q", queue)
        assert f"runner.lock (process {other.pid} there" in str(refused.value)
        assert f"ssh --stack sweep-t box-0 -- kill {other.pid} && pulumi destroy --stack sweep-t" in str(refused.value)
        monkeypatch.setattr(power, "RELEASE_SECONDS", waited)
        threading.Timer(0.5, other.kill).start()
        QUEUE.delete(sweep.op("Queue"), "q", queue)
        assert other.wait() != 0


def test_a_runner_that_does_not_end_is_an_error(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "RELEASE_SECONDS", 0.1)
    box = sweep.at_work()
    queue = state_of(sweep.queue_inputs(approved(box, approval_for(box, abandon=(abandonment(box),)))))
    monkeypatch.setattr(LocalChannel, "terminate", lambda *_, **__: None)
    with pytest.raises(
        SweepstackError, match=r"queue of box-0: its runner still holds .*pulumi destroy --stack sweep-t"
    ):
        QUEUE.delete(sweep.op("Queue"), "q", queue)
