"""What the tests need of the system's packages: an SSH server, Slurm, a browser, QEMU, containers.

A user of sweepstack needs none.

Slurm comes from the distribution, because every cluster runs the real one: its daemons run in the tests' own folders
and ports, so nothing of it is configured on this machine.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from scripts.lib.console import Console
from scripts.lib.errors import SetupError
from scripts.lib.processes import run

DEADLINE = 600.0


@dataclass(frozen=True)
class SystemPackages:
    """Packages that are installed together, and how one sees that they are there."""

    title: str
    of: str
    """What set-up says of it while it installs it."""
    tests: str
    """The tests that fail without it."""
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    any_program: bool = False
    """One of the programs is enough."""

    @property
    def by_hand(self) -> str:
        return "apt-get install -y --no-install-recommends " + " ".join(self.packages)

    def missing(self) -> list[str]:
        """The programs that are not there; the packages, where one program would be enough and none is there."""
        gone = [name for name in self.programs if shutil.which(name) is None]
        if self.any_program:
            return list(self.packages) if len(gone) == len(self.programs) else []
        return gone

    def found(self) -> str | None:
        """Where the first program is that is there; None where there is none."""
        return next((path for name in self.programs if (path := shutil.which(name))), None)

    def install(self, env: Mapping[str, str], console: Console, cancel: threading.Event) -> None:
        """Installs what is missing where that is ours to do: root, and apt. Else it says what is missing, and goes on:
        the tests that need it fail with the same words, all others run. Seconds; nothing to do when all is there. Where
        an init system runs, a package starts its daemons, as packages do; the tests never use those.
        """
        absent = self.missing()
        if not absent:
            return
        apt = shutil.which("apt-get")
        if os.geteuid() != 0 or apt is None:
            console.say(f"  note: {self.tests} will fail: {', '.join(absent)} missing. As root: {self.by_hand}")
            return
        quiet = {**env, "DEBIAN_FRONTEND": "noninteractive"}
        what = f"installing {self.title}"
        with console.step(self.title, self.of):
            command = [apt, *self.by_hand.split()[1:]]
            try:
                run(command, what=what, deadline=DEADLINE, cancel=cancel, env=quiet)
            except SetupError:  # lists that are old or absent, as in a fresh container
                run([apt, "update"], what="apt-get update", deadline=DEADLINE, cancel=cancel, env=quiet)
                run(command, what=what, deadline=DEADLINE, cancel=cancel, env=quiet)
        if absent := self.missing():
            raise SetupError(f"apt-get installed {', '.join(self.packages)}, and {', '.join(absent)} is still missing")


SSH = SystemPackages(
    title="OpenSSH server",
    of="with rsync and rclone, by apt, for the tests",
    tests="tests over SSH, or of buckets,",
    packages=("openssh-client", "openssh-server", "rsync", "rclone", "fuse3"),
    programs=("/usr/sbin/sshd", "ssh", "ssh-keygen", "rsync", "rclone", "fusermount3"),
)
SLURM = SystemPackages(
    title="Slurm",
    of="by apt, for the tests",
    tests="tests on Slurm",
    # the last two are for accounting: 8 MB to download
    packages=("munge", "slurmctld", "slurmd", "slurm-client", "slurmdbd", "mariadb-server-core"),
    programs=(
        *(f"/usr/sbin/{name}" for name in ("munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd")),
        *("sbatch", "squeue", "scontrol", "sacct", "sacctmgr"),
    ),
)
BROWSER = SystemPackages(
    title="Chromium",
    of="by apt, for the tests of pages: 124 MB to download, 414 MB on disk",
    tests="tests of pages",
    packages=("chromium",),
    # the last is a snap on Ubuntu; machines of CI have Google's
    programs=("chromium", "google-chrome", "google-chrome-stable", "chromium-browser"),
    any_program=True,
)
NFS = SystemPackages(
    title="QEMU",
    of="by apt, for tests over NFS: its machines have kernels of their own",
    tests="tests over NFS",
    packages=("qemu-system-x86", "busybox-static", "e2fsprogs"),
    programs=("qemu-system-x86_64", "busybox", "/usr/sbin/mke2fs"),
)
KUBERNETES = SystemPackages(
    title="containerd and etcd",
    of="what a Kubernetes stands on, by apt, for the tests",
    tests="tests on Kubernetes",
    packages=("containerd", "runc", "containernetworking-plugins", "etcd-server", "iproute2"),
    programs=("containerd", "ctr", "runc", "/usr/lib/cni/bridge", "etcd", "ip"),
)
OF_OPTION = {"ssh": SSH, "slurm": SLURM, "browser": BROWSER, "nfs": NFS, "kubernetes": KUBERNETES}
"""The packages of each option of set-up that has some."""
