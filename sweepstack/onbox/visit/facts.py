"""Answers, as a line of JSON, what a box can know of its platform.

It sends no value of a variable.

Its one argument is JSON: `word`, which marks are made of, and `file`, what they are called; `mark`: `try` (write one
in each tier, and take it away), `write` (and leave it), or `look` for those that were left (and take away what outlived
a stop); `tiers` and `caches`, name → path below the folder that it runs in; `own_key`, a variable; `programs`; `hosts`,
what a box without mirrors reaches; `speeds`, name → [the vendor's URL, the mirror's].

This module is sent alone, as an argument that `ps` on the box shows: it imports no other module of ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any

SECONDS = 10.0
MOST_BYTES = 4_000_000
"""So much of a URL is fetched at most, to see how fast it comes."""


def main() -> None:
    """Prints the answer."""
    asked = json.loads(sys.argv[1])
    boot = booted()
    tiers = {name: tier(path, asked, boot) for name, path in asked["tiers"].items()}
    answer: dict[str, Any] = {"tiers": tiers, "boot": boot}
    if asked["mark"] != "look":
        data = asked["tiers"].get("data") or "."
        answer["own_key"] = own_key(asked["own_key"]) if asked["own_key"] else None
        answer["cards"], answer["cuda"] = cards(), cuda()
        answer["memory"], answer["cpus"] = memory(), cpus()
        answer["programs"] = {name: shutil.which(name) is not None for name in asked.get("programs", ())}
        answer["nvme"] = nvme(data)
        answer["caches"] = {name: writable(path) for name, path in asked["caches"].items()}
        answer["hosts"] = {host: reached(host) for host in asked["hosts"]}
        answer["speeds"] = {name: [speed(url) for url in urls] for name, urls in asked.get("speeds", {}).items()}
    print(json.dumps(answer))


def booted() -> str:
    """What changes with each start of the machine or of its container; "" where /proc does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            machine = file.read().strip()
        with open("/proc/1/stat") as file:
            return machine + " " + file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def fs_of(path: str) -> tuple[str, str] | None:
    """The mount point that a path lies in, and the kind of its file system; None where /proc does not say."""
    best = None
    real = os.path.realpath(path)
    with contextlib.suppress(OSError), open("/proc/self/mounts") as file:
        for line in file:
            _, point, kind = line.split(" ")[:3]
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and (best is None or len(point) >= len(best[0])):
                best = (point, kind)
    return best


def tier(path: str, asked: dict[str, Any], boot: str) -> dict[str, Any]:
    """Where a tier really lies, what is free there, and whether a file can be written, or is still there."""
    found: dict[str, Any] = {"there": os.path.isdir(path), "marked": False, "mount": None, "kind": None}
    if not found["there"]:
        return found
    fs = fs_of(path)
    if fs:
        found["mount"], found["kind"] = fs
    found["path"] = os.path.realpath(path)
    with contextlib.suppress(OSError):
        disk = os.statvfs(path)
        found["bytes"], found["free_bytes"] = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        found["inodes"], found["free_inodes"] = disk.f_files or None, disk.f_favail if disk.f_files else None
    # A try of its own: what was left for a look after a stop stays there.
    name = os.path.join(path, asked["file"] + (".try" if asked["mark"] == "try" else ""))
    with contextlib.suppress(OSError):
        if asked["mark"] != "look":
            with open(name, "w") as file:
                file.write(asked["word"] + "\n" + boot)
                file.flush()
                os.fsync(file.fileno())
        with open(name) as file:
            word, _, since = file.read().partition("\n")
        found["marked"], found["since"] = word == asked["word"], since
        if asked["mark"] == "try" or (asked["mark"] == "look" and found["marked"] and since != boot):
            os.unlink(name)
    return found


def own_key(variable: str) -> bool | None:
    """Whether process 1 has it; None where that can't be read."""
    try:
        with open("/proc/1/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return None
    return any(one.startswith(variable.encode() + b"=") and len(one) > len(variable) + 1 for one in words)


def _smi(*words: str) -> bytes:
    try:
        return subprocess.run(
            ["nvidia-smi", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return b""


def cards() -> list[str] | None:
    """The GPUs by name; None where no driver answers."""
    said = _smi("--query-gpu=name", "--format=csv,noheader").decode("utf-8", "replace").strip()
    return [line.strip() for line in said.splitlines()] if said else None


def cuda() -> str | None:
    """The newest CUDA that the driver takes."""
    match = re.search(rb"CUDA Version:\s*(\d+\.\d+)", _smi())
    return match.group(1).decode() if match else None


def memory() -> int | None:
    """Bytes of RAM that processes here may have: the cgroup's limit, or all of the machine's."""
    found = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            found.append(int(file.read()))
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found) if found else None


def cpus() -> float | None:
    """CPUs that processes here may have: the cgroup's quota, or those that they may run on."""
    found = [float(len(os.sched_getaffinity(0)))] if hasattr(os, "sched_getaffinity") else []
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError), open("/sys/fs/cgroup/cpu.max") as file:
        quota, period = file.read().split()[:2]
        found.append(int(quota) / int(period))
    return min(found) if found else None


def nvme(path: str) -> bool | None:
    """Whether the disk below is NVMe; None where a container's file system or a virtual disk hides it."""
    try:
        device = os.stat(path).st_dev
        behind = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    except OSError:
        return None
    if not os.major(device) or not os.path.isdir(behind):
        return None
    if "/virtio" in behind or "/virtual/" in behind or "/vbd-" in behind:
        return None
    return "/nvme" in behind


def writable(path: str) -> bool:
    """Whether a folder takes files, or can be made where it is not there. Makes none."""
    place = os.path.abspath(os.path.expanduser(path))
    while not os.path.exists(place):
        place = os.path.dirname(place)
    return os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)


def reached(host: str) -> bool:
    """Whether a host takes a connection."""
    try:
        socket.create_connection((host, 443), SECONDS).close()
    except OSError:
        return False
    return True


def speed(url: str) -> float | None:
    """Bytes a second of the first megabytes, with the time until the first one; None where it does not answer. By the
    box's own route: a proxy of the environment is left out, for the vendor's URL as for the mirror's."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    begun, got = time.monotonic(), 0
    try:
        with opener.open(url, timeout=SECONDS) as answer:
            while got < MOST_BYTES and time.monotonic() - begun < SECONDS:
                part = answer.read(65536)
                if not part:
                    break
                got += len(part)
    except (OSError, ValueError):
        return None
    return got / max(time.monotonic() - begun, 0.001) if got else None


if __name__ == "__main__":
    main()
