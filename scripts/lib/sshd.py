"""OpenSSH's server, rsync and rclone for the tests, from the system's packages.

A user who rents boxes needs only the clients; the server is for tests alone.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from scripts.lib.console import Console
from scripts.lib.errors import SetupError
from scripts.lib.processes import run

PACKAGES = ("openssh-client", "openssh-server", "rsync", "rclone", "fuse3")
PROGRAMS = ("/usr/sbin/sshd", "ssh", "ssh-keygen", "rsync", "rclone", "fusermount3")
BY_HAND = "apt-get install -y --no-install-recommends " + " ".join(PACKAGES)
DEADLINE = 600.0


def missing() -> list[str]:
    """The programs that are not there, as they are looked for."""
    return [name for name in PROGRAMS if not (Path(name).is_file() if name.startswith("/") else shutil.which(name))]


def install(env: Mapping[str, str], console: Console, cancel: threading.Event) -> None:
    """Installs what is missing where that is ours to do: root, and apt. Else it says what is missing, and goes on:
    the tests that need it fail with the same words, all others run. Seconds; nothing to do when all is there. Where
    an init system runs, the package starts its daemon, as packages do; the tests never use that.
    """
    absent = missing()
    if not absent:
        return
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or apt is None:
        console.say(
            f"  note: tests over SSH, or of buckets, will fail: {', '.join(absent)} missing. As root: {BY_HAND}"
        )
        return
    quiet = {**env, "DEBIAN_FRONTEND": "noninteractive"}
    with console.step("OpenSSH server", "rsync and rclone, by apt, for the tests"):
        command = [apt, "install", "-y", "--no-install-recommends", *PACKAGES]
        try:
            run(command, what="installing openssh-server", deadline=DEADLINE, cancel=cancel, env=quiet)
        except SetupError:  # lists that are old or absent, as in a fresh container
            run([apt, "update"], what="apt-get update", deadline=DEADLINE, cancel=cancel, env=quiet)
            run(command, what="installing openssh-server", deadline=DEADLINE, cancel=cancel, env=quiet)
    if absent := missing():
        raise SetupError(f"apt-get installed {', '.join(PACKAGES)}, and {', '.join(absent)} is still missing")
