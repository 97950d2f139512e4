"""What stands behind an instance of the simulated vast.ai: nothing (its address refuses), or a real machine."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tests.simulators.machines import Machine
    from tests.simulators.vastai.instance import Instance


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

    def drop(self, number: int) -> None:
        """A volume is deleted, with what it held."""

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

    def drop(self, number: int) -> None:
        pass

    def close(self) -> None:
        self._held.close()


class RealBoxes(NoBoxes):
    """A machine for each instance that has run. `folder` keeps their disks, and the volumes.

    The container's variables are its first process's; a session over SSH does not see them, and neither does it there.
    """

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
        env = {name: value for name, value in instance.env.items() if not name.startswith("-")}
        if machine is not None:
            machine.restart(new_port=new_port, env=env)
        else:
            binds = {}
            if instance.volume is not None:
                self.volume(instance.volume).mkdir(parents=True, exist_ok=True)
                binds[instance.mount_path] = self.volume(instance.volume)
            machine = Machine.start(
                f"vast-{instance.id}",
                keep=self.folder / "instances" / str(instance.id),
                authorized_keys=instance.keys,
                env=env,
                binds=binds,
                gpus=instance.gpus,
            )
            self.machines[instance.id] = machine
        instance.port = machine.port
        if instance.onstart:
            script = machine.disk / "root" / "onstart.sh"
            script.write_text(instance.onstart)
            variables = [f"{name}={value}" for name, value in env.items()]
            begin = "nohup setsid bash /root/onstart.sh > /var/log/onstart.log 2>&1 < /dev/null &"
            machine.run("env", *variables, "bash", "-c", begin)

    def stop(self, instance: Instance) -> None:
        if (machine := self.machines.get(instance.id)) is not None:
            machine.stop()

    def wipe(self, instance: Instance) -> None:
        if (machine := self.machines.get(instance.id)) is not None:
            machine.stop()
            machine.wipe()

    def authorize(self, instance: Instance) -> None:
        if (machine := self.machines.get(instance.id)) is not None:
            machine.authorized_keys = list(instance.keys)
            if machine.alive:
                machine.authorize()

    def end(self, instance: Instance) -> None:
        if (machine := self.machines.pop(instance.id, None)) is not None:
            machine.kill()

    def drop(self, number: int) -> None:
        shutil.rmtree(self.volume(number), ignore_errors=True)

    def close(self) -> None:
        for machine in self.machines.values():
            machine.kill()
        super().close()
