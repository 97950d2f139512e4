"""Makes buckets available to a box's cells: copied to the box, mounted, or behind the durable tier.

COPY           copied to the box and compared before any cell starts; never written back
MOUNT          mounted by FUSE, read-only, if this box can do that. An fsync on such a mount does not make data
               durable, so nothing is written or sealed through it
MOUNT_CACHED   behind the box's durable tier: a cell counts as sealed when it was read back from the bucket"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.aside import set_aside
from sweepstack.onbox.common.canonical import sha256_hex, write_json_atomically
from sweepstack.onbox.runner.rclone import Remote, RemoteFailed, RemoteStopped, why_no_fuse
from sweepstack.onbox.runner.records import say

MOUNT_SECONDS = 60.0
COPIED = ".sweepstack-copied.json"


def mounts_of(spec: Mapping[str, Any], mode: str = "") -> list[dict[str, Any]]:
    """The buckets of spec.json: {path, source, mode, endpoint}."""
    return [mount for mount in spec.get("mounts") or [] if not mode or mount["mode"] == mode]


def folder_of_mount(box: Path, mount: Mapping[str, Any], durable: str) -> Path:
    """The folder of a mount on the box."""
    slug = str(mount["path"]).strip("/").replace("/", "-")
    return box / durable if mount["mode"] == "MOUNT_CACHED" else box / "mnt" / slug


def mount_variables(box: Path, spec: Mapping[str, Any]) -> dict[str, str]:
    """`SWEEPSTACK_MOUNT_<PATH>` → the mount's folder: `/data/images` is in `SWEEPSTACK_MOUNT_DATA_IMAGES`."""
    found = {}
    for mount in mounts_of(spec):
        name = "".join(char if char.isalnum() else "_" for char in str(mount["path"]).strip("/")).upper()
        found[f"SWEEPSTACK_MOUNT_{name}"] = str(folder_of_mount(box, mount, str(spec["durable"])))
    return found


def prepare(
    box: Path, spec: Mapping[str, Any], env: Mapping[str, str], hidden: Sequence[str], stop: threading.Event
) -> str:
    """Copies every COPY and mounts every MOUNT. Blocks. Returns why that failed, with what to do; "" on success."""
    try:
        for mount in mounts_of(spec):
            target = folder_of_mount(box, mount, str(spec["durable"]))
            remote = Remote(mount, env, hidden, stop)
            if mount["mode"] == "COPY":
                _copy(remote, target)
            elif mount["mode"] == "MOUNT":
                _mount(remote, target)
    except RemoteStopped:
        return "the runner was stopped"
    except OSError as error:
        return f"mounts: {error}"
    return ""


def _copy(remote: Remote, target: Path) -> None:
    """Copies the source to a partial folder, compares, and renames it. A complete copy is left as it is."""
    done = target.parent / f"{target.name}{COPIED}"
    try:
        if json.loads(done.read_bytes())["source"] == remote.source and target.is_dir():
            return
    except (OSError, ValueError, KeyError, TypeError):
        pass
    # An interrupted copy is continued here: of this source alone, or the folder would hold files of two.
    staged = target.with_name(f"{target.name}.partial-{sha256_hex(remote.source.encode())[:8]}")
    say(f"copying {remote.source} to {target}")
    if not remote.fetch("", staged):
        raise RemoteFailed(f"{remote.source} holds nothing. Next: correct mounts in the stack file, then `pulumi up`")
    set_aside(target)
    write_json_atomically(done, {"source": remote.source})  # counts once the folder is there, which comes last
    os.rename(staged, target)


def _mount(remote: Remote, target: Path) -> None:
    """Mounts the source by FUSE. A working mount is left as it is; a dead one is unmounted first."""
    why = why_no_fuse(remote.env.get("PATH", os.defpath))
    if why:
        raise RemoteFailed(f"{remote.source} can't be mounted: {why}. Next: mode: COPY, then `pulumi up`")
    if os.path.ismount(target):
        if _answers(target):
            return
        _unmount(remote, target)
    target.mkdir(parents=True, exist_ok=True)
    if os.listdir(target):
        raise RemoteFailed(f"{target} holds files, and {remote.source} is to be mounted there. Next: move them away")
    remote.call(
        *("mount", remote.root, str(target), "--daemon", f"--daemon-timeout={MOUNT_SECONDS:g}s"),
        "--read-only",
        seconds=2 * MOUNT_SECONDS,
    )
    until = time.monotonic() + MOUNT_SECONDS
    while not (os.path.ismount(target) and _answers(target)):
        if time.monotonic() > until:
            raise RemoteFailed(f"{remote.source} was mounted at {target}, and does not answer there")
        time.sleep(0.1)
    say(f"{remote.source} is mounted at {target}")


def _answers(target: Path) -> bool:
    """Whether a mount can be listed. Asked in another process: a mount that hangs must not block the runner."""
    try:
        command = ["ls", "-A", str(target)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _unmount(remote: Remote, target: Path) -> None:
    for name in ("fusermount3", "fusermount"):
        program = shutil.which(name, path=remote.env.get("PATH"))
        if program:
            subprocess.run([program, "-uz", str(target)], stderr=subprocess.DEVNULL, timeout=20, check=False)
            return
