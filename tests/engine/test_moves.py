"""Boxes are added and removed by config: unstarted cells move, started ones stay, none runs twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.engine.commands import COMMAND_SECONDS, ok
from tests.engine.harness import Stack
from tests.engine.test_stop import want

SEEDS = tuple(f"seed{n}" for n in range(12))


@pytest.fixture
def one_box(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """One box that is held in its first of twelve cells."""
    stack = make_stack(cells=SEEDS, boxes=("box-0",))
    stack.hold(*stack.cells)
    ok(stack.up())
    yield stack
    stack.close()


def owners(stack: Stack) -> dict[str, set[str]]:
    """box → cells that its launch record names: whose a cell is."""
    folder = stack.evidence / "records" / "launches"
    records = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return {record["box"]: set(record["cells"]) for record in records}


def ran(stack: Stack) -> Counter[str]:
    """How often each cell was started, on all boxes together."""
    return Counter(cell for box in stack.boxes for cell in stack.started(box))


def add_boxes(stack: Stack, *names: str) -> None:
    """Further boxes, wanted running."""
    for name in names:
        want(stack, name, "running")
    stack.boxes = (*stack.boxes, *names)


@pytest.mark.proof  # on a real box: tests/unit/launch/test_moving.py; by `up`: test_stop.py
def test_new_boxes_take_over_unstarted_cells_only(one_box: Stack) -> None:
    """A second and a third box in one change; whoever is up first, each cell has one owner and runs once."""
    stack = one_box
    started, runner = stack.started("box-0"), stack.runner_pid("box-0")
    add_boxes(stack, "box-1", "box-2")
    result = ok(stack.up())
    # Whichever queue comes first says so: the one that gives, or one that takes.
    assert "taken out" in result.text or "taken over from box box-0" in result.text, str(result)
    owned = owners(stack)
    assert set(started) <= owned["box-0"]
    assert sum(len(cells) for cells in owned.values()) == len(SEEDS), f"a cell with two owners, or none: {owned}"
    assert all(owned[box] for box in stack.boxes), owned
    assert stack.runner_pid("box-0") == runner
    stack.release()
    stack.wait_done()
    assert ran(stack) == Counter(SEEDS)


@pytest.mark.proof
def test_cells_of_a_box_that_is_refused_go_on_where_they_are(one_box: Stack) -> None:
    """The second box's smoke run fails, when the first one's queue has been brought up: it runs those cells, as if
    nothing had been asked; until the box is there, and takes what has not started."""
    stack = one_box
    before, go, good = owners(stack), stack.base / "go", stack.base / "good"
    wait = f"n=0; until test -e {go} || test $n = 600; do sleep 0.1; n=$((n+1)); done; test -e {good}"
    stack.edit_config(lambda sweep: sweep["job"].update(smoke={"run": wait}))
    want(stack, "box-1", "running")
    process = stack.start("pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", stack.name)
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "stay here until" in line:
            go.touch()
    assert process.wait(60) != 0, said
    assert go.exists(), said
    assert "box box-1 is not rented" in said
    assert owners(stack) == before, "cells left for a box that is not there"
    told = ok(stack.sweepctl("status", "--json")).json()
    waiting = [cell for cell in told["cells"] if cell["state"] == "pending"]
    assert [cell["box"] for cell in waiting] == ["box-0"] * (len(SEEDS) - 1)
    notes = {cell["note"] for cell in waiting}
    assert notes == {"", "waits in the queue of box-0 until box-1, which is to have it, takes it over"}
    assert "box box-1 is in the stack file and not rented: `pulumi up` rents it, or says why not" in told["notes"]

    first = stack.started("box-0")
    (stack.control / f"hold-{first[0]}").unlink()
    stack.wait_for(lambda: set(first) <= stack.sealed(), "the first cell")
    good.touch()
    stack.boxes = ("box-0", "box-1")
    result = ok(stack.up())
    assert "taken over from box box-0" in result.text, str(result)
    owned = owners(stack)
    assert owned["box-1"]
    assert sum(len(cells) for cells in owned.values()) == len(SEEDS), owned
    assert ok(stack.pulumi("preview")).rc == 0
    stack.release()
    stack.wait_done()
    assert ran(stack) == Counter(SEEDS)


@pytest.mark.proof  # decided by one function: tests/unit/launch/test_shares.py
def test_sealed_cells_stay_when_boxes_come(one_box: Stack) -> None:
    """What is sealed is not trained again elsewhere, though the new box would have been given it."""
    stack = one_box
    stack.release()
    stack.wait_done()
    stack.wait_idle()
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=list(range(16))))
    stack.cells = tuple(f"seed{n}" for n in range(16))
    add_boxes(stack, "box-1", "box-2")
    ok(stack.up())
    stack.wait_done()
    assert ran(stack) == Counter(stack.cells)
    assert set(stack.started("box-0")) >= set(SEEDS)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_identity.py, tests/unit/launch/test_moving.py
def test_a_box_goes_while_two_others_run(one_box: Stack) -> None:
    """The one that goes gives its unstarted cells to the others first; what it had started, it finished or it stays."""
    stack = one_box
    add_boxes(stack, "box-1", "box-2")
    ok(stack.up())
    going = stack.started("box-2")
    assert len(going) == 1
    want(stack, "box-2", "gone")
    refused = stack.up()
    assert refused.rc != 0
    assert going[0] in refused.text, str(refused)
    assert owners(stack)["box-2"] == set(going), "its unstarted cells did not move"
    (stack.control / f"hold-{going[0]}").unlink()
    stack.wait_for(lambda: set(going) <= stack.sealed(), "the started cell of the box that goes")
    ok(stack.sweepctl("finish", "--box", "box-2", receipt_after_pull(stack)))
    stack.boxes = ("box-0", "box-1")
    assert len(stack.native_ids()) == 2
    stack.release()
    stack.wait_done()
    assert Counter(ran(stack) + Counter(going)) == Counter(SEEDS)
    stack.wait_idle()
    ok(stack.sweepctl("pull"))
    document = stack.verify()
    assert document["verified"] == len(SEEDS), document


def receipt_after_pull(stack: Stack) -> str:
    """Pulls and verifies; the receipt's digest."""
    ok(stack.sweepctl("pull"))
    return str(stack.verify()["receipt"])


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_queue.py
def test_cells_of_an_abandoned_box_are_brought_in_elsewhere(one_box: Stack) -> None:
    """Its started cell is lost with it, and the next `up` gives it to a box that runs."""
    stack = one_box
    add_boxes(stack, "box-1")
    ok(stack.up())
    lost = stack.started("box-1")
    ok(stack.sweepctl("give-up", "data/box-1", "--reason", "a drill"))
    want(stack, "box-1", "gone")
    ok(stack.up())
    stack.boxes = ("box-0",)
    stack.edit_config(lambda sweep: sweep.pop("approval"))
    ok(stack.up())
    assert set(lost) <= owners(stack)["box-0"]
    stack.release()
    stack.wait_done()
    assert ran(stack) == Counter(SEEDS)


