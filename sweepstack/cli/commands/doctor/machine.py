"""Checks of this machine: Python, tools, free disk space."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from sweepstack.cli.commands.doctor.finding import Check, Finding, ask, fail, ok, warn
from sweepstack.cli.output import size
from sweepstack.core.paths import installed, package_fix
from sweepstack.onbox.common.xdg import cache_folder, user_folder

PYTHON = (3, 11)
PACKAGES = ("pulumi", "pydantic", "numpy", "safetensors", "PyYAML", "rich", "typer", "urllib3")
LATER_TOOLS = {"ssh": "boxes on other hosts", "rsync": "copies from other hosts", "tmux": "long commands over SSH"}
LEAST_BYTES, FEW_BYTES = 1e9, 10e9
LEAST_INODES, FEW_INODES = 10_000, 100_000


def checks() -> Iterator[tuple[str, Check]]:
    """(name, check), in the order of the table."""
    yield "python", python
    yield "uv", uv
    yield "git", git
    yield "disk", disks
    yield "tools", tools


def python() -> list[Finding]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < PYTHON:
        fix = f"sweepstack needs Python 3.11 or newer: {package_fix()}"
        return [fail("python", f"{version} at {sys.executable}", fix)]
    missing = []
    for package in PACKAGES:
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            missing.append(package)
    if missing:
        return [fail("python", f"{version} at {sys.executable}, without {', '.join(missing)}", package_fix())]
    return [ok("python", f"{version} at {sys.executable}")]


def uv() -> list[Finding]:
    found = shutil.which("uv") or next((str(path) for path in sorted(_cached("uv").glob("*/bin/uv"))), None)
    if found is None:
        # Only the set-up of a checkout uses uv.
        return [] if installed() else [ok("uv", "not found: make setup fetches one when it needs it")]
    return [ok("uv", f"{ask([found, '--version']).first} at {found}")]


def git() -> list[Finding]:
    found = shutil.which("git")
    if found is None:
        return [
            fail("git", "not found", "install git: without it the git-tracked files of a work dir can't be shipped")
        ]
    said = ask([found, "--version"])
    if said.code != 0:
        return [fail("git", said.first, "fix git: without it the git-tracked files of a work dir can't be shipped")]
    return [ok("git", said.first.removeprefix("git version "))]


def tools() -> list[Finding]:
    findings = []
    for tool, purpose in LATER_TOOLS.items():
        found = shutil.which(tool)
        missing = warn(tool, "not found", f"install it before you need {purpose}; this machine's boxes do without")
        findings.append(missing if found is None else ok(tool, found))
    return findings


def disks() -> list[Finding]:
    """Free space for the state, local boxes, caches and temporary files."""
    return room({"data": user_folder("XDG_DATA_HOME", ".local/share"), "cache": _cached(""), "tmp": Path(_temporary())})


def room(places: dict[str, Path]) -> list[Finding]:
    """Free bytes and inodes below each path; paths on one file system share a line."""
    lines: dict[int, tuple[list[str], Path]] = {}
    for name, place in places.items():
        there = next(folder for folder in (place, *place.parents) if folder.exists())
        lines.setdefault(there.stat().st_dev, ([], there))[0].append(name)
    return [_room(f"disk ({', '.join(names)})", there) for names, there in lines.values()]


def _room(name: str, place: Path) -> Finding:
    facts = os.statvfs(place)
    free, total = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
    found = f"{size(free)} of {size(total)} free at {place}"
    inodes = facts.f_favail if facts.f_files else None  # some file systems create inodes as needed
    if inodes is not None:
        found += f", {inodes:,} of {facts.f_files:,} inodes"
    if facts.f_flag & os.ST_RDONLY:
        return fail(name, f"{place} can only be read", "mount it so that it can be written to")
    if free < LEAST_BYTES or (inodes is not None and inodes < LEAST_INODES):
        return fail(name, found, "free some space: nothing can be written here")
    if free < FEW_BYTES or (inodes is not None and inodes < FEW_INODES):
        return warn(name, found, "free some space before a long sweep: checkpoints and pulled copies go here")
    return ok(name, found)


def _cached(what: str) -> Path:
    return cache_folder() / what


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()
