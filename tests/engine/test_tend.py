"""`sweepctl tend`: pulls and verifies sealed cells, stops finished boxes, never deletes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.engine.commands import COMMAND_SECONDS, ok
from tests.engine.harness import Stack
from tests.engine.test_stop import phases, want


@pytest.fixture
def at_work(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """box-1 has finished; box-0 is held in the middle of its cells, and none of them waits. Boxes are stopped when they
    are done."""
    stack = make_stack()
    stack.hold(*stack.cells)
    stack.edit_config(lambda sweep: sweep["job"].update(slots=2))
    stack.edit_config(lambda sweep: sweep.update(when_done="stop"))
    stack.edit_config(lambda sweep: sweep["overrides"]["local"].update(stopped_price_per_hour=0.05))
    ok(stack.up())
    running = stack.cells_of("box-0")
    stack.release(but=running)
    stack.wait_done(but=running)
    yield stack
    stack.close()


def rounds(text: str) -> list[dict[str, object]]:
    """The lines of `--json`."""
    return [json.loads(line) for line in text.splitlines()]


def until_idle(stack: Stack, box: str) -> None:
    """Until nothing runs on a box any more."""
    stack.wait_for(lambda: not stack.processes()[stack.native_id(box)], f"{box} to be idle")


def test_rounds_bring_in_and_stop_what_is_done_and_destroy_nothing(at_work: Stack) -> None:
    """box-1: pulled, verified, stopped, and at rest until it has cells. Then round after round until all is verified
    and at rest; two at once are one too many. One that was interrupted leaves nothing in the next one's way."""
    stack = at_work
    until_idle(stack, "box-1")
    sealed, runner = stack.cells_of("box-1"), stack.runner_pid("box-0")
    (line,) = rounds(ok(stack.sweepctl("tend", "--once", "--json")).out)
    assert line["pulled"] == len(sealed)
    assert list(line["stopped"]) == ["box-1"], line
    assert phases(stack) == {"box-0": ("running", 1.25), "box-1": ("stopped", 0.05)}
    assert stack.runner_pid("box-0") == runner
    ok(stack.up())
    assert phases(stack)["box-1"][0] == "stopped", "`up` started a box that has nothing to do"
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=list(range(8))))
    stack.cells = tuple(f"seed{n}" for n in range(8))
    ok(stack.up())
    assert phases(stack)["box-1"][0] == "running", "a box at rest was given cells and was not started"

    interrupted = stack.start("sweepctl", "tend", "--interval", "60s", "--stack", stack.name)
    record = stack.evidence / "records" / "tend.json"
    assert interrupted.stdout is not None
    while "again in" not in (said := interrupted.stdout.readline()):
        assert said, "it ended by itself"
    claim = json.loads(record.read_text())
    os.kill(interrupted.pid, signal.SIGTERM)
    assert interrupted.wait(timeout=COMMAND_SECONDS) == 130
    assert not record.exists()
    record.write_text(json.dumps(claim))  # of a process that is gone: nobody waits an hour

    tending = stack.start("sweepctl", "tend", "--interval", "1s", "--json", "--stack", stack.name)
    stack.wait_for(lambda: json.loads(record.read_text())["pid"] == tending.pid, "the claim")
    second = stack.sweepctl("tend", "--once")
    assert second.rc == 1
    assert "is tended by process" in second.err
    stack.release()
    out, err = tending.communicate(timeout=COMMAND_SECONDS)
    assert tending.returncode == 0, out + err
    seen = rounds(out)
    assert {name for line in seen for name in line["stopped"]} == {"box-0", "box-1"}  # type: ignore[attr-defined]
    assert seen[-1]["counts"] == {"verified": 8}
    assert sorted(stack.started()) == sorted(stack.cells)
    assert not record.exists()
    assert len(stack.native_ids()) == 2
    assert {phase for phase, _ in phases(stack).values()} == {"stopped"}
    ok(stack.sweepctl("approve", stack.verify()["receipt"]))
    ok(stack.up())
    ok(stack.destroy())


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_stopping.py
def test_a_box_with_something_unsaved_on_scratch_is_kept(at_work: Stack) -> None:
    """Drained, and yet: what nobody sealed and the stop would wipe."""
    stack = at_work
    until_idle(stack, "box-1")
    (stack.box_dir("box-1") / "scratch" / "notes.txt").write_text("mine")
    (line,) = rounds(ok(stack.sweepctl("tend", "--once", "--json")).out)
    assert "notes.txt" in line["kept"]["box-1"]  # type: ignore[index]
    assert phases(stack)["box-1"][0] == "running"
    assert (stack.box_dir("box-1") / "scratch" / "notes.txt").read_text() == "mine"


