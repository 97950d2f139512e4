"""Debian's kernel, unpacked for the small machines of `tests/simulators/nfs`.

It is not installed: this machine boots what it booted before.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from scripts.lib.apt import DEADLINE
from scripts.lib.console import Console
from scripts.lib.errors import SetupError
from scripts.lib.places import Places
from scripts.lib.processes import run
from scripts.lib.wheels import put_in_place, scratch_folder

PACKAGE = "linux-image-cloud-amd64"
"""It depends on the newest kernel of the release; with NFS as server and client, and little else."""


def folder(places: Places) -> Path:
    """Where `tests/simulators/nfs/machines.py` looks for it."""
    return places.cache / "kernel"


def is_there(places: Places) -> bool:
    return any(folder(places).glob("boot/vmlinuz-*"))


def unpack(places: Places, env: Mapping[str, str], console: Console, cancel: threading.Event) -> None:
    """Fetches the package by apt and unpacks it into the cache, unless it is there. Needs no root. Where there is no
    apt, says so and goes on: the tests that need it fail with the same words, all others run. Raises SetupError."""
    if is_there(places):
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        console.say(f"  note: tests over NFS will fail: {PACKAGE} missing, and there is no apt to get it with")
        return
    with console.step("a kernel", "Debian's, by apt, unpacked for tests over NFS: 27 MB to download, 100 MB on disk"):
        named = run(["apt-cache", "depends", PACKAGE], what="apt-cache", deadline=DEADLINE, cancel=cancel, env=env)
        needs = [line.split()[-1] for line in named.splitlines() if line.strip().startswith("Depends: linux-image-")]
        if not needs:
            raise SetupError(f"apt knows no {PACKAGE}: only Debian on amd64 has it")
        made = scratch_folder(folder(places).parent)
        try:
            what = f"fetching {needs[0]}"
            run(["apt-get", "download", needs[0]], what=what, deadline=DEADLINE, cancel=cancel, env=env, cwd=made)
            for package in made.glob("*.deb"):
                run(["dpkg-deb", "-x", package, made], what="dpkg-deb", deadline=DEADLINE, cancel=cancel, env=env)
                package.unlink()
            put_in_place(made, folder(places))
        finally:
            shutil.rmtree(made, ignore_errors=True)
