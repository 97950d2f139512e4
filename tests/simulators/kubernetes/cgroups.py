"""The control groups of one cluster: a group of its own in each hierarchy, below the one that this process is in.

With it a cluster's containers are limited and counted inside its own group, and are found and removed with that.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def own() -> list[Path]:
    """The folders of the groups that this process is in: one a hierarchy, or the only one of version 2."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    first = [(names.removeprefix("name="), path) for _, names, path in lines if names]
    if not first:
        return [ROOT / path.lstrip("/") for _, _, path in lines]
    return [ROOT / names / path.lstrip("/") for names, path in first]


def lacking() -> str:
    """Why containers can't be limited here; "" where they can."""
    try:
        groups = own()
    except OSError as error:
        return f"control groups can't be read: {error}"
    if unwritable := [str(one) for one in groups if not os.access(one / "cgroup.procs", os.W_OK)]:
        return f"control groups can't be written: {', '.join(unwritable)}"
    names = {name for one in groups for name in one.relative_to(ROOT).parts[:1]}
    unified = ROOT / "cgroup.controllers"
    there = "memory" in (unified.read_text().split() if unified.is_file() else names)
    return "" if there else "there is no control group of memory"


def make(name: str, parents: Sequence[Path] | None = None) -> list[Path]:
    """Makes the groups of a cluster, or below those the ones of a node. The folders: the first process has to be put
    into each (`enter`). What is there already stays."""
    made = [group / name for group in (own() if parents is None else parents)]
    for group in made:
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):  # of version 1: no process may enter a group without these
            if (group / setting).is_file() and (group / "cpuset.cpu_exclusive").is_file():
                (group / setting).write_text((group.parent / setting).read_text())
        if (group / "cgroup.subtree_control").is_file():
            _pass_on(group)
    return made


def _pass_on(group: Path) -> None:
    """Of version 2: groups below get limits only where this one has no process of its own."""
    names = (group / "cgroup.controllers").read_text().split()
    with contextlib.suppress(OSError):
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in names))
    (group / "first").mkdir(exist_ok=True)


def remove(groups: Sequence[Path]) -> bool:
    """Takes these groups away, and all below them. False where a process is still in one."""
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    return not any(group.exists() for group in groups)


def enter(groups: Sequence[Path]) -> list[str]:
    """Words that stand before a command: it, and all that it starts, is in these groups."""
    files = [str((one / "first" if (one / "first").is_dir() else one) / "cgroup.procs") for one in groups]
    script = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 1; shift; done; shift; exec "$@"'
    return ["sh", "-c", script, "sh", *files, "--"]