@pytest.mark.proof  # at each step: tests/unit/provider/test_killed_moves.py
def test_a_move_that_was_cut_off_is_finished_by_the_next_up(one_box: Stack) -> None:
    """Tombstones are there and the launch record still names the cells: nobody would run them."""
    stack = one_box
    queue = stack.box_dir("box-0") / "data" / "sweep" / "queue.jsonl"
    unstarted = sorted(set(SEEDS) - set(stack.started("box-0")))
    with queue.open("a") as handle:
        for cell in unstarted[:4]:
            handle.write(json.dumps({"op": "drop", "cell": cell, "reason": "cut off", "unless_started": True}) + "\n")
    add_boxes(stack, "box-1")
    ok(stack.up())
    ok(stack.up())
    stack.release()
    stack.wait_done()
    assert ran(stack) == Counter(SEEDS)


@pytest.mark.proof
def test_a_refused_change_of_resources_names_the_way_and_the_way_works(one_box: Stack) -> None:
    """The recipe's own lines, typed: the unstarted cells run on the new box, and the old one is ended early."""
    stack = one_box
    before = stack.snapshot()
    stack.edit_config(lambda sweep: sweep["job"]["resources"].update(cpu=2))
    refused = stack.up()
    assert refused.rc != 0
    stack.assert_unchanged(before, refused)
    for words in (
        "box-0-2: {want: running, resources: {cpu: 2}}",
        "of 11 cells not started",
        "box-0 bills on until its started cell is done, at $1.25/h; how long is not known",
        "sweepctl finish --stack t --box box-0",
    ):
        assert words in refused.text, f"{words!r}\n{refused}"
    stack.edit_config(lambda sweep: sweep["job"]["resources"].update(cpu=1))
    stack.edit_config(lambda sweep: sweep["boxes"].update({"box-0-2": {"want": "running", "resources": {"cpu": 2}}}))
    ok(stack.up())
    first = stack.started("box-0")
    stack.boxes = ("box-0", "box-0-2")
    assert stack.resources("Box")[-1]["inputs"]["resources"] != stack.resources("Box")[0]["inputs"]["resources"]
    stack.release()
    stack.wait_done()
    stack.wait_idle()
    ran_there = Counter(stack.started("box-0-2"))
    ran_here = Counter(stack.started("box-0"))
    assert ran_here + ran_there == Counter(SEEDS)
    assert set(first) <= set(ran_here)
    ok(stack.sweepctl("finish", "--box", "box-0", receipt_after_pull(stack)))
    assert len(stack.native_ids()) == 1


@pytest.mark.proof  # two people at once: test_two_people.py
def test_two_people_add_the_same_box_at_once(one_box: Stack) -> None:
    """Two clones would share backend and evidence: one of them waits for its turn, or is told of the lock."""
    stack = one_box
    add_boxes(stack, "box-1")
    ups = [
        stack.start("pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", stack.name)
        for _ in range(2)
    ]
    said = ["".join(process.communicate(timeout=COMMAND_SECONDS)) for process in ups]
    codes = sorted(process.returncode for process in ups)
    assert codes[0] == 0, said
    assert codes == [0, 0] or any("locked" in text for text in said), said
    ok(stack.up())
    assert len(stack.native_ids()) == 2
    owned = owners(stack)
    assert sum(len(cells) for cells in owned.values()) == len(SEEDS), owned
    stack.release()
    stack.wait_done()
    assert ran(stack) == Counter(SEEDS)
