"""Whether pulled copies are still what a receipt says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sweepstack.core.printable import printable
from sweepstack.core.records import Receipt, ReceiptCell
from sweepstack.evidence.cell_store import Folder, each
from sweepstack.evidence.file_index import read_index
from sweepstack.evidence.manifest import MANIFEST
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.errors import EvidenceError

BARE_HEX = re.compile(r"[0-9a-f]{64}")


def check_files(store: EvidenceStore, receipt: Receipt, cells: Iterable[str], *, full: bool) -> list[str]:
    """Why the pulled copies of `cells` are not what the receipt says; empty when they are.

    `full` proves every file again. Otherwise size and mtime decide, by an index written when verifying; a file of
    which the index knows nothing, or whose mtime moved, is read. Changes nothing.
    """
    return [problem for problems in check_cells(store, receipt, cells, full=full).values() for problem in problems]


def check_cells(store: EvidenceStore, receipt: Receipt, cells: Iterable[str], *, full: bool) -> dict[str, list[str]]:
    """The same by cell; an empty list for one whose copy is what the receipt says. Reads the index once."""
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
        self.cells = {cell.name: cell for cell in receipt.cells if cell.has_result}
        self._copies = store.copies
        self._full = full
        self._states = {cell.name: cell.state for cell in receipt.cells}
        self._index = read_index(store.objects, receipt)
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
        digests: list[tuple[str, str, int | None]] = [(MANIFEST, hex_of(cell.manifest), None)]
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
