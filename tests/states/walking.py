"""One generated state: what is lost at which moment, and the walk out of it."""

from __future__ import annotations

import pytest

from tests.states import known, losses, safety
from tests.states.following import DeadEnd, Walk
from tests.states.starts import STARTS
from tests.states.world import World


def rows(*states: tuple[str, ...]) -> list[object]:
    """Parameters (start, losses). Alone, a known dead end has to be one still; beside another loss it may be none."""
    found: list[object] = []
    for start, *names in states:
        why = known.why_not(start, tuple(names))
        marks = [pytest.mark.xfail(strict=len(names) == 1, reason=why)] if why else []
        found.append(pytest.param(start, tuple(names), id=f"{start}, {' and '.join(names)}", marks=marks))
    return found


def leads_out(world: World, start: str, names: tuple[str, ...], *, next_too: bool = False) -> Walk:
    """Loses `names` at this moment and follows what is named. Raises DeadEnd, or AssertionError for an unsafe end.

    To train what is left, or a cell again, takes three commands by itself: where the loss takes one more, or two were
    lost at once, the way that ends the sweep instead has to be named, and to be short enough.
    """
    try:
        return _walked(world, start, names, next_too=next_too)
    except DeadEnd as found:
        trains = STARTS[start].trains or found.trains_again
        if found.kind != "more than three" or not (trains or len(names) > 1):
            raise
    world.restore(start)
    return _walked(world, start, names, ends=True)


def _walked(world: World, start: str, names: tuple[str, ...], *, ends: bool = False, next_too: bool = False) -> Walk:
    there = bool(world.books())
    update = losses.bring(world, *names)
    if update is None:
        pytest.skip("nothing of that is there to lose")
    walk = Walk(world, STARTS[start].settled, update, passes=world.release, ends=ends, next_too=next_too)
    stays = there and not world.books()  # it was deleted with the loss: nothing was ended here
    walk.to_the_end()
    if not stays:
        assert safety.unsafe(world, start) == [], "\n".join(walk.story)
    return walk
