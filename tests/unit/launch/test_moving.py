"""Cells that move: what is let go and taken over, also when a runner, or a kill, comes in between."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.foreign_cells import elsewhere_text, read_elsewhere
from sweepstack.core.journal import Rest
from sweepstack.core.records import Birth, Cell
from sweepstack.launch.entries import hands_on
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.operations.cell_moves import MovedCells, OtherBox, release, settle, unplaced
from tests.at_once import at_once
from tests.unit.evidence.world import Box, World

A, B, C = 0, 1, 2


class Hooked(LocalChannel):
    """A channel that lets something happen just before, or instead of, an append to the queue."""

    def __init__(self, box: Box, instead: Any = None, before: Any = None) -> None:
        super().__init__(box.native_id, box.root, {})
        self.instead, self.before = instead, before

    def append_locked(self, path: str, data: bytes, lock: str, *, at: int | None = None) -> bool:
        if self.instead:
            self.instead()
            return True
        if self.before:
            self.before()
        return super().append_locked(path, data, lock, at=at)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """box-0 was given all three cells, and box-1 is new."""
    made = World(tmp_path)
    made.boxes.append(Box(made, "box-1"))
    give(made.box, *made.cells)
    return made


def give(box: Box, *cells: Cell) -> None:
    """What a queue that was brought up has: lines, and a launch record."""
    lines = [{"op": "add", "cell": cell.name, "params": cell.params} for cell in cells]
    box.channel.append_locked(
        box_layout.QUEUE, b"".join(json.dumps(line).encode() + b"\n" for line in lines), box_layout.QUEUE_LOCK
    )
    box.launch(*cells)


def owns(box: Box) -> set[str]:
    launch = box.world.store.launch(box.name, box.generation)
    return set(launch.cells) if launch else set()


def names(world: World, *numbers: int) -> set[str]:
    return {world.cells[number].name for number in numbers or (A, B, C)}


def tombstones(box: Box) -> list[str]:
    lines = [json.loads(line) for line in (box.root / box_layout.QUEUE).read_bytes().splitlines()]
    assert all(line["unless_started"] for line in lines if line["op"] == "drop")
    return [line["cell"] for line in lines if line["op"] == "drop"]


def move(world: World, wanted: set[str], channel: Channel | None = None, resting: bool = False) -> MovedCells:
    """box-1 is brought up with these cells; `channel` is the way to box-0."""
    taker = world.boxes[1]

    def find(birth: Birth) -> OtherBox:
        assert birth.box == "box-0"
        return OtherBox(channel, resting)

    return settle(world.store, taker.name, taker.generation, taker.channel, wanted, keep=(), elsewhere={}, find=find)


def stopped_by_us(world: World, journal: bytes, **changes: Any) -> None:
    """What a stop writes once box-0's runner has ended."""
    head = world.store.write_journal("box-0", 1, journal).head
    known = {"box": "box-0", "generation": 1, "native_id": world.box.native_id, "head": head, "at": datetime.now(UTC)}
    world.store.write_rest(Rest.model_validate(known | changes))


@pytest.mark.parametrize("changes", [{"head": None}, {"native_id": "local-other6"}, {"head": "0" * 63 + "1"}])
def test_only_the_word_of_its_last_stop_speaks_for_a_box_at_rest(world: World, changes: dict[str, Any]) -> None:
    """Not that of a stop before it ran again, of another machine, or one that was copied earlier."""
    stopped_by_us(world, b"", **changes)
    assert set(move(world, names(world), None, resting=True).unknown) == names(world)
    assert owns(world.box) == names(world)


def test_what_has_not_started_is_taken_over_and_the_rest_stays(world: World) -> None:
    world.box.start(world.cells[A])
    moved = move(world, names(world), world.box.channel)
    assert moved.taken == dict.fromkeys(names(world, B, C), "box-0")
    assert moved.kept == dict.fromkeys(names(world, A), "box-0")
    assert owns(world.box) == names(world, A)
    assert sorted(tombstones(world.box)) == sorted(names(world, B, C))


