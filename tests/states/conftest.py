"""Sweeps at their starting points. A moment is made once a worker, and gone back to in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.states.fast import Fast
from tests.states.real import Real
from tests.states.starts import CELLS, STARTS
from tests.states.world import World

At = Callable[[str], World]
"""The sweep at the starting point of this name."""


def _kept(kind: type[World], factory: pytest.TempPathFactory, made: dict[str, World]) -> At:
    def at(name: str) -> World:
        start = STARTS[name]
        if start.after:
            at(start.after)
        world = made.get(start.after or name)
        if world is None:
            world = made[name] = kind(factory.mktemp(name), cells=CELLS, boxes=start.boxes)
        if name not in made or not (world.base / "saved" / name).exists():
            start.prepare(world)
            world.save(name)
            made[name] = world
        world.restore(name)
        return world

    return at


@pytest.fixture(scope="session")
def fast_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[At]:
    """On the stand-in of the engine."""
    made: dict[str, World] = {}
    yield _kept(Fast, tmp_path_factory, made)
    for world in made.values():
        world.end()


@pytest.fixture(scope="session")
def real_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[At]:
    """On the real engine."""
    made: dict[str, World] = {}
    yield _kept(Real, tmp_path_factory, made)
    for world in made.values():
        world.end()


@pytest.fixture
def new_fast(tmp_path: Path) -> Iterator[Fast]:
    """One box, not up yet; its checkout may be broken before the first command."""
    world = Fast(tmp_path, cells=CELLS, boxes=("box-0",))
    yield world
    world.end()
