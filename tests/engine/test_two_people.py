"""Two people at once, with one backend and one evidence: no cell runs twice, no box is rented twice."""

from __future__ import annotations

import collections
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.commands import COMMAND_SECONDS, NEVER_SHOWN, Result, ok
from tests.engine.harness import Stack, copy_checkout


@pytest.fixture
def stack(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """Two boxes, four cells, not up yet; and the clone of a second person beside it, with the same stack config."""
    made = make_stack()
    a_second_person(made)
    yield made
    made.close()


def a_second_person(stack: Stack) -> None:
    """Their clone, with the same stack config."""
    second = stack.base / "second"
    if not second.exists():
        copy_checkout(second)
    shutil.copy2(stack.config_file, second / "stacks" / stack.config_file.name)


def both(stack: Stack, *argv: str, second: tuple[str, ...] = (), clone: Path | None = None) -> list[Result]:
    """The same command (or `second`) typed by two people at the same moment, each in a clone of their own."""
    people: list[tuple[tuple[str, ...], subprocess.Popen[str]]] = []
    for words, folder in ((argv, stack.checkout), (second or argv, clone or stack.base / "second")):
        env = {"PATH": stack.env["PATH"].replace(str(stack.checkout), str(folder))}
        people.append((words, stack.start(*words, env=env, cwd=folder)))
    ends = []
    for words, process in people:
        out, err = process.communicate(timeout=COMMAND_SECONDS)
        ends.append(Result(words, process.returncode, out, err, 0.0))
    for result in ends:
        assert not any(words in result.text for words in NEVER_SHOWN), str(result)
    return ends


def told(result: Result) -> None:
    """A command that lost the race says that somebody else is at work, and nothing worse."""
    assert result.rc != 0
    assert "currently locked" in result.text or "conflict" in result.text.lower(), str(result)


def starts(stack: Stack) -> collections.Counter[str]:
    """How often each cell was started, over all journals."""
    return collections.Counter(stack.started())


def up(stack: Stack) -> tuple[str, ...]:
    return ("pulumi", "up", "--stack", stack.name, "--yes", "--skip-preview", "--non-interactive")


def again(stack: Stack, folder: Path | None = None) -> None:
    """Whoever lost types it again."""
    ok(stack.run(*up(stack), cwd=folder or stack.checkout))


def test_two_ups_from_two_clones(stack: Stack) -> None:
    """One of them rents; the other is told, and changes nothing when it is typed again."""
    ends = both(stack, *up(stack))
    assert 0 in [end.rc for end in ends], ends
    for end in ends:
        if end.rc:
            told(end)
    again(stack, stack.base / "second")
    stack.wait_done()
    stack.wait_idle()
    assert len(stack.native_ids()) == len(stack.births()) == 2
    assert set(starts(stack).values()) == {1}, starts(stack)
    assert set(starts(stack)) == set(stack.cells)


@pytest.mark.proof  # two `up`s from two clones, with more cells
def test_two_people_add_cells(stack: Stack) -> None:
    """Each adds a cell of their own at the same moment. Whoever is second has the other's cell in their config by then,
    as after a merge; nothing starts twice, and nothing that runs is restarted."""
    stack.hold(*stack.cells)
    ok(stack.up())
    running = {box: stack.runner_pid(box) for box in stack.boxes}
    second = stack.base / "second" / "stacks" / stack.config_file.name
    stack.edit_config(lambda sweep: sweep["cells"]["grid"]["seed"].extend([4, 5]))
    shutil.copy2(stack.config_file, second)
    ends = both(stack, *up(stack))
    assert 0 in [end.rc for end in ends], ends
    again(stack, stack.base / "second")
    again(stack)
    assert {box: stack.runner_pid(box) for box in stack.boxes} == running
    stack.release()
    stack.cells = (*stack.cells, "seed4", "seed5")
    stack.wait_done()
    stack.wait_idle()
    assert set(starts(stack)) == set(stack.cells)
    assert set(starts(stack).values()) == {1}, starts(stack)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_queue.py
def test_one_adds_a_cell_that_the_other_does_not_know(stack: Stack) -> None:
    """An `up` from a clone that is behind takes out no cell that has started: it is refused, and says which cell."""
    stack.hold(*stack.cells)
    ok(stack.up())
    stack.edit_config(lambda sweep: sweep["cells"]["grid"]["seed"].append(4))
    stack.hold("seed4")
    stack.release()
    ok(stack.up())
    stack.wait_for(lambda: "seed4" in stack.started(), "seed4 to start")
    behind = stack.run(*up(stack), cwd=stack.base / "second")
    assert behind.rc != 0, str(behind)
    assert "seed4" in behind.text, str(behind)
    stack.release()
    (stack.control / "hold-seed4").unlink(missing_ok=True)
    stack.cells = (*stack.cells, "seed4")
    stack.wait_done()
    assert starts(stack)["seed4"] == 1


@pytest.mark.proof  # tests/unit/evidence/test_pull.py, tests/unit/evidence/test_verify.py
def test_two_people_pull_and_verify(finished: Stack) -> None:
    """Two pulls and two verifies at once: whole copies, and one and the same receipt."""
    stack = finished
    a_second_person(stack)
    for end in both(stack, "sweepctl", "pull", "--stack", stack.name):
        assert end.rc == 0 or "another" in end.text, str(end)
    receipts = [ok(end).json() for end in both(stack, "sweepctl", "verify", "--stack", stack.name, "--json")]
    assert receipts[0]["receipt"] == receipts[1]["receipt"]
    assert [one["verified"] for one in receipts] == [4, 4]


@pytest.mark.proof
def test_one_destroys_while_the_other_brings_up(cleared: Stack) -> None:
    """Approved and cleared: whichever comes first, at the end each box was rented once and nothing is left half."""
    stack = cleared
    a_second_person(stack)
    destroy = ("pulumi", "destroy", "--stack", stack.name, "--yes", "--skip-preview", "--non-interactive")
    ends = both(stack, *destroy, second=up(stack))
    assert 0 in [end.rc for end in ends], ends
    for end in ends:
        if end.rc:
            told(end)
    ok(stack.destroy())
    assert stack.native_ids() == []
    assert len(stack.births()) == 2, stack.births()