def test_a_runner_that_claims_just_before_the_tombstone_keeps_its_cell(world: World) -> None:
    channel = Hooked(world.box, before=lambda: world.box.start(world.cells[B]))
    moved = move(world, names(world, B), channel)
    assert moved.taken == {}
    assert moved.kept == dict.fromkeys(names(world, B), "box-0")
    assert owns(world.box) == names(world)


def test_a_kill_after_the_tombstone_leaves_a_cell_that_the_next_up_finds(world: World) -> None:
    """The launch record is changed last: until then the cell is box-0's, and nobody else runs it."""

    def killed() -> None:
        world.box.channel.append_locked(
            box_layout.QUEUE,
            json.dumps({"op": "drop", "cell": world.cells[B].name, "unless_started": True}).encode() + b"\n",
            box_layout.QUEUE_LOCK,
        )
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move(world, names(world, B), Hooked(world.box, instead=killed))
    assert owns(world.box) == names(world)
    assert left_over(world, names(world, B)) == sorted(names(world, B))
    assert move(world, names(world, B), world.box.channel).taken == dict.fromkeys(names(world, B), "box-0")
    assert tombstones(world.box) == sorted(names(world, B)), "it was let go twice"


def brought_up(world: World, wanted: set[str], *others: Cell) -> MovedCells:
    """box-0 is brought up with `wanted`; the program gives `others` another box."""
    box = world.box
    elsewhere = read_elsewhere(elsewhere_text(cell) for cell in others)

    def find(_: Birth) -> OtherBox:
        return OtherBox(world.boxes[1].channel)

    return settle(world.store, box.name, 1, box.channel, wanted, keep=(), elsewhere=elsewhere, find=find)


def test_cells_leave_their_queue_when_the_other_box_takes_them_and_not_before(world: World) -> None:
    """The box that is to have them may never come to be: its create can be refused for days."""
    _, b, c = world.cells
    assert brought_up(world, names(world, A), b, c) == MovedCells()
    assert tombstones(world.box) == []
    assert owns(world.box) == names(world)
    assert left_over(world, names(world, B, C)) == sorted(names(world, B, C)), "the box that is there asks for them"
    assert move(world, names(world, B, C), world.box.channel).taken == dict.fromkeys(names(world, B, C), "box-0")
    give(world.boxes[1], b, c)
    assert brought_up(world, names(world, A), b, c) == MovedCells()
    assert owns(world.box) == names(world, A)
    assert tombstones(world.box) == sorted(names(world, B, C))


def test_a_cell_that_is_to_have_another_config_does_not_wait_as_it_was(world: World) -> None:
    """It would run with what nobody wants any more."""
    _, b, c = world.cells
    changed = b.model_copy(update={"params": {**b.params, "more": 1}})
    assert brought_up(world, names(world, A), Cell(**changed.model_dump()), c).left == (b.name,)
    assert owns(world.box) == names(world, A, C)
    assert tombstones(world.box) == [b.name]


def test_what_was_taken_from_a_box_at_rest_is_let_go_when_it_wakes(world: World) -> None:
    """Its queue still has the lines, and nobody's record names the cells: the taker may be about to run them."""
    _, b, c = world.cells
    stopped_by_us(world, b"")
    move(world, names(world, B), None, resting=True)
    assert brought_up(world, names(world, A), b, c).left == (b.name,)
    assert owns(world.box) == names(world, A, C)
    assert tombstones(world.box) == [b.name]


def left_over(world: World, wanted: set[str]) -> list[str]:
    taker = world.boxes[1]
    return unplaced(world.store, taker.name, taker.generation, wanted, lambda _: OtherBox(world.box.channel))


def test_cells_in_no_queue_are_noticed_and_held_ones_are_not(world: World) -> None:
    world.box.start(world.cells[A])
    assert left_over(world, names(world, A)) == []
    world.box.launch(world.cells[A])
    assert left_over(world, names(world)) == sorted(names(world, B, C))
    give(world.boxes[1], world.cells[B], world.cells[C])
    assert left_over(world, names(world)) == []


