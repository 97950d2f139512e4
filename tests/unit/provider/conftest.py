"""A sweep, made anew for each test and emptied of processes after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.channel.ssh import route as ssh_config
from tests.compiled import ship_compiled
from tests.read_here import reads_here
from tests.simulators.machines import require
from tests.unit.provider.hosts import HostSweep
from tests.unit.provider.support import Sweep, prepared_in


@pytest.fixture
def sweep(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sweep]:
    """No power is cut in these tests, so nothing is flushed here; and their cells do not fail late. It lies where that
    of the test before lay: what is copied of an earlier one names its own folder (`Prepared`)."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    ship_compiled(monkeypatch)
    reads_here(monkeypatch)
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("sweepstack.launch.first_step.POLL_SECONDS", 0.02)
    monkeypatch.setattr("sweepstack.provider.resources.box.POLL_SECONDS", 0.02)
    folder = tmp_path_factory.getbasetemp() / "sweep"
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{folder}/state")
    for drill in ("SWEEPSTACK_DRILL_CREATE", "SWEEPSTACK_DRILL_BOOT_SECONDS"):
        monkeypatch.delenv(drill, raising=False)
    found = Sweep(folder, prepared_in(tmp_path_factory.getbasetemp() / "prepared"))
    yield found
    found.close()
    folder.rename(tmp_path / "sweep")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSweep]:
    """The same on a host of the user's own, behind a real sshd; nothing of the person's ssh configuration is read."""
    require()
    ship_compiled(monkeypatch)
    reads_here(monkeypatch)
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("sweepstack.launch.first_step.POLL_SECONDS", 0.02)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, "none")
    made = HostSweep(tmp_path, "box-0")
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(made.key))
    yield made
    made.close()
