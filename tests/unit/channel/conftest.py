from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulators import machines
from tests.unit.channel.worlds import LocalWorld, SshWorld, World


@pytest.fixture(scope="session")
def machine_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshWorld]:
    """One machine for all tests of a worker that leave it as it was."""
    machines.require()
    made = SshWorld(tmp_path_factory.mktemp("ssh"))
    yield made
    made.close()


@pytest.fixture
def ssh_world(machine_world: SshWorld) -> Iterator[SshWorld]:
    machine_world.fresh()
    yield machine_world
    machine_world.still()


@pytest.fixture(params=["local", "ssh"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A box behind each kind of channel."""
    if request.param == "ssh":
        yield request.getfixturevalue("ssh_world")
        return
    made = LocalWorld(tmp_path / "world")
    yield made
    made.close()
