"""What pods run on: real machines with an sshd, or a port at which nobody listens, for tests of the API alone."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulators.own_keys import OwnKeys
from tests.simulators.runpod.pods import Pod
from tests.simulators.vendor import Machines

if TYPE_CHECKING:
    from tests.simulators.machines import Machine


GRACE_SECONDS = 1.0
"""Real seconds between the answer to a pod that stops itself and its power cut: it is to hear the answer."""
NOTICE_SECONDS = 5.0
"""Real seconds between the SIGTERM to what runs on a spot pod that gives way, and its power cut."""
RP_ENVIRONMENT = "/etc/rp_environment"


class NoHosts:
    """Pods of paper: their port 22 is a port that refuses, another one after each start."""

    session_env = False

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

    def halt(self, pod: Pod, *, wipe: bool, grace: bool = False, notice: bool = False) -> None:
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


class RealHosts(Machines):
    """Each pod a machine of `tests.simulators.machines`, whose first process is the pod's start command, if it has one.

    `root`: where their disks lie. `complain`: hears of a machine that did not start. Machines boot in the background.
    `outlets`: the ports of loopback that they reach, asked at each boot. `own_keys`: what their RUNPOD_API_KEY is.
    `session_env`: sessions over SSH have the vendor's variables, too, as in an image whose start script writes them
    down; read at each boot.
    """

    def __init__(
        self, root: Path, complain: Callable[[str], None], outlets: Callable[[], Sequence[int]], own_keys: OwnKeys
    ) -> None:
        super().__init__()
        self._root, self._complain, self._outlets, self._own_keys = root, complain, outlets, own_keys
        self.session_env = False

    def boot(self, pod: Pod) -> None:
        """Starts it, or starts it again at another port."""
        gpus = pod.gpus_now
        self.begin(pod.id, lambda: self._boot(pod, gpus))

    def _boot(self, pod: Pod, gpus: int) -> None:
        from tests.simulators.machines import Machine

        try:
            if self.session_env:
                self._write_down(pod)
            if pod.id in self.there:
                self.there[pod.id].restart(new_port=True, env=self._env(pod), gpus=gpus)
                return
            self.there[pod.id] = Machine.start(
                f"pod-{pod.id}",
                keep=self._root / pod.id,
                authorized_keys=pod.env.get("PUBLIC_KEY", "").splitlines(),
                env=self._env(pod),
                binds=self._binds(pod),
                command=shlex.split(pod.wanted.args) or None,
                gpus=gpus,
                outlets=self._outlets(),
            )
        except (AssertionError, OSError, ValueError) as error:
            self._complain(f"the machine of pod {pod.id} did not start: {error}")

    def ready(self, pod: Pod) -> bool:
        """Whether its sshd answers."""
        return self.up(pod.id)

    def port(self, pod: Pod) -> int:
        """The port of loopback at which its sshd answers."""
        return int(self.there[pod.id].port)

    def halt(self, pod: Pod, *, wipe: bool, grace: bool = False, notice: bool = False) -> None:
        """A power cut, and then an empty container disk; the volume disk is bound from elsewhere. `grace`: a moment
        later. `notice`: SIGTERM to what runs beside the start command, and the power cut `NOTICE_SECONDS` later."""
        machine = self.settled(pod.id)
        if machine is None:
            return

        def cut() -> None:
            machine.stop()
            if wipe:
                machine.wipe()

        if notice:
            self.begin(pod.id, lambda: _terminate(machine))
        if notice or grace:
            self.begin(pod.id, cut, NOTICE_SECONDS if notice else GRACE_SECONDS)
        else:
            cut()

    def kill(self, pod: Pod) -> None:
        """Ends it, disk and all."""
        self.end(pod.id)

    def _env(self, pod: Pod) -> dict[str, str]:
        """Of its first process. The vendor's variables are those of its documentation that are known before a boot."""
        return {**pod.env, **self._vendors(pod)}

    def _vendors(self, pod: Pod) -> dict[str, str]:
        found = {
            "RUNPOD_POD_ID": pod.id,
            "RUNPOD_POD_HOSTNAME": f"{pod.id}-host",
            "RUNPOD_DC_ID": pod.place or "",
            "RUNPOD_GPU_COUNT": str(pod.gpus_now),
            "RUNPOD_CPU_COUNT": str(8 * max(1, pod.gpu_count)),
            "RUNPOD_PUBLIC_IP": "127.0.0.1",
        }
        if pod.volume is not None:
            found["RUNPOD_VOLUME_ID"] = pod.volume.id
        if not pod.keyless:
            found["RUNPOD_API_KEY"] = self._own_keys.of(pod.id)
        return found

    def _write_down(self, pod: Pod) -> None:
        """As the start script of the vendor's images does."""
        disk = self._root / pod.id / "disk"
        lines = [f'export {name}="{value}"\n' for name, value in self._vendors(pod).items()]
        for path, text in ((RP_ENVIRONMENT, "".join(lines)), ("/root/.bashrc", f"source {RP_ENVIRONMENT}\n")):
            (disk / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (disk / path.lstrip("/")).write_text(text)

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


def _terminate(machine: Machine) -> None:
    """SIGTERM to all that runs in it, but for the session of its start command: with that the machine would end."""
    pids = machine.pids()
    first = min(pids, key=_begun, default=0)
    for pid in pids:
        with contextlib.suppress(OSError):
            if os.getsid(pid) != os.getsid(first):
                os.kill(pid, signal.SIGTERM)


def _begun(pid: int) -> tuple[float, int]:
    """When a process began, for an order; the last of all where it has ended."""
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]), pid
    except OSError:
        return float("inf"), pid
