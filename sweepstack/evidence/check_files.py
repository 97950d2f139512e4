"""Whether pulled copies are still what a receipt says, and the index that spares reading them for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sweepstack.core.records import Receipt, ReceiptCell
from sweepstack.evidence import location
from sweepstack.evidence.cell_store import Folder, Known, each
from sweepstack.evidence.manifest import MANIFEST
from sweepstack.loaders.base import printable
from sweepstack.onbox.common.canonical import DIGEST_PREFIX, canonical_json
from sweepstack.onbox.common.errors import EvidenceError

if TYPE_CHECKING:
    from sweepstack.evidence.store import EvidenceStore

BARE_HEX = re.compile(r"[0-9a-f]{64}")


def write_index(store: EvidenceStore, receipt_digest: str, seen: dict[str, Known]) -> None:
    """Remembers size, stamp and SHA-256 of files (`<cell>/<path>`) as they were when the receipt was made."""
    index = {"schema": 1, "receipt": receipt_digest, "files": {path: list(facts) for path, facts in seen.items()}}
    store.shelf.write(_index_key(receipt_digest), canonical_json(index) + b"\n")


def check_files(store: EvidenceStore, receipt: Receipt, cells: Iterable[str], *, full: bool) -> list[str]:
    """See EvidenceStore.check_files."""
    return [problem for problems in check_cells(store, receipt, cells, full=full).values() for problem in problems]


def check_cells(store: EvidenceStore, receipt: Receipt, cells: Iterable[str], *, full: bool) -> dict[str, list[str]]:
    """See EvidenceStore.check_cells."""
    check = FileCheck(store, receipt, full=full)
    names = list(dict.fromkeys(cells))
    check.look_ahead(names)
    found = zip(names, each(store.copies, check.cell, names), strict=True)
    return {
        name: [f"{name}: {problem}" if name in check.cells else problem for problem in problems]
        for name, problems in found
    }


class FileCheck:
    """Compares pulled copies with one receipt, cell by cell. Reads the index once."""

    def __init__(self, store: EvidenceStore, receipt: Receipt, *, full: bool) -> None:
        self.cells = {cell.name: cell for cell in receipt.cells if cell.state == "verified"}
        self._copies = store.copies
        self._full = full
        self._states = {cell.name: cell.state for cell in receipt.cells}
        self._index = read_index(store, receipt)
        self._looked: dict[str, Folder] = {}

    def look_ahead(self, names: Iterable[str]) -> None:
        """Lists many copies at once, where that is quicker than one by one. Each counts for one `cell`."""
        if self._copies.parallel > 1:
            wanted = {name: self.cells[name].manifest for name in names if name in self.cells}
            try:
                self._looked = self._copies.look_all(wanted)
            except EvidenceError:
                self._looked = {}  # each cell says so by itself

    def cell(self, name: str) -> list[str]:
        """Why a cell's copy is not what the receipt says; empty when it is."""
        cell = self.cells.get(name)
        if cell is None:
            return [f"{name} is {self._states.get(name, 'not')} in the receipt"]
        return [] if self._untouched(cell) else list(self._problems(cell))

    def _untouched(self, cell: ReceiptCell) -> bool:
        """Whether all of the copy is as the index has it, and the index is what the receipt says."""
        if self._full or cell.manifest is None:
            return False
        expected = {}
        digests: list[tuple[str, str, int | None]] = [(MANIFEST, cell.manifest.removeprefix(DIGEST_PREFIX), None)]
        digests += [(file.path, file.sha256, file.size) for file in cell.files]
        for path, sha256, size in digests:
            known = self._index.get(f"{cell.name}/{path}")
            if known is None or known[2] != sha256 or len(sha256) != 64 or size not in (None, known[0]):
                return False
            expected[path] = (known[0], known[1])
        try:
            return self._copies.untouched(cell.name, expected)
        except EvidenceError:
            return False

    def _problems(self, cell: ReceiptCell) -> Iterator[str]:
        copies = self._copies
        try:
            folder = self._looked.pop(cell.name, None) or copies.look(cell.name, cell.manifest)
            if not folder.exists:
                yield f"its pulled copy {copies.shown(cell.name)} is not there any more"
                return
            yield from folder.problems
            expected = {file.path for file in cell.files} | {MANIFEST}
            for path in sorted(folder.files.keys() - expected):
                yield f"{printable(path)} was not there when the receipt was made"
            facts = folder.files.get(MANIFEST)
            known = self._index.get(f"{cell.name}/{MANIFEST}")
            if facts is None or not copies.manifest_is(cell.name, cell.manifest, facts, known, full=self._full):
                yield f"{MANIFEST} changed after the receipt"
            for file in cell.files:
                facts = folder.files.get(file.path)
                if facts is None:
                    yield f"{file.path} is not there any more"
                elif facts[0] != file.size:
                    yield f"{file.path} has {facts[0]:,} bytes, not {file.size:,}"
                elif not BARE_HEX.fullmatch(file.sha256):
                    yield f"the receipt holds no digest of {file.path}"
                else:
                    known = self._index.get(f"{cell.name}/{file.path}")
                    if not copies.unchanged(cell.name, file, facts, known, full=self._full):
                        yield f"{file.path} changed after the receipt"
        except OSError as error:
            yield f"its pulled copy can't be read: {error.strerror}"
        except EvidenceError as error:
            yield f"its pulled copy can't be read: {error}"


def read_index(store: EvidenceStore, receipt: Receipt) -> dict[str, Known]:
    """The index of this receipt, or nothing when it does not read: then files are read, which is slow and right."""
    digest = receipt.digest
    try:
        held = store.shelf.read(_index_key(digest))
        found = json.loads(held.data) if held else None
        if found is None or found["receipt"] != digest:
            return {}
        return {
            str(path): (int(size), tuple(map(str, stamp)) if isinstance(stamp, list) else int(stamp), str(sha))
            for path, (size, stamp, sha) in found["files"].items()
        }
    except (EvidenceError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _index_key(receipt_digest: str) -> str:
    return f"{location.RECORDS}/files-{receipt_digest.removeprefix(DIGEST_PREFIX)}.json"
