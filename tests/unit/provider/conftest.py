"""A sweep, made anew for each test and emptied of processes after it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.channel.ssh import route as ssh_config
from sweepstack.loaders.base import LoadResult
from sweepstack.loaders.load import load
from sweepstack.loaders.pool import FileToRead
from tests.compiled import ship_compiled
from tests.simulators.machines import require
from tests.unit.provider.hosts import HostSweep
from tests.unit.provider.support import Sweep


def read_here(jobs: Iterable[FileToRead], **_: Any) -> Iterator[tuple[FileToRead, LoadResult]]:
    """Loads in this process: what makes a copy good is not at stake here."""
    for job in jobs:
        yield job, load(job.path, job.spec, job.sha256, expected_size=job.size)


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sweep]:
    """No power is cut in these tests, so nothing is flushed here; and their cells do not fail late."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    ship_compiled(monkeypatch)
    monkeypatch.setattr("sweepstack.evidence.verify.read_all", read_here)
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("sweepstack.launch.first_step.POLL_SECONDS", 0.02)
    monkeypatch.setattr("sweepstack.provider.resources.box.POLL_SECONDS", 0.02)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    for drill in ("SWEEPSTACK_DRILL_CREATE", "SWEEPSTACK_DRILL_BOOT_SECONDS"):
        monkeypatch.delenv(drill, raising=False)
    found = Sweep(tmp_path)
    yield found
    found.close()


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSweep]:
    """The same on a host of the user's own, behind a real sshd; nothing of the person's ssh configuration is read."""
    require()
    ship_compiled(monkeypatch)
    monkeypatch.setattr("sweepstack.evidence.verify.read_all", read_here)
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("sweepstack.launch.first_step.POLL_SECONDS", 0.02)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, "none")
    made = HostSweep(tmp_path, "box-0")
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(made.key))
    yield made
    made.close()
