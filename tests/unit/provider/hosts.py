"""A sweep whose boxes are on hosts of the user's own: real sshds, real runners, handlers driven one by one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from sweepstack.core.resources import BoxInputs, BoxState, GateState, QueueState
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import processes
from sweepstack.platforms.registry import load_platform
from tests.simulators.host import Host
from tests.unit.provider.support import BOX, GATE, QUEUE, Sweep


class HostSweep(Sweep):
    """A host a box, by name; what outlives a box there is the copy that was pulled."""

    def __init__(self, folder: Path, *names: str, host: Callable[[Path], Host] = Host) -> None:
        """`host` makes one of them."""
        self.hosts = {name: host(folder / "hosts" / name) for name in names or ("box-0",)}
        self.key = next(iter(self.hosts.values())).key
        python = Path(sys.prefix) / "bin"
        for host in self.hosts.values():
            shutil.copy(f"{self.key}.pub", host.folder / "authorized_keys")
            host.say(PATH=f"{python}:/usr/local/bin:/usr/bin:/bin")
        super().__init__(folder)

    def keep(self) -> None:
        """Nothing outlives these boxes."""

    def mounts(self) -> dict[str, str]:
        return {}

    def adapter(self, name: str) -> str:
        return f"ssh:{self.hosts[name].address}"

    def channel(self, box: BoxState) -> Channel:
        return load_platform(box.adapter).channel(box.native_id, box.account)

    def boxes_on(self, name: str) -> list[str]:
        """The folders of boxes that lie on a host."""
        return sorted(path.name for path in self.hosts[name].home.glob(".local/share/sweepstack/local/boxes/[!.]*"))

    def checked(self, box: BoxState, **changes: object) -> tuple[BoxInputs, list[str]]:
        """What a preview makes of changed inputs, and why it refuses them."""
        old = BoxInputs.model_validate(box.model_dump(include=set(BoxInputs.model_fields)))
        found = BOX.check(self.op(name=box.name), old, self.box_inputs(box.name, **changes))
        return found.inputs, [failure.reason for failure in found.failures]

    def updated(self, box: BoxState, inputs: BoxInputs) -> BoxState:
        return BOX.update(self.op(name=box.name), box.native_id, box, inputs)

    def followed(self, box: BoxState, queue: QueueState, gate: GateState) -> tuple[QueueState, GateState]:
        """Queue and gate after their box's update."""
        inputs = self.queue_inputs(box)
        now = QUEUE.update(self.op("Queue", box.name), f"{box.native_id}/queue", queue, inputs)
        return now, GATE.update(self.op("Gate", box.name), f"{box.native_id}/gate", gate, self.gate_inputs(box))

    def close(self) -> None:
        self.release()
        for name, host in self.hosts.items():
            for native_id in self.boxes_on(name):
                processes.end_box(native_id, grace=0)
            host.stop()
