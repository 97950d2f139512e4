"""A sweep whose box is on a machine that somebody rented: entered through a real sshd, ended by nobody's API."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.resources import BoxInputs, BoxState, VolumeInputs, VolumeState
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.ssh.platform import SshPlatform
from sweepstack.status.engine.state import BoxEntry, IdentityEntry, StackState
from tests.simulators.host import Host
from tests.simulators.machines import require
from tests.unit.provider.support import VOLUME, Sweep

MANUAL = "in its console, terminate it: its disk is erased for good"
BY_PERSON = {
    "verb": "destroy",
    "kills": ("scratch", "data", "durable"),
    "keeps": (),
    "issue": {"by": "person", "native": "terminate", "manual": MANUAL},
}
BY_COMMAND = {
    "verb": "destroy",
    "kills": ("scratch", "data"),
    "keeps": ("durable",),
    "paths": {"scratch": "scratch", "data": "data", "durable": "mnt/durable"},
    "issue": {"by": "ssh", "native": "power-off", "command": "shutdown"},
    "release": "(release) in its console",
    "stop": {
        "kills": (),
        "keeps": ("scratch", "data", "durable"),
        "price_per_hour": 0.01,
        "issue": {"by": "ssh", "native": "power-off", "command": "shutdown"},
    },
    "clocks": [{"what": "released", "days": 15, "kills": ["scratch", "data"]}],
}


@contextlib.contextmanager
def rented_host(
    folder: Path, monkeypatch: pytest.MonkeyPatch, teardown: dict[str, Any], price: float = 0.5
) -> Iterator[HostSweep]:
    """A sweep on a host of its own. Nobody waits long for a host to fall silent."""
    require()
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 0.0)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{folder}/state")
    monkeypatch.setenv("SWEEPSTACK_API_PACE", "0.01")
    host = Host(folder / "host")
    host.say(PATH=f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(host.key))
    sweep = HostSweep(folder / "sweep", host, teardown, price)
    try:
        yield sweep
    finally:
        sweep.close()
        host.stop()


class HostSweep(Sweep):
    """As `Sweep`; every box is on `host`, and ends as `teardown` says."""

    def __init__(self, folder: Path, host: Host, teardown: dict[str, Any], price: float = 0.5) -> None:
        self.host, self.teardown, self.price = host, teardown, price
        super().__init__(folder)

    def adapter(self, _name: str = "") -> str:
        return f"ssh:{self.host.address}"

    @property
    def platform(self) -> SshPlatform:  # type: ignore[override]
        found = load_platform(self.adapter())
        assert isinstance(found, SshPlatform)
        return found

    @property
    def platform_root(self) -> Path:
        return self.host.home / ".local/share/sweepstack/local"

    def made_volume(self) -> VolumeState:
        identity, evidence = self.identity.identity, self.identity.evidence
        inputs = VolumeInputs(identity=identity, evidence=evidence, adapter=self.adapter(), name="store")
        return VOLUME.create(self.op("Volume", "store"), inputs)[1]

    def box_inputs(self, name: str = "box-0", **changes: Any) -> BoxInputs:
        return super().box_inputs(name, **({"teardown": self.teardown, "price_per_hour": self.price} | changes))

    def on_box(self, box: BoxState) -> dict[str, Any]:
        return super().on_box(box) | {"adapter": box.adapter, "teardown": box.teardown}

    def channel(self, box: BoxState) -> Any:
        return self.platform.channel(box.native_id, box.account)

    def stack_state(self, *boxes: BoxState) -> StackState:
        """What the engine would remember, as `sweepctl` reads it."""
        entries = [BoxEntry.model_validate(box.model_dump(mode="json") | {"urn": f"urn:{box.name}"}) for box in boxes]
        identity = IdentityEntry.model_validate(self.identity.model_dump(mode="json") | {"urn": "urn:identity"})
        return StackState("sweep-t", identity=identity, boxes=tuple(entries))