@pytest.mark.proof
def test_a_gone_box_is_rented_anew_only_with_replace(at_work: Stack) -> None:
    """Said in each round; `--replace` lets `up` make the next generation where there is a cell for it. It runs nothing
    that is verified."""
    stack = at_work
    until_idle(stack, "box-1")
    verified = stack.cells_of("box-1")
    ok(stack.sweepctl("tend", "--once"))
    stack.vanish("box-1")
    (line,) = rounds(stack.sweepctl("tend", "--once", "--json").out)
    assert (line["gone"], line["replaced"]) == (["box-1"], [])
    assert len(stack.native_ids()) == 1
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=list(range(6))))
    (line,) = rounds(ok(stack.sweepctl("tend", "--once", "--replace", "--json")).out)
    assert line["replaced"] == ["box-1"], line
    assert len(stack.native_ids()) == 2
    assert not set(stack.started("box-1")) & set(verified)


@pytest.mark.proof
def test_a_box_with_nothing_to_do_takes_cells_that_wait(make_stack: Callable[..., Stack]) -> None:
    """box-1 has finished its two cells, and box-0 is held in its first: the second goes to box-1. What was
    edited meanwhile is not brought in by that; a person is told."""
    stack = make_stack()
    stack.hold(*stack.cells)
    ok(stack.up())
    (first,) = stack.started("box-0")
    (second,) = set(stack.cells_of("box-0")) - {first}
    stack.release(but=(first,))
    before = stack.config_file.read_text()
    stack.edit_config(lambda sweep: sweep["job"]["env"].update(MORE="1"))
    stack.wait_done(but=[first, second])
    until_idle(stack, "box-1")
    (line,) = rounds(stack.sweepctl("tend", "--once", "--json").out)
    assert line["moved"] == {}, line
    assert "queue box-0 (job" in str(line["problems"]), line
    assert len(stack.started()) == 3
    stack.config_file.write_text(before)
    (line,) = rounds(ok(stack.sweepctl("tend", "--once", "--json")).out)
    assert line["moved"] == {"box-1": 1}, line
    stack.wait_done(but=[first])
    assert second in stack.started("box-1")
    stack.release()
    stack.wait_done()
    assert sorted(stack.started()) == sorted(stack.cells)
    stack.close()


@pytest.mark.proof  # of a process that is gone: the first test
def test_a_claim_of_another_computer_is_waited_for(at_work: Stack) -> None:
    record = at_work.evidence / "records" / "tend.json"
    now = datetime.now(UTC)
    times = {"since": now, "at": now, "until": now + timedelta(hours=1)}
    claim = {"host": "another-host", "pid": 1, **{key: at.isoformat() for key, at in times.items()}}
    record.write_text(json.dumps(claim))
    assert at_work.sweepctl("tend", "--once").rc == 1


@pytest.mark.proof
def test_a_wanted_stop_is_not_undone(at_work: Stack) -> None:
    """`want: stopped` is a person's decision; tend neither starts the box nor counts it as work."""
    stack = at_work
    want(stack, "box-1", "stopped")
    until_idle(stack, "box-1")
    ok(stack.up())
    ok(stack.sweepctl("tend", "--once"))
    assert phases(stack)["box-1"][0] == "stopped"


@pytest.mark.proof  # decided by one function: tests/unit/launch/test_shares.py
def test_a_box_at_rest_is_not_woken_for_what_others_have(at_work: Stack) -> None:
    """The other box leaves, so the program gives this one all cells: they are verified, and nothing is started."""
    stack = at_work
    until_idle(stack, "box-1")
    ok(stack.sweepctl("tend", "--once"))
    stack.release()
    stack.wait_done()
    stack.wait_idle()
    ok(stack.sweepctl("tend", "--once"))
    assert {phase for phase, _ in phases(stack).values()} == {"stopped"}
    ok(stack.sweepctl("finish", "--box", "box-0", stack.verify()["receipt"]))
    assert phases(stack) == {"box-1": ("stopped", 0.05)}
    preview = ok(stack.pulumi("preview"))
    assert "$0.05/h" in preview.text, str(preview)
    states = {cell["state"] for cell in stack.sweepctl("status", "--json").json()["cells"]}
    assert states == {"verified"}
