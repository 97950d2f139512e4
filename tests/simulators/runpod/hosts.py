"""What pods run on: real machines with an sshd, or a port at which nobody listens, for tests of the API alone."""

from __future__ import annotations

import shlex
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulators.runpod.pods import Pod

if TYPE_CHECKING:
    from tests.simulators.machines import Machine


class NoHosts:
    """Pods of paper: their port 22 is a port that refuses, another one after each start."""

    def __init__(self) -> None:
        self._held: dict[str, socket.socket] = {}

    def boot(self, pod: Pod) -> None:
        """Draws a port."""
        self.halt(pod, wipe=False)

    def ready(self, pod: Pod) -> bool:
        """Always."""
        return True

    def port(self, pod: Pod) -> int:
        """A port that is taken, so that nobody else listens there, and refuses."""
        if pod.id not in self._held:
            held = self._held[pod.id] = socket.socket()
            held.bind(("127.0.0.1", 0))
        return int(self._held[pod.id].getsockname()[1])

    def halt(self, pod: Pod, *, wipe: bool) -> None:
        """Lets go of the port, later: the next one must be another."""
        if held := self._held.pop(pod.id, None):
            self.port(pod)
            held.close()

    def kill(self, pod: Pod) -> None:
        """Lets go of the port."""
        if held := self._held.pop(pod.id, None):
            held.close()

    def close(self) -> None:
        """Lets go of all ports."""
        for held in self._held.values():
            held.close()
        self._held.clear()


class RealHosts:
    """Each pod a machine of `tests.simulators.machines`, whose first process is the pod's start command, if it has one.

    `root`: where their disks lie. `complain`: hears of a machine that did not start. Machines boot in the background.
    """

    def __init__(self, root: Path, complain: Callable[[str], None]) -> None:
        self._root, self._complain = root, complain
        self._machines: dict[str, Machine] = {}
        self._booting: dict[str, threading.Thread] = {}

    def machine(self, pod_id: str) -> Machine:
        """The machine behind a pod. KeyError: none yet, or no more."""
        self._settle(pod_id)
        return self._machines[pod_id]

    def boot(self, pod: Pod) -> None:
        """Starts it, or starts it again at another port."""
        self._settle(pod.id)
        gpus = pod.gpus_now
        thread = threading.Thread(target=self._boot, args=(pod, gpus), daemon=True)
        self._booting[pod.id] = thread
        thread.start()

    def _boot(self, pod: Pod, gpus: int) -> None:
        from tests.simulators.machines import Machine

        try:
            if pod.id in self._machines:
                self._machines[pod.id].restart(new_port=True, env=self._env(pod), gpus=gpus)
                return
            self._machines[pod.id] = Machine.start(
                f"pod-{pod.id}",
                keep=self._root / pod.id,
                authorized_keys=pod.env.get("PUBLIC_KEY", "").splitlines(),
                env=self._env(pod),
                binds=self._binds(pod),
                command=shlex.split(pod.wanted.args) or None,
                gpus=gpus,
            )
        except (AssertionError, OSError, ValueError) as error:
            self._complain(f"the machine of pod {pod.id} did not start: {error}")

    def ready(self, pod: Pod) -> bool:
        """Whether its sshd answers."""
        thread, machine = self._booting.get(pod.id), self._machines.get(pod.id)
        return machine is not None and machine.alive and (thread is None or not thread.is_alive())

    def port(self, pod: Pod) -> int:
        """The port of loopback at which its sshd answers."""
        return int(self._machines[pod.id].port)

    def halt(self, pod: Pod, *, wipe: bool) -> None:
        """A power cut, and then an empty container disk; the volume disk is bound from elsewhere."""
        self._settle(pod.id)
        if machine := self._machines.get(pod.id):
            machine.stop()
            if wipe:
                machine.wipe()

    def kill(self, pod: Pod) -> None:
        """Ends it, disk and all."""
        self._settle(pod.id)
        if machine := self._machines.pop(pod.id, None):
            machine.kill()

    def close(self) -> None:
        """Ends all of them."""
        for pod_id in [*self._booting, *self._machines]:
            self._settle(pod_id)
            if machine := self._machines.pop(pod_id, None):
                machine.kill()

    def _env(self, pod: Pod) -> dict[str, str]:
        return {**pod.env, "RUNPOD_POD_ID": pod.id, "RUNPOD_GPU_COUNT": str(pod.gpus_now)}

    def _binds(self, pod: Pod) -> dict[str, Path]:
        found: dict[str, Path] = {}
        mounts = pod.wanted.mounts
        if mounts.network and pod.volume and pod.volume.folder:
            found[mounts.network[0].path] = pod.volume.folder
        if mounts.persistent:
            kept = self._root / f"{pod.id}.volume"
            kept.mkdir(parents=True, exist_ok=True)
            found[mounts.persistent.path] = kept
        return found

    def _settle(self, pod_id: str) -> None:
        if thread := self._booting.pop(pod_id, None):
            thread.join()
