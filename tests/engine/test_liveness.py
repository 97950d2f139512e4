"""From every state, at most three documented commands end all bills, and rent nothing.

The commands are those of docs/teardown.md, "From each state".
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.engine.commands import COMMAND_SECONDS, Result, assert_failed, assert_refused, ok
from tests.engine.harness import Stack
from tests.engine.looking import BOX_ID

Make = Callable[..., Stack]


class WayOut:
    """Counts the commands that a person types, and how often something was rented."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.typed: list[str] = []
        self._births = len(stack.births())

    def types(self, tool: str, *words: str, preview: bool = False) -> Result:
        """One command, which must succeed.

        The engine's preview before an `up` or a `destroy` doubles the time. Where a test does not ask for it, it is
        left out.
        """
        self.typed.append(f"{tool} {' '.join(words)}")
        how = () if preview or tool == "sweepctl" else ("--skip-preview",)
        return ok(self.stack.sweepctl(*words) if tool == "sweepctl" else self.stack.pulumi(*words, *how))

    def abandons(self, *boxes: str, preview: bool = False) -> None:
        """The last way out: a person abandons what is on the boxes, `up`, `destroy`."""
        lost = [f"data/{box}" for box in boxes]
        self.types("sweepctl", "give-up", *lost, "--reason", "a drill")
        self.types("pulumi", "up", preview=preview)
        self.types("pulumi", "destroy", preview=preview)

    def is_over(self) -> None:
        """Nothing is left that bills; at most three commands; nothing was rented on the way; the records are closed."""
        assert self.stack.native_ids() == [], f"still there after {self.typed}"
        assert not any(self.stack.processes().values()), self.stack.picture()
        assert len(self.typed) <= 3, self.typed
        assert len(self.stack.births()) == self._births, self.stack.births()
        assert not self.stack.state().get("resources"), self.stack.state()


@pytest.fixture
def small(make_stack: Make) -> Iterator[Stack]:
    """One box, two cells, not up yet."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    yield stack
    stack.close()


@pytest.fixture
def training(small: Stack) -> Stack:
    """One box; both cells are held, nothing is sealed."""
    small.hold("seed0", "seed1")
    ok(small.up())
    return small


@pytest.mark.proof
def test_create_failed_before_the_queue_existed(small: Stack) -> None:
    """The box was rented, then its creation failed: nothing ran on it, and an approval without a receipt suffices."""
    up = small.up(env={"SWEEPSTACK_DRILL_CREATE": "fail-after-create"})
    assert up.rc != 0, str(up)
    assert small.native_id("box-0") in up.text, f"the message does not name what bills\n{up}"
    assert small.resources("Queue") == []
    refused = small.destroy()
    assert refused.rc != 0, str(refused)
    assert "sweepctl approve" in refused.text, str(refused)
    out = WayOut(small)
    out.types("sweepctl", "approve", "--box", "box-0", "--reason", "never ran")
    out.types("pulumi", "up")
    out.types("pulumi", "destroy")
    out.is_over()


@pytest.mark.proof  # an `up` that goes on with what was made: test_crash.py
def test_create_failed_and_up_goes_on(small: Stack) -> None:
    """The other way from there: `up` again finishes the create with the box that is there."""
    failed = small.up(env={"SWEEPSTACK_DRILL_CREATE": "fail-after-create"})
    assert_failed(failed, "box-0 failed after it was made", "It bills $1.25/h", "pulumi up --stack t (adopts it)")
    native_id = small.native_id("box-0")
    ok(small.up())
    small.wait_done()
    assert small.native_ids() == [native_id]
    assert len(small.births()) == 1


@pytest.mark.proof  # for each platform: tests/conformance/test_platforms.py
def test_answer_of_the_create_lost(small: Stack) -> None:
    """The platform's answer was lost: the box is found by its tag, now or at the next `up`, never rented twice."""
    small.up(env={"SWEEPSTACK_DRILL_CREATE": "lose-answer"})
    ok(small.up())
    small.wait_done()
    assert len(small.native_ids()) == 1
    assert len(small.births()) == 1


@pytest.mark.proof  # a box that is given up: the tests beside it
def test_box_killed_before_anything_was_sealed(training: Stack) -> None:
    """All processes of the box die and nothing is sealed: abandoned by name, it ends in three commands."""
    training.kill_box(training.native_id("box-0"))
    assert_refused(training.destroy(), ["seed0", "seed1"])
    out = WayOut(training)
    out.abandons("box-0", preview=True)
    out.is_over()


@pytest.mark.proof  # on a real box: tests/unit/launch/test_launch.py
def test_box_killed_and_up_resumes(training: Stack) -> None:
    """The other way from there: `up` starts the runner again on the same box, the cell's next attempt begins."""
    native_id = training.native_id("box-0")
    training.kill_box(native_id)
    training.release()
    ok(training.up())
    training.wait_done()
    assert training.native_ids() == [native_id]
    assert len(training.births()) == 1


