"""What stands behind an instance of the simulated vast.ai: nothing (its address refuses), or a real machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tests.simulators.machines import Machine
    from tests.simulators.vastai_instance import Instance


class Boxes(Protocol):
    """Called by the world as instances change. `host`: their address; `closed_port`: one that always refuses there."""

    host: str
    closed_port: int

    def start(self, instance: Instance, *, new_port: bool) -> None:
        """Its container runs from now on; sets `instance.port`. What was on its disk is still there."""

    def stop(self, instance: Instance) -> None:
        """Its processes end at once. Nothing runs: nothing happens."""

    def wipe(self, instance: Instance) -> None:
        """Its container is made anew: stopped, and its disk is lost."""

    def authorize(self, instance: Instance) -> None:
        """`instance.keys` have changed."""

    def end(self, instance: Instance) -> None:
        """It is destroyed: processes and disk. A volume stays."""

    def close(self) -> None:
        """Everything ends."""


class NoBoxes:
    """No machines: a port is held and refuses, so that nobody else's service can answer there."""

    def __init__(self) -> None:
        self.host = "127.0.0.1"
        self._held = socket.socket()
        self._held.bind((self.host, 0))
        self.closed_port: int = self._held.getsockname()[1]

    def start(self, instance: Instance, *, new_port: bool) -> None:
        instance.port = self.closed_port

    def stop(self, instance: Instance) -> None:
        pass

    def wipe(self, instance: Instance) -> None:
        pass

    def authorize(self, instance: Instance) -> None:
        pass

    def end(self, instance: Instance) -> None:
        pass

    def close(self) -> None:
        self._held.close()


class RealBoxes(NoBoxes):
    """A machine for each instance that runs. `folder` keeps their disks, and the volumes by native id."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.machines: dict[int, Machine] = {}

    def volume(self, number: int) -> Path:
        """Where a volume lies on this host."""
        return self.folder / "volumes" / str(number)

    def start(self, instance: Instance, *, new_port: bool) -> None:
        from tests.simulators.machines import Machine

        machine = self.machines.get(instance.id)
        if machine is not None:
            machine.restart(new_port=new_port, env=instance.env)
        else:
            binds = {}
            if instance.volume is not None:
                self.volume(instance.volume).mkdir(parents=True, exist_ok=True)
                binds[instance.mount_path] = self.volume(instance.volume)
            machine = Machine.start(
                f"vast-{instance.id}",
                keep=self.folder / "instances" / str(instance.id),
                authorized_keys=instance.keys,
                env={name: value for name, value in instance.env.items() if not name.startswith("-")},
                binds=binds,
                session_env=True,
                gpus=instance.gpus,
            )
            self.machines[instance.id] = machine
        instance.port = machine.port
        self._run(machine, instance)

    def _run(self, machine: Machine, instance: Instance) -> None:
        """`onstart`, as each start of the container runs it."""

    def stop(self, instance: Instance) -> None:
        if (machine := self.machines.get(instance.id)) is not None:
            machine.stop()

    def wipe(self, instance: Instance) -> None:
        if (machine := self.machines.get(instance.id)) is not None:
            machine.stop()
            machine.wipe()

    def authorize(self, instance: Instance) -> None:
        if (machine := self.machines.get(instance.id)) is not None:
            fresh = [key for key in instance.keys if key not in machine.authorized_keys]
            machine.authorize(*fresh)

    def end(self, instance: Instance) -> None:
        if (machine := self.machines.pop(instance.id, None)) is not None:
            machine.kill()

    def close(self) -> None:
        for machine in self.machines.values():
            machine.kill()
        super().close()
