"""What stands behind an instance of the simulated vast.ai: nothing (its address refuses), or a real machine."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tests.simulators.vendor import Machines

if TYPE_CHECKING:
    from tests.simulators.vastai.instance import Instance


GRACE_SECONDS = 1.0
"""Real seconds between the answer to an instance that stops itself and its end: it is to hear the answer."""


class Boxes(Protocol):
    """Called by the world as instances change. `host`: their address; `closed_port`: one that always refuses there.

    `session_env`: sessions over SSH have the vendor's variables, too, as in an image whose entrypoint exports them.
    """

    host: str
    closed_port: int
    session_env: bool

    def start(self, instance: Instance, *, new_port: bool) -> None:
        """Its container runs from now on; sets `instance.port`. What was on its disk is still there."""

    def stop(self, instance: Instance, *, grace: bool = False) -> None:
        """Its processes end at once; `grace`: a moment later. Nothing runs: nothing happens."""

    def authorize(self, instance: Instance) -> None:
        """`instance.keys` have changed."""

    def isolate(self, instance: Instance, isolated: bool) -> None:
        """Its network is gone, both ways, or there again. ValueError: there is no machine behind it."""

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
        self.session_env = False
        self._held = socket.socket()
        self._held.bind((self.host, 0))
        self.closed_port: int = self._held.getsockname()[1]

    def start(self, instance: Instance, *, new_port: bool) -> None:
        instance.port = self.closed_port

    def stop(self, instance: Instance, *, grace: bool = False) -> None:
        pass

    def authorize(self, instance: Instance) -> None:
        pass

    def isolate(self, instance: Instance, isolated: bool) -> None:
        raise ValueError("these instances are no machines")

    def end(self, instance: Instance) -> None:
        pass

    def drop(self, number: int) -> None:
        pass

    def close(self) -> None:
        self._held.close()


class RealBoxes(NoBoxes):
    """A machine for each instance that has run. `folder` keeps their disks, and the volumes. `outlets`: the ports of
    loopback that they reach, asked at each first start.

    The container's variables are its first process's; a session over SSH does not see them, and neither does it there.
    """

    def __init__(self, folder: Path, outlets: Callable[[], Sequence[int]]) -> None:
        super().__init__()
        self.folder, self._outlets = folder, outlets
        self.behind = Machines()

    def volume(self, number: int) -> Path:
        """Where a volume lies on this host."""
        return self.folder / "volumes" / str(number)

    def start(self, instance: Instance, *, new_port: bool) -> None:
        from tests.simulators.machines import Machine

        machine = self.behind.settled(str(instance.id))
        env = {name: value for name, value in instance.env.items() if not name.startswith("-")} | _vendors(instance)
        if machine is not None:
            machine.session_env = self.session_env
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
                session_env=self.session_env,
                outlets=self._outlets(),
            )
            self.behind.there[str(instance.id)] = machine
        instance.port = machine.port
        if instance.onstart:
            script = machine.disk / "root" / "onstart.sh"
            script.write_text(instance.onstart)
            variables = [f"{name}={value}" for name, value in env.items()]
            begin = "nohup setsid bash /root/onstart.sh > /var/log/onstart.log 2>&1 < /dev/null &"
            machine.run("env", *variables, "bash", "-c", begin)

    def stop(self, instance: Instance, *, grace: bool = False) -> None:
        machine = self.behind.settled(str(instance.id))
        if machine is not None and grace:
            self.behind.begin(str(instance.id), machine.stop, GRACE_SECONDS)
        elif machine is not None:
            machine.stop()

    def isolate(self, instance: Instance, isolated: bool) -> None:
        self.behind.there[str(instance.id)].isolate(isolated)

    def authorize(self, instance: Instance) -> None:
        if (machine := self.behind.there.get(str(instance.id))) is not None:
            machine.authorized_keys = list(instance.keys)
            if machine.alive:
                machine.authorize()

    def end(self, instance: Instance) -> None:
        self.behind.end(str(instance.id))

    def drop(self, number: int) -> None:
        shutil.rmtree(self.volume(number), ignore_errors=True)

    def close(self) -> None:
        self.behind.close()
        super().close()


def _vendors(instance: Instance) -> dict[str, str]:
    """The variables that the vendor's documentation says are set in every instance."""
    found = {
        "CONTAINER_ID": str(instance.id),
        "VAST_CONTAINERLABEL": instance.container,
        "GPU_COUNT": str(instance.gpus),
        "PUBLIC_IPADDR": instance.host,
        "DATA_DIRECTORY": "/workspace/",
    }
    return found if instance.keyless else {**found, "CONTAINER_API_KEY": instance.own_key}
