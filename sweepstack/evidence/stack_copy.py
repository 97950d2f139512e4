"""Keeps a copy of the stack file in the evidence: `pulumi stack rm` deletes the file.

The text is kept as it is: a stack file names secrets and holds none. An earlier text is kept beside it, by its digest.
This computer remembers where the evidence of each stack lies, for the day when the stack file is gone.
"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from sweepstack.evidence.changing_copies import put
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.onbox.common.xdg import data_folder

STACK_FILES = "stack-files"


def keep_stack_file(uri: str, path: Path, declared: Path | None = None) -> str:
    """Copies the stack file, and the file of what a program declares where there is one, into the evidence at `uri`,
    and remembers that place on this computer. Idempotent.

    Returns where the copy lies. Raises EvidenceError where it can't be written, OSError where a file can't be read.
    """
    store = EvidenceStore.open(uri)
    files = {_name(store): path} | ({declared.name: declared} if declared and declared.exists() else {})
    for name, file in files.items():
        put(
            store.objects,
            f"{STACK_FILES}/{name}",
            file.read_bytes(),
            goes_on=lambda before, now: False,
            aside=lambda key, digest: f"{STACK_FILES}/earlier/{digest}-{key.rpartition('/')[2]}",
        )
    _remember(store.marker.stack, uri)
    return store.objects.shown(f"{STACK_FILES}/{_name(store)}")


def stack_file_of(store: EvidenceStore) -> tuple[str, bytes] | None:
    """The name and the text of the stack file that the last `pulumi up` kept; None where none did."""
    name = _name(store)
    held = store.objects.read(f"{STACK_FILES}/{name}")
    return None if held is None else (name, held.data)


def copy_back(store: EvidenceStore, path: Path) -> str:
    """The command that puts the copy of the last `pulumi up` at `path`; "" where it is in a bucket, where none was
    kept, and where it can't be read."""
    if store.traffic is not None:
        return ""
    try:
        held = stack_file_of(store)
    except EvidenceError:
        return ""
    return shlex.join(["cp", str(store.root / STACK_FILES / held[0]), str(path)]) if held is not None else ""


def places_of(stack: str) -> list[str]:
    """Where evidence of a stack of this name lies by what this computer remembers, and still is. Never raises."""
    return [uri for uri in remembered(stack) if _is_of(uri, stack)]


def remembered(stack: str) -> list[str]:
    """Where evidence of a stack of this name was by what this computer remembers. Never raises."""
    try:
        return _record(stack).read_text("utf-8").split()
    except (OSError, ValueError):
        return []


def remembered_stacks() -> list[str]:
    """The bare names of all stacks of which this computer remembers a place, sorted. Never raises."""
    return sorted(file.stem for file in _record("x").parent.glob("*.txt"))


def _name(store: EvidenceStore) -> str:
    return f"Pulumi.{store.marker.stack.rsplit('/', 1)[-1]}.yaml"


def _is_of(uri: str, stack: str) -> bool:
    try:
        marker = EvidenceStore.read_marker(uri)
    except EvidenceError:
        return False
    return marker is not None and marker.stack == stack


def _record(stack: str) -> Path:
    return data_folder() / "evidence" / f"{stack.rsplit('/', 1)[-1]}.txt"


def _remember(stack: str, uri: str) -> None:
    known = remembered(stack)
    if uri not in known:
        with contextlib.suppress(OSError):  # a convenience only
            write_atomically(_record(stack), "\n".join([*known, uri, ""]).encode())