@pytest.mark.proof  # tests/unit/provider/test_box_end.py; on the engine: test_given_up.py
def test_abandoning_a_box_in_the_middle_of_its_work(training: Stack) -> None:
    """A running sweep can be given up too: the runner is ended, nothing new starts on the way. What its runner said is
    kept: the box answers, so it is copied before the end."""
    starts = len(training.started())
    with (training.box_dir("box-0") / "data/sweep/runner.log").open("a") as log:
        log.write("a line of the runner\n")
    out = WayOut(training)
    out.types("sweepctl", "give-up", "data/box-0", "--reason", "a drill")
    up = out.types("pulumi", "up", "--diff")
    assert "abandon" in up.text.lower(), f"the diff does not show it\n{up}"
    assert len(training.started()) == starts
    out.types("pulumi", "destroy")
    out.is_over()
    said = ok(training.sweepctl("logs", "--of", "runner", "box-0"))
    assert "from the copy of " in said.err
    assert "a line of the runner" in said.out, str(said)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_end.py
def test_box_deleted_by_hand(training: Stack) -> None:
    """The box was deleted in the console: `destroy` cleans up in one command, and says what is lost."""
    training.vanish("box-0")
    out = WayOut(training)
    result = out.types("pulumi", "destroy")
    assert "LOST" in result.text, str(result)
    assert "seed0" in result.text, str(result)
    out.is_over()


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_end.py
def test_box_deleted_by_hand_after_cells_were_sealed(small_finished: Stack) -> None:
    """What was sealed on the durable tier is not lost with the box, and not reported so."""
    small = small_finished
    small.vanish("box-0")
    out = WayOut(small)
    result = out.types("pulumi", "destroy")
    assert "LOST" not in result.text, str(result)
    out.is_over()
    assert small.sealed() == set(small.cells)


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_other_ways.py; its end: the test above
def test_journal_unreadable(small_finished: Stack) -> None:
    """A journal with a broken chain proves nothing: refused, and abandoned in three commands."""
    small = small_finished
    path = small.box_dir("box-0") / "data" / "sweep" / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"cell-sealed", b"cell-sailed", 1))
    refused = small.destroy()
    assert refused.rc != 0, str(refused)
    assert "journal" in refused.text, str(refused)
    out = WayOut(small)
    out.abandons("box-0")
    out.is_over()


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_other_ways.py
def test_journal_replaced_by_nothing(small_finished: Stack) -> None:
    """An empty journal on a box whose queue was given cells does not pass for "nothing ever ran"."""
    small = small_finished
    (small.box_dir("box-0") / "data" / "sweep" / "journal.jsonl").unlink()
    small.sweepctl("approve", "--box", "box-0", "--reason", "a drill")
    before = small.native_ids()
    small.up()
    refused = small.destroy()
    assert_refused(refused, ["seed0", "seed1"])
    assert small.native_ids() == before
    out = WayOut(small)
    out.abandons("box-0")
    out.is_over()


def expire(stack: Stack) -> None:
    """Time passes: the approval is over, in the stack config and in the state. It held when the teardown began."""
    (record,) = stack.evidence.glob("records/teardown.json")
    over = datetime.fromisoformat(json.loads(record.read_text())["begun_at"]) + timedelta(seconds=1)
    stack.wait_for(lambda: datetime.now(UTC) > over, "the approval to be over")
    past = over.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    stack.edit_config(lambda sweep: sweep["approval"].update(expires=past))

    def edit(resources: list[dict[str, Any]]) -> None:
        for resource in resources:
            for side in ("inputs", "outputs"):
                if resource.get(side, {}).get("approval"):
                    resource[side]["approval"]["expires"] = past

    stack.edit_state(edit)


@pytest.mark.proof  # the same on two hosts: tests/rented/test_hosts.py
def test_destroy_failed_at_box_two_of_two_and_the_approval_expired(cleared: Stack) -> None:
    """A destroy that stopped half-way may be finished after the expiry; `up` meanwhile rents nothing again."""
    # The command itself counts as a process of box-1, so box-1 can't be proved gone: a destroy that fails there.
    stuck, gone = cleared.native_id("box-1"), cleared.native_id("box-0")
    process = cleared.start(
        "pulumi",
        "destroy",
        "--stack",
        cleared.name,
        "--yes",
        "--non-interactive",
        "--skip-preview",
        env={BOX_ID: stuck},
    )
    cleared.wait_for(lambda: gone not in cleared.native_ids(), "box-0 to end")
    time.sleep(1)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=COMMAND_SECONDS)
    assert process.returncode != 0, out + err
    assert cleared.native_ids() == [stuck], out + err
    expire(cleared)
    births = len(cleared.births())
    up = ok(cleared.up())
    assert cleared.native_ids() == [stuck], f"no cell is left to train: nothing is rented again\n{up}"
    assert len(cleared.births()) == births, str(up)
    way_out = WayOut(cleared)
    way_out.types("pulumi", "destroy")
    way_out.is_over()


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_end.py
def test_teardown_revoked(cleared: Stack) -> None:
    """A destroy that stopped half-way can be taken back: the sweep goes on with what is there. All is verified, so that
    the box that has ended is not rented again."""
    urns = [word for kind in ("Gate", "Queue", "Box") for word in ("--target", cleared.urn(kind, "box-0"))]
    ok(cleared.destroy(*urns))
    ok(cleared.up())
    assert len(cleared.births()) == 2, "no cell is left to train: nothing is rented again"
    ok(cleared.sweepctl("revoke"))
    ok(cleared.up())
    assert len(cleared.native_ids()) == 1
    assert len(cleared.births()) == 2


