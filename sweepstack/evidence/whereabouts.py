"""Where evidence lies: on a box that is about to end, or moved to another folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sweepstack.evidence import location
from sweepstack.evidence.object_store import FolderStore
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.errors import EvidenceError

MOST_BESIDE = 200
"""So many folders beside the place are looked at."""


def evidence_on(channel: Channel, uri: str, tiers: tuple[str, ...]) -> tuple[str, str] | None:
    """The part of the box that the evidence at `uri`, or one of its folders, lies in, links resolved; and which folder
    that is, for people. None where it lies elsewhere, or on another machine.

    `tiers`: the box's own. Asks the box, where it is not on this machine for sure, only if the paths agree. Raises
    PlatformError, OSError where its answer is not known: then it may lie there.
    """
    try:
        objects = location.resolve(uri)
    except EvidenceError:
        return None
    if not isinstance(objects, FolderStore):
        return None
    roots = {tier: os.path.realpath(channel.absolute(tier)) for tier in tiers}
    roots[""] = os.path.realpath(os.path.dirname(channel.absolute(tiers[0])))
    for folder in _folders(str(objects.root)):
        below = _below(os.path.realpath(folder), roots)
        if below and _same(channel, below, folder):
            return below.split("/", 1)[0], folder
    return None


def moved_to(uri: str, identity: str, likely: Iterable[str | None]) -> tuple[Path, Path] | None:
    """Where the evidence of this sweep lies that is not at `uri` any more, and where it belongs. `likely`: places to
    look at; beside them each folder that lies beside `uri`. None if it is found nowhere, or is no folder of this host.
    Reads markers alone; raises nothing."""
    try:
        objects = location.resolve(uri)
    except EvidenceError:
        return None
    if not isinstance(objects, FolderStore) or os.path.lexists(objects.root):
        return None
    beside: list[str | None] = []
    with contextlib.suppress(OSError):
        beside = [f"{uri.rpartition('/')[0]}/{name}" for name in sorted(os.listdir(objects.root.parent))]
    for place in dict.fromkeys([*likely, *beside[:MOST_BESIDE]]):
        with contextlib.suppress(EvidenceError, OSError):
            there = location.resolve(place or "")
            marker = location.read_marker(there) if isinstance(there, FolderStore) else None
            if marker is not None and marker.identity == identity and isinstance(there, FolderStore):
                return there.root, objects.root
    return None


def _folders(root: str) -> Iterator[str]:
    yield root
    try:
        with os.scandir(root) as entries:
            yield from sorted(entry.path for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return


def _below(path: str, roots: Mapping[str, str]) -> str:
    """The same path as the box has it, empty where it is not below any of these."""
    for name, root in roots.items():
        if path == root or path.startswith(f"{root}/"):
            return f"{name}/{path[len(root) :]}".replace("//", "/").strip("/")
    return ""


def _same(channel: Channel, path: str, folder: str) -> bool:
    """Whether the box has the same names there: one on another machine may have a path that looks alike. Raises
    PlatformError, OSError where that can't be seen."""
    try:
        return {entry.name for entry in channel.listdir(path)} == set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False