@pytest.mark.parametrize("resting", [False, True])
def test_a_box_that_does_not_answer_keeps_its_cells_unless_it_rests(world: World, resting: bool) -> None:
    """A stopped box can't start anything: the copy of its journal that the stop kept speaks for it."""
    world.box.start(world.cells[A])
    moved = move(world, names(world), None, resting)
    assert set(moved.unknown) == names(world)
    data = world.box.journal_file.read_bytes()
    world.store.write_journal("box-0", 1, data)  # by a pull, some time before its platform stopped it
    moved = move(world, names(world), None, resting)
    assert set(moved.unknown) == names(world)
    if resting:
        assert "not stopped by sweepstack" in moved.unknown[world.cells[B].name]
    stopped_by_us(world, data)
    moved = move(world, names(world), None, resting)
    if resting:
        assert moved.taken == dict.fromkeys(names(world, B, C), "box-0")
        assert owns(world.box) == names(world, A)
        assert tombstones(world.box) == []
    else:
        assert set(moved.unknown) == names(world)
        assert owns(world.box) == names(world)


def test_a_box_that_comes_back_from_a_stop_lets_go_what_others_took(world: World) -> None:
    """Before its runner is started: its queue still has lines for cells that are another box's now."""
    stopped_by_us(world, b"")
    move(world, names(world, B, C), None, resting=True)
    give(world.boxes[1], world.cells[B], world.cells[C])
    back = world.box

    def find(_: Birth) -> OtherBox:
        return OtherBox(world.boxes[1].channel)

    world.boxes[1].start(world.cells[B])
    world.boxes[1].start(world.cells[C])
    wanted = names(world)  # by the hash, all of them are box-0's again
    moved = settle(world.store, back.name, 1, back.channel, wanted, keep=(), elsewhere={}, find=find)
    assert set(moved.left) == names(world, B, C)
    assert moved.kept == dict.fromkeys(names(world, B, C), "box-1")
    assert sorted(tombstones(back)) == sorted(names(world, B, C))


def test_an_unreadable_queue_moves_nothing(world: World) -> None:
    with (world.box.root / box_layout.QUEUE).open("ab") as handle:
        handle.write(b"not a line\n")
    moved = move(world, names(world), world.box.channel)
    assert set(moved.unknown) == names(world)
    assert owns(world.box) == names(world)


def test_an_outage_in_the_middle_moves_nothing(world: World) -> None:
    def cut() -> None:
        raise Unreachable("the line is cut")

    world.store.write_journal("box-0", 1, b"")  # an older copy proves nothing of a box that runs
    moved = move(world, names(world), Hooked(world.box, instead=cut))
    assert set(moved.unknown) == names(world)
    assert owns(world.box) == names(world)


def free(native_id: str) -> bool:
    """Whether another queue could have its cells change hands on this box now."""
    found: list[bool] = []

    def ask() -> None:
        if hands_on(native_id).acquire(blocking=False):
            hands_on(native_id).release()
            found.append(True)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return bool(found)


def test_a_box_is_looked_at_and_changed_in_one_go(world: World) -> None:
    """Or it might be started in between, and run what was taken from it while it rested."""
    seen: list[bool] = []
    box = world.box

    def find(_: Birth) -> OtherBox:
        seen.append(free(box.native_id))
        return OtherBox(Hooked(box, before=lambda: seen.append(free(box.native_id))))

    taker = world.boxes[1]
    moved = settle(world.store, taker.name, 1, taker.channel, names(world), keep=(), elsewhere={}, find=find)
    assert set(moved.taken) == names(world)
    assert seen == [False, False]
    assert free(box.native_id)


def test_two_boxes_that_take_over_at_once_share_what_there_is(world: World) -> None:
    """Queues are brought up side by side: neither loses what the other wrote into the launch record."""
    launch = world.store.launch("box-0", 1)
    gate = threading.Barrier(3)

    def take(number: int) -> set[str]:
        gate.wait()
        return release(world.store, launch, world.box.channel, names(world, number), "moved")

    assert set().union(*at_once(take, (A, B, C))) == names(world)
    assert owns(world.box) == set()
    assert sorted(tombstones(world.box)) == sorted(names(world))
