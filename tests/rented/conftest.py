"""Prepared sweeps whose only box is behind an sshd: the fixtures of tests/engine, for a host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.commands import ok
from tests.engine.conftest import finish
from tests.rented.host_stack import NAMES, HostStack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder drives the real engine."""
    for item in items:
        if item.nodeid.startswith("tests/rented/"):
            item.add_marker(pytest.mark.engine)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[HostStack]:
    """One box on one host, two cells, not up yet."""
    stack = HostStack(tmp_path / "sweep")
    try:
        stack.write_config()
        stack.init()
        yield stack
    finally:
        stack.end()


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostStack]:
    """With the moment `finished` saved."""
    stack = HostStack(tmp_path_factory.mktemp("sweep"))
    with (stack.job / "train.py").open("a") as job:
        job.write(f"for name in {NAMES!r}:\n    (arguments.out / name).write_text(name)\n")
    try:
        finish(stack)
        yield stack
    finally:
        stack.end()


@pytest.fixture
def small_finished(finished_once: HostStack) -> HostStack:
    """Both cells are sealed on the host, nothing is pulled."""
    finished_once.restore("finished")
    return finished_once


@pytest.fixture(scope="module")
def verified_once(finished_once: HostStack) -> HostStack:
    """With the moment `verified` saved."""
    finished_once.restore("finished")
    ok(finished_once.sweepctl("pull"))
    assert finished_once.verify()["verified"] == len(finished_once.cells)
    finished_once.save("verified")
    return finished_once


@pytest.fixture
def verified(verified_once: HostStack) -> HostStack:
    """Both cells are pulled and verified."""
    verified_once.restore("verified")
    return verified_once


@pytest.fixture(scope="module")
def cleared_once(verified_once: HostStack) -> HostStack:
    """With the moment `cleared` saved."""
    verified_once.restore("verified")
    verified_once.approve()
    ok(verified_once.up())
    verified_once.save("cleared")
    return verified_once


@pytest.fixture
def cleared(cleared_once: HostStack) -> HostStack:
    """Approved and cleared: a destroy would go through."""
    cleared_once.restore("cleared")
    return cleared_once


@pytest.fixture
def training(small: HostStack) -> HostStack:
    """One box; both cells are held, nothing is sealed."""
    small.hold("seed0", "seed1")
    ok(small.up())
    return small
