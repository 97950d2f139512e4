"""Sends to a box what cells begin from, where the cell that they begin from did not end on it.

It comes from the verified copy in the evidence, and lies beside the checkpoints of the cell until the runner has laid
it into them (`onbox/begin`), which compares each byte again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sweepstack.core.journal import Journal
from sweepstack.evidence.cell_store import find_seal
from sweepstack.evidence.manifest import MANIFEST, manifest_digest, parse_manifest
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.entries import finished
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import file_sha256
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceMissing, NotAFile
from sweepstack.onbox.common.longer import FROM, sent_name
from sweepstack.onbox.common.next_version import checkpoint_name, work_of
from sweepstack.onbox.common.units import spell_bytes


def bring(
    identity: str,
    lines: Iterable[Mapping[str, Any]],
    channel: Channel,
    store: EvidenceStore,
    journal: Journal,
    progress: Callable[[str], None],
) -> None:
    """Sends what the cells of these lines of a queue begin from, unless they have a checkpoint, or the box has it.

    Idempotent: what was sent is there whole. Blocks while it is copied. Raises EvidenceMissing or EvidenceDamaged where
    the evidence does not have it, Unreachable.
    """
    for line in lines:
        cell, begins = str(line["cell"]), line[FROM]
        folder = f"{box_layout.DURABLE}/{box_layout.checkpoints_dir(identity, cell)}"
        salt = int(line.get("salt", 0))
        own = line.get("folder") or checkpoint_name(str(line["config_digest"]), work_of(line, salt))
        known = journal.cells.get(cell)
        if finished(known, int(line.get("retry", 0))) or _holds(channel, f"{folder}/{own}"):
            continue
        # A cell that could not begin from the copy on the box is sent another one.
        refused = known is not None and known.state == "failed"
        if refused or not _is_there(channel, identity, str(begins["cell"]), str(begins["manifest"])):
            _send(identity, begins, f"{folder}/{sent_name(begins['manifest'])}", channel, store, progress)


def _send(
    identity: str,
    begins: Mapping[str, str],
    target: str,
    channel: Channel,
    store: EvidenceStore,
    progress: Callable[[str], None],
) -> None:
    source, digest = begins["cell"], begins["manifest"]
    found = find_seal(store.copies, source, digest)
    if found is None:
        raise EvidenceMissing(f"{store.shown} has no copy of {source} with the manifest {digest}: pull and verify it")
    place, name, data = found
    files = [file for file in parse_manifest(data, identity, source).files if file.role == "artifact"]
    local = place.here(name, files)
    for file in files:
        if file_sha256(Path(local[file.path])) != file.sha256:
            raise EvidenceDamaged(f"{place.shown(name)}: {file.path} is not what was sealed, and is not sent")
    progress(f"sending {source}, {spell_bytes(sum(file.size for file in files))}, to begin from")
    with tempfile.TemporaryDirectory(prefix="sweepstack-from-") as temporary:
        manifest = Path(temporary) / MANIFEST
        manifest.write_bytes(data)
        tree = [(file.path, Path(local[file.path]), 0o644) for file in files]
        channel.put_tree([(MANIFEST, manifest, 0o644), *tree], target)


def _is_there(channel: Channel, identity: str, cell: str, manifest: str) -> bool:
    """Whether the box has the sealed copy, by its manifest."""
    try:
        data = channel.read(f"{box_layout.DURABLE}/{box_layout.sealed_dir(identity, cell)}/{MANIFEST}")
    except (FileNotFoundError, NotAFile, NotADirectoryError):
        return False
    return manifest_digest(data) == manifest


def _holds(channel: Channel, folder: str) -> bool:
    try:
        return bool(channel.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False
