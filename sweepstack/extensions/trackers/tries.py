"""The tries of cells whose trackers' files a pull brought, in the order in which they ran."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.unsealed import UNSEALED, CopiedAttempt, UnsealedOfBox, read_attempt_copy
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.operations.sweep.cell_file import PulledCopy, pulled_copy
from sweepstack.operations.sweep.sources import Sources

CHUNK = 1 << 22
OUT = "out/"
"""What stands before a path below `{out}` in the copy of a try without a seal."""
Read = Callable[[], Iterator[bytes]]
"""Reads a file, in parts. Raises EvidenceError, OSError."""


@dataclass(frozen=True)
class Try:
    """One try of a cell. `key`: the same for the same content. `files`: path below the tracker's folder → its read."""

    cell: str
    key: str
    sealed: bool
    files: Mapping[str, Read]

    def copy_to(self, there: Path) -> None:
        """Copies its files. Raises EvidenceError, OSError."""
        for path, read in self.files.items():
            if ".." in Path(path).parts or os.path.isabs(path):
                continue
            target = there / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as out:
                for part in read():
                    out.write(part)


def unsent(sources: Sources, cells: Collection[str], folder: str, sent: Callable[[str], bool]) -> list[Try]:
    """The tries of these cells that have files below `folder` of `{out}`, and that come after the last one of their
    cell that was sent; those of a cell in the order in which they ran. Raises EvidenceError."""
    store = sources.store
    if store is None:
        return []
    left: dict[str, list[CopiedAttempt]] = {}
    for one in store.records(UNSEALED, UnsealedOfBox):
        for attempt in one.attempts:
            left.setdefault(attempt.cell, []).append(CopiedAttempt(one.box, one.generation, attempt))
    found: list[Try] = []
    for cell in cells:
        own = sorted(left.get(cell, ()), key=lambda one: (one.generation, one.attempt.attempt, one.box))
        tries = _of_cell(store, cell, own, pulled_copy(sources, cell)[0], f"{folder}/")
        begins = max((number + 1 for number, one in enumerate(tries) if sent(one.key)), default=0)
        found += tries[begins:]
    return found


def _of_cell(
    store: EvidenceStore, cell: str, left: list[CopiedAttempt], copy: PulledCopy | None, folder: str
) -> list[Try]:
    """The sealed try comes last; after it, only later ones of the same box."""
    before = [_unsealed(store, one, folder) for one in left if copy is None or not _is_later(one, copy)]
    after = [_unsealed(store, one, folder) for one in left if copy is not None and _is_later(one, copy)]
    sealed = [] if copy is None else [_sealed(copy, folder)]
    return [one for one in (*before, *sealed, *after) if one.files]


def _is_later(one: CopiedAttempt, copy: PulledCopy) -> bool:
    made = copy.manifest
    return (one.box, one.generation) == (made.box, made.generation) and one.attempt.attempt > made.attempt


def _unsealed(store: EvidenceStore, one: CopiedAttempt, folder: str) -> Try:
    """Only what was copied whole."""
    files = [file for file in one.attempt.files if file.path.startswith(OUT + folder) and not file.start]
    key = digest_of([one.box, one.generation, one.attempt.attempt, [[file.path, file.sha256] for file in files]])
    reads = {file.path[len(OUT + folder) :]: partial(_whole, store, one, file.path) for file in files}
    return Try(one.attempt.cell, key, False, reads)


def _sealed(copy: PulledCopy, folder: str) -> Try:
    files = [file for file in copy.manifest.files if file.path.startswith(folder)]
    key = digest_of([copy.manifest.attempt, [[file.path, file.sha256] for file in files]])
    return Try(copy.cell, key, True, {file.path[len(folder) :]: partial(_parts, copy, file.path) for file in files})


def _whole(store: EvidenceStore, one: CopiedAttempt, path: str) -> Iterator[bytes]:
    data = read_attempt_copy(store, one, path)
    if data is None:
        raise EvidenceError(f"{path} of {one.attempt.cell} is not in the evidence")
    yield data


def _parts(copy: PulledCopy, path: str) -> Iterator[bytes]:
    offset = 0
    while data := copy.copies.read(copy.cell, path, offset, CHUNK):
        yield data
        offset += len(data)
