"""Starts small machines: `Machines` has one NFS server and any number of clients of it. Each is a process of QEMU.

The machines know each other only as 10.0.2.2, which is this host: a client reaches the server through a port of the
loopback interface.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.simulators.nfs.memory import memory

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = tuple(f"tests/simulators/nfs/{name}.py" for name in ("claiming_guest", "lock_guest", "mount_server"))
START_SECONDS = 180.0
DISK_MB = 256
MKE2FS = "/usr/sbin/mke2fs"


def kernel_folder() -> Path:
    """Where set-up unpacks the kernel's package."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "sweepstack" / "kernel"


def missing() -> list[str]:
    """What set-up would have to get."""
    gone = [name for name in ("qemu-system-x86_64", "busybox", MKE2FS) if shutil.which(name) is None]
    return gone + ([] if list(kernel_folder().glob("boot/vmlinuz-*")) else [f"a kernel in {kernel_folder()}"])


class Machine:
    """One start of one machine. Its console is `log`."""

    def __init__(self, argv: list[str], log: Path) -> None:
        self.log = log
        self._from = log.stat().st_size if log.exists() else 0
        with log.open("ab") as console:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console)

    def said(self) -> str:
        """What its console says since this start."""
        return self.log.read_bytes()[self._from :].decode("utf-8", "replace").replace("\r", "")

    def crash(self) -> None:
        """Its power fails. Idempotent."""
        self.process.kill()
        self.process.wait()

    def halt(self, seconds: float) -> None:
        """It stands still for so long."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def wait_for(self, there: Callable[[str], bool], seconds: float, what: str) -> None:
        """Raises AssertionError, with its console, when that is not so in time, or the machine ended."""
        ends = time.monotonic() + seconds
        while not there(self.said()):
            ended = self.process.poll() is not None
            if (ended or time.monotonic() > ends) and not there(self.said()):
                raise AssertionError(f"{what}: {'it ended' if ended else 'not in time'}\n{self.said()[-6000:]}")
            time.sleep(0.05)


class Machines:
    """An NFS server and its clients, in `folder`. `version`: 3 or 4.2. `options`: more of the mount's. `ticks`:
    the server's files have times in whole seconds, as an NFS 3 client learns from them what changed."""

    def __init__(self, folder: Path, python: str, version: str, options: str = "", ticks: bool = False) -> None:
        if gone := missing():
            raise AssertionError(f"{', '.join(gone)} missing: scripts/setup --nfs gets it")
        self.folder, self._version, self._options = folder, version, options
        self._kernel = next(kernel_folder().glob("boot/vmlinuz-*"))
        self._memory, self._disk = folder / "memory", folder / "disk"
        busybox = Path(str(shutil.which("busybox")))
        self._memory.write_bytes(memory(kernel_folder(), busybox, python, ROOT, PROGRAMS))
        with self._disk.open("wb") as disk:
            disk.truncate(DISK_MB << 20)
        make = [MKE2FS, "-q", "-F", "-t", "ext4", "-I", "128" if ticks else "256", str(self._disk)]
        subprocess.run(make, check=True, capture_output=True, stdin=subprocess.DEVNULL)
        self._ports = [_free_port(), _free_port()]
        self.started: list[Machine] = []
        self.server = self.start_server()

    def start_server(self) -> Machine:
        """Again after its crash, too: with the same disk."""
        ports = (
            f"hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in zip(self._ports, (2049, 20048), strict=True)
        )
        line = f"role=server v3={int(self._version == '3')}"
        more = ["-drive", f"file={self._disk},format=raw,if=virtio,cache=unsafe"]
        self.server = self._start("server", 1, line, ",".join(["user,id=net", *ports]), more)
        self.server.wait_for(lambda said: "READY" in said, START_SECONDS, "the NFS server")
        return self.server

    def start_client(self, name: str, number: int, run: list[str]) -> Machine:
        """`number` is the machine's, over its restarts. `run`: a program of the checkout and its arguments."""
        options = f"vers={self._version},proto=tcp,port={self._ports[0]},{self._options}".rstrip(",")
        path = "/"
        if self._version == "3":
            options += f",nolock,mountproto=tcp,mountport={self._ports[1]},mountaddr=10.0.2.2"
            path = "/export"
        line = f"role={name} path={path} nfs={options} run={','.join(run)}"
        return self._start(name, number + 1, line, "user,id=net", [])

    def close(self) -> None:
        """Ends all of them."""
        for machine in self.started:
            machine.crash()

    def _start(self, name: str, number: int, line: str, net: str, more: list[str]) -> Machine:
        argv = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "qemu64", "-smp", "1", "-m", "256"]
        argv += ["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot"]
        argv += ["-kernel", str(self._kernel), "-initrd", str(self._memory)]
        argv += ["-append", f"console=ttyS0 quiet panic=-1 no_timer_check {line}", "-netdev", net]
        argv += ["-device", f"virtio-net-pci,netdev=net,mac=52:54:00:00:00:{number:02x}", *more]
        machine = Machine(argv, self.folder / f"{name}.log")
        self.started.append(machine)
        return machine


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
