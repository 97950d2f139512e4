"""The moments at which something is lost: how far the sweep is then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.engine.commands import ok
from tests.states.world import World, made

CELLS = ("seed0", "seed1")


@dataclass(frozen=True)
class Start:
    """`prepare`: from the moment `after` ("" for a new sweep) to this one. `settled`: every cell is verified. `trains`:
    cells are left to train."""

    name: str
    prepare: Callable[[World], object]
    after: str = ""
    settled: bool = False
    trains: bool = False
    boxes: tuple[str, ...] = ("box-0",)


def _cut(world: World) -> None:
    """One cell is sealed, the other one was in the middle of its training when the power went."""
    made(world)
    world.hold("seed1")
    ok(world.up())
    world.wait_done(but=["seed1"])
    world.wait_for(lambda: "seed1" in world.started(), "seed1 to begin")
    for native_id in world.native_ids():
        world.kill_box(native_id)


def _finished(world: World) -> None:
    """All cells are sealed on the box, nothing is pulled."""
    made(world)
    ok(world.up())
    world.wait_done()
    world.wait_idle()


def _cleared(world: World) -> None:
    """Pulled, verified, approved, and the box may end."""
    ok(world.sweepctl("pull"))
    world.approve()
    ok(world.up())


def _half(world: World) -> None:
    """A destroy stopped half-way: one box of two has ended."""
    _finished(world)
    _cleared(world)
    urns = [word for kind in ("Gate", "Queue", "Box") for word in ("--target", world.urn(kind, "box-1"))]
    ok(world.destroy(*urns))


STARTS = {
    start.name: start
    for start in (
        Start("cut", _cut, trains=True),
        Start("finished", _finished),
        Start("cleared", _cleared, after="finished", settled=True),
        Start("half", _half, settled=True, boxes=("box-0", "box-1")),
    )
}
