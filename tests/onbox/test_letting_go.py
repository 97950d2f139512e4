"""A cell that moves to another box: the tombstone counts only while it has not started."""

from __future__ import annotations

from tests.onbox.harness import Box


def let_go(box: Box, name: str) -> None:
    """As a move writes it."""
    box.append({"op": "drop", "cell": name, "reason": "moved to box-1", "unless_started": True})


def starts(box: Box, name: str) -> int:
    return len(box.events("cell-started", name))


def test_a_waiting_cell_is_let_go_and_never_runs(box: Box) -> None:
    box.add("a")
    box.add("b")
    let_go(box, "b")
    box.run("a")
    assert starts(box, "b") == 0
    assert box.events("cell-dropped", "b")[0]["reason"] == "moved to box-1"


def test_a_running_cell_is_not_ended_by_it(box: Box) -> None:
    hold = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    let_go(box, "a")
    box.add("b")  # so that it is sure that the runner has read on
    hold.unlink()
    runner.until("a", "sealed")
    runner.until("b", "sealed")
    assert runner.ended() == 0
    assert starts(box, "a") == 1
    assert box.events("cell-dropped", "a") == []


def test_after_a_kill_the_started_cell_goes_on_and_the_other_stays_away(box: Box) -> None:
    """A new runner reads all lines from the beginning: what counted then counts now."""
    box.set(slots=1)
    hold = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    box.add("b")
    let_go(box, "a")
    let_go(box, "b")
    runner.kill()
    hold.unlink()
    box.run("a")
    assert starts(box, "a") == 2
    assert starts(box, "b") == 0


def test_a_cell_that_comes_back_runs_with_its_new_line(box: Box) -> None:
    box.add("a")
    let_go(box, "a")
    box.run()
    assert starts(box, "a") == 0
    box.add("a", "echo again; echo '{ }' > {out}/result.json")
    box.run("a")
    assert "again" in box.output("a")


def test_a_sealed_cell_and_its_versions_are_left_alone(box: Box) -> None:
    box.add("a")
    box.run("a")
    let_go(box, "a")
    box.run("a")
    assert box.state("a") == "sealed"
    assert box.events("cell-dropped", "a") == []