@pytest.mark.proof  # on a real box: tests/unit/launch/test_launch.py; the handler: unit/provider/test_queue.py
def test_wrong_settings_are_noticed_at_once(small: Stack) -> None:
    """A run command that can't work fails the `up` that waits for a sign of life, with the job's own last words."""
    small.edit_config(lambda sweep: sweep["job"].update(run="python no-such-file.py --seed {seed} --out {out}"))
    assert_failed(small.pulumi("preview"), "no-such-file.py is not among the shipped files")
    assert small.births() == []
    small.edit_config(lambda sweep: sweep["job"].update(run="python3.0 train.py --seed {seed} --out {out}"))
    assert_failed(small.up(), "python3.0 is not on the PATH")
    births = len(small.births())
    small.write_config()
    small.wait_idle()
    ok(small.up())
    small.wait_done()
    assert len(small.births()) == births
    small.run_loop()
    ok(small.destroy())
    assert small.native_ids() == []


@pytest.mark.proof  # a box that is given up: the tests beside it
def test_wrong_settings_given_up(small: Stack) -> None:
    """The other way from there: abandoned, it ends in three commands without the settings being mended."""
    small.edit_config(lambda sweep: sweep["job"].update(run="python3.0 train.py --seed {seed} --out {out}"))
    assert_failed(small.up(), "python3.0 is not on the PATH")
    out = WayOut(small)
    out.abandons("box-0")
    out.is_over()


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_a_failed_cell_is_waived(small: Stack) -> None:
    """A cell that fails for good does not hold the others' box for ever: a named waiver lets it go."""
    small.tell("fail", "seed1")
    small.hold("seed1")
    small.up()
    small.release()
    small.wait_done(but=["seed1"])
    small.wait_idle()
    ok(small.sweepctl("pull"))
    receipt = small.verify()["receipt"]
    approved = small.sweepctl("approve", receipt)
    assert_failed(approved, "not approved; nothing was written", "seed1 is failed in the receipt", "cell/seed1")
    out = WayOut(small)
    out.types("sweepctl", "give-up", receipt, "cell/seed1", "--reason", "it diverges")
    out.types("pulumi", "up")
    out.types("pulumi", "destroy")
    out.is_over()


@pytest.mark.proof
def test_the_work_dir_is_not_on_this_machine(small_finished: Stack) -> None:
    """The code is on another machine, or was thrown away since: what was trained with it can end all the same."""
    small = small_finished
    away = small.job.rename(small.job.with_name("away"))
    try:
        refused = small.up()
        assert refused.rc != 0
        assert f"job.workdir: {small.job} is not a folder" in refused.text
        ok(small.sweepctl("pull"))
        out = WayOut(small)
        out.types("sweepctl", "approve", small.verify()["receipt"])
        said = out.types("pulumi", "up")
        assert "The teardown goes on without it" in said.text
        assert "0 of 2 cells verified" not in said.text
        out.types("pulumi", "destroy")
        out.is_over()
        assert "no box is rented" in ok(small.up()).text
        small.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2]))
        again = small.up()
        assert again.rc != 0
        assert "nothing is rented without its code" in again.text
        assert small.native_ids() == []
    finally:
        away.rename(small.job)


def test_finish_is_one_command(small_finished: Stack) -> None:
    """`sweepctl finish` on a terminal: pulls, verifies, shows, asks once, and ends the sweep; prints each command."""
    small = small_finished
    result = small.terminal("sweepctl", "finish", "--stack", small.name, answers=[("?", "yes\r")])
    assert result.rc == 0, str(result)
    for command in ("sweepctl pull", "sweepctl verify", "pulumi up", "pulumi destroy"):
        assert command in result.text, f"{command} is not shown\n{result}"
    assert small.native_ids() == []
    assert {path.name for path in (small.evidence / "cells").iterdir()} == set(small.cells)


@pytest.mark.proof
def test_finish_without_a_person(finished: Stack) -> None:
    """Without a terminal `finish` pulls and verifies, and ends nothing: no person has approved it."""
    text = finished.config_file.read_text()
    result = finished.sweepctl("finish")
    assert_failed(result, "there is no terminal to ask at: to approve, give the receipt's whole digest")
    assert finished.config_file.read_text() == text, str(result)
    assert len(finished.native_ids()) == 2, str(result)
