"""Prepared sweeps: one worker makes a state once and resets to it, since making takes ten seconds of a core."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.engine.one_box import Row


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder drives the real engine."""
    for item in items:
        if item.nodeid.startswith("tests/engine/"):
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="module")
def make_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stack]]:
    """Makes sweeps that are ended with the module: `make_stack(name="t", …)`, config written, stack made, not up."""
    made: list[Stack] = []

    def make(
        name: str = "t",
        *,
        cells: tuple[str, ...] = (),
        boxes: tuple[str, ...] = (),
        config: bool = True,
        init: bool = True,
    ) -> Stack:
        stack = Stack(tmp_path_factory.mktemp("sweep"), name=name)
        stack.cells = cells or stack.cells
        stack.boxes = boxes or stack.boxes
        made.append(stack)
        if config:
            stack.write_config()
        if init:
            stack.init()
        return stack

    yield make
    for stack in made:
        stack.close()


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Up, and every cell sealed on its box; nothing pulled. With the moment `finished` saved."""
    with ended(Stack(tmp_path_factory.mktemp("sweep"))) as stack:
        yield finish(stack)


@pytest.fixture(scope="session")
def small_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The same with one box and two cells."""
    with ended(Stack(tmp_path_factory.mktemp("sweep"), cells=("seed0", "seed1"), boxes=("box-0",))) as stack:
        yield finish(stack)


@contextlib.contextmanager
def ended(stack: Stack) -> Iterator[Stack]:
    """Nothing of it is left running."""
    try:
        yield stack
    finally:
        stack.close()


def finish(stack: Stack) -> Stack:
    """From nothing to the moment `finished`."""
    stack.write_config()
    stack.init()
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    stack.save("finished")
    return stack


@pytest.fixture
def small_finished(small_once: Stack) -> Stack:
    """One box; both cells are sealed there, nothing is pulled."""
    small_once.restore("finished")
    return small_once


@pytest.fixture
def finished(finished_once: Stack) -> Stack:
    """The moment after the last cell was sealed."""
    finished_once.restore("finished")
    return finished_once


@pytest.fixture(scope="session")
def verified_once(finished_once: Stack) -> Stack:
    """The moment after `verify` said yes, saved as `verified`."""
    finished_once.restore("finished")
    ok(finished_once.sweepctl("pull"))
    ok(finished_once.sweepctl("verify"))
    finished_once.save("verified")
    return finished_once


@pytest.fixture
def verified(verified_once: Stack) -> Stack:
    """All cells pulled and verified, nobody asked."""
    verified_once.restore("verified")
    return verified_once


@pytest.fixture(scope="session")
def cleared_once(verified_once: Stack) -> Stack:
    """The moment after approval and `up`, saved as `cleared`."""
    verified_once.restore("verified")
    verified_once.approve()
    ok(verified_once.up())
    verified_once.save("cleared")
    return verified_once


@pytest.fixture
def cleared(cleared_once: Stack) -> Stack:
    """Approved and cleared: a destroy would go through."""
    cleared_once.restore("cleared")
    return cleared_once


class Locked:
    """A sweep in the middle of its work, to be attacked again and again; made anew when an attack got through."""

    def __init__(self, make: Callable[[], Stack]) -> None:
        self._make = make
        self._stack: Stack | None = None
        self.running: tuple[str, ...] = ()

    def get(self) -> Stack:
        """The sweep: on each box one cell sealed and one held in the middle of its training."""
        return self._stack or self._prepare()

    def spoil(self) -> None:
        """An attack got through: the next test needs another sweep."""
        if self._stack is not None:
            self._stack.close()
        self._stack = None

    def _prepare(self) -> Stack:
        stack = self._stack = self._make()
        stack.write_config()
        stack.init()
        stack.hold(*stack.cells)
        ok(stack.up())
        self.running = tuple(stack.cells_of(box)[-1] for box in stack.boxes)
        stack.release(but=self.running)
        stack.wait_done(but=self.running)
        ok(stack.up())  # what a refresh writes once is written now
        return stack


@pytest.fixture(scope="session")
def locked_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """See `Locked`."""
    locked = Locked(lambda: Stack(tmp_path_factory.mktemp("sweep")))
    yield locked
    locked.spoil()


@pytest.fixture(scope="module")
def at_work(make_stack: Callable[..., Stack]) -> Stack:
    """One box: seed0 is sealed, seed1 is held."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    stack.hold("seed1")
    ok(stack.up())
    stack.wait_done(but=["seed1"])
    ok(stack.up())  # what a refresh writes once is written now
    stack.keep_state()
    return stack


@pytest.fixture
def row(at_work: Stack) -> Iterator[Row]:
    """It before the option; put back afterwards."""
    config = at_work.config_file.read_text()
    made = Row(at_work)
    yield made
    made.plain()
    at_work.config_file.write_text(config)
    at_work.put_back_state()
    at_work.assert_unchanged(made.before, state=False)
