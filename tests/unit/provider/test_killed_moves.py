"""A cell that is moved by an engine that is killed at every step of it: it runs once, on one box."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from sweepstack.core.foreign_cells import elsewhere_text
from sweepstack.core.resources import BoxState, QueueState
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.local_channel import LocalChannel
from tests.unit.provider.support import Sweep

EFFECTS = ((LocalChannel, "append_locked"), (EvidenceStore, "write_launch"), (LocalChannel, "spawn"))
"""What a move changes, in the order: tombstone, old owner's record, new owner's record, its line, its runner."""


def killed_at(step: int, work: Callable[[], Any]) -> bool:
    """Does `work` in a child that is killed just before its effect number `step`. Whether it came so far."""
    child = os.fork()
    if child == 0:
        seen = 0

        def cut(before: Callable[..., Any]) -> Callable[..., Any]:
            def effect(*args: Any, **named: Any) -> Any:
                nonlocal seen
                seen += 1
                if seen == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return before(*args, **named)

            return effect

        try:
            for owner, name in EFFECTS:
                setattr(owner, name, cut(getattr(owner, name)))
            work()
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status)


def queues(sweep: Sweep, here: BoxState, idle: BoxState) -> list[Callable[[], QueueState]]:
    """What an `up` does that gives the idle box the last two of four cells: both queues, in either order."""
    own = {here.name: ("a", "b"), idle.name: ("c", "d")}
    texts = {cell.name: elsewhere_text(cell) for cell in sweep.cells}

    def bring_up(box: BoxState) -> Callable[[], QueueState]:
        others = [text for name, text in texts.items() if name not in own[box.name]]
        return lambda: sweep.queue(box, *own[box.name], elsewhere=others, job={"slots": 1})

    return [bring_up(here), bring_up(idle)]


# After the tombstone, and before the runner; test_moving.py has the first record.
@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step in (2, 5) else pytest.mark.proof) for step in range(1, 6)]
)
def test_a_move_that_is_killed_at_a_step_is_finished_and_no_cell_runs_twice(sweep: Sweep, step: int) -> None:
    sweep.roster = ("a", "b", "c", "d")
    sweep.hold("a")
    here, idle = sweep.box("box-0"), sweep.box("box-1")
    sweep.queue(here, job={"slots": 1})
    sweep.until_state(here, "running", "a")
    both = queues(sweep, here, idle)
    assert killed_at(step, both[1]), "the move has fewer steps than this"
    for bring_up in both:
        bring_up()
    sweep.release()
    for box in (here, idle):
        sweep.drained(box)
    assert sorted(sweep.started()) == ["a a", "b b", "c c", "d d"]
    owners = {launch.box: set(launch.cells) for launch in sweep.store.launches()}
    assert owners == {"box-0": {"a", "b"}, "box-1": {"c", "d"}}


def test_a_move_has_these_steps_and_no_more(sweep: Sweep) -> None:
    """So that no step is left out above."""
    sweep.roster = ("a", "b", "c", "d")
    sweep.hold("a")
    here, idle = sweep.box("box-0"), sweep.box("box-1")
    sweep.queue(here, job={"slots": 1})
    sweep.until_state(here, "running", "a")
    assert not killed_at(6, queues(sweep, here, idle)[1])
