"""The runner of one of two boxes has died: every screen names it, and what starts it again. Boxes that have no cell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.cli.support import STACK, Box, World


@pytest.fixture
def dead(world: World) -> Box:
    """box-1's runner was killed at its first cell of two; box-0 works on."""
    for name, cells in (("box-0", ["lr0.1"]), ("box-1", ["lr0.3", "lr0.9"])):
        box = world.add(name)
        box.launch(*cells)
        box.begin = datetime.now(UTC) - timedelta(seconds=100)
        box.start(cells[0])
        box.alive()
        box.beat()
    world.write_stack_file()
    box.alive(False)
    return box


def test_wait_ends_soon_though_another_box_works_on(world: World, dead: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.cli.commands.wait.POLL_SECONDS", 0.05)
    result = world.run("wait", "done", "--timeout", "60s")
    assert result.code == 1
    assert "box box-1: its runner is not alive, and 2 cells did not finish" in result.err
    assert f"next   pulumi up --stack {STACK}" in result.err


def test_the_estimate_counts_what_waits_there(world: World, dead: Box) -> None:
    """A cell took 20 s on box-0; two wait on box-1."""
    world.boxes[0].seal("lr0.1")
    assert world.run("status", "--json").json["eta_seconds"] == pytest.approx(40)


def test_a_finished_sweep_leads_to_its_results(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`up` was next here, and rented again."""
    monkeypatch.setattr("sweepstack.cli.commands.wait.POLL_SECONDS", 0.05)
    world.full()
    for command in ("pull", "verify"):
        assert world.run(command).code == 0
    for box in world.boxes:
        box.vanish()
        world.store.write_birth(box.birth(ended_at=datetime.now(UTC)))
    world.boxes.clear()
    results = [f"sweepctl results --stack {STACK}"]
    assert world.run("status", "--json").json["next"] == results
    for command in (("wait", "verified", "--timeout", "1s"), ("tend", "--once"), ("results",)):
        result = world.run(*command)
        assert "pulumi up" not in result.out + result.err, result


def test_status_says_that_cells_wait_while_a_box_has_nothing_to_do(world: World) -> None:
    """`idle` stood in the table, and nothing was offered."""
    busy, idle = world.add("box-0"), world.add("box-1")
    busy.launch("lr0.1", "lr0.3")
    busy.begin = datetime.now(UTC) - timedelta(seconds=100)
    busy.start("lr0.1")
    busy.alive()
    idle.launch("lr0.9")
    idle.seal("lr0.9")
    notes = world.run("status", "--json").json["notes"]
    said = "box box-1: nothing to do, and 1 cell waits elsewhere: `pulumi up`, or `sweepctl tend`, moves it"
    assert said in notes
