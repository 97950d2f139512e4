"""Finds what was started on a box by its records and by itself, or proves that nothing was.

One record may be lost, restored from a backup, or written by another backend over a copy of the same evidence. So no
single record is believed that says "nothing": all of them have to say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sweepstack.core.journal import Journal
from sweepstack.core.records import Launch
from sweepstack.evidence.cell_store import each
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import GENESIS
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged


def unnamed_cells(journal: Journal | None, launch: Launch | None, receipt: Collection[str] = ()) -> list[str]:
    """Cells that the box's own journal knows as started and that neither the launch record nor the receipt (its cells)
    names. Cells that a person dropped are in neither, and are left out."""
    known = {*receipt, *(launch.cells if launch else ()), *(launch.dropped if launch else ())}
    cells = journal.cells if journal is not None else {}
    started = (n for n, cell in cells.items() if cell.config_digest is not None and cell.state != "dropped")
    return sorted(name for name in started if name not in known)


def signs_of_a_launch(store: EvidenceStore, box: str, generation: int, native_id: str) -> list[str]:
    """What in the evidence contradicts "nothing was launched on this box"; empty if all of it agrees.

    Reads the copy of its journal, launch records under any name, receipts, and the manifests of pulled cells. What
    can't be read is a sign, too. Reads every manifest, so it is called only for a box that is to end without a receipt.
    """
    return list(_signs(store, box, generation, native_id))


def _signs(store: EvidenceStore, box: str, generation: int, native_id: str) -> Iterator[str]:
    try:
        copied = store.journal(box, generation)
        if copied is not None and copied.head != GENESIS:
            yield f"the evidence holds a copy of its journal with {len(copied.entries)} entries"
        for launch in store.launches():
            if launch.native_id == native_id:
                yield f"a launch record of {launch.box} (generation {launch.generation}) names {native_id}"
        for digest in store.receipts_naming(native_id):
            receipt = store.receipt(digest)
            ours = [entry for entry in receipt.boxes if entry.native_id == native_id]
            if any(entry.cells or entry.journal_head != GENESIS for entry in ours):
                yield f"the receipt {digest} says that cells ran on {native_id}"
                break
        pulled = store.copies.cells()
        for name, data in zip(pulled, each(store.copies, store.copies.manifest, pulled), strict=True):
            if native_id.encode() in (data or b""):
                yield f"the pulled copy of {name} was sealed on {native_id}"
                break
    except JournalDamaged as error:
        yield f"the evidence holds a copy of its journal that can't be read ({error})"
    except (EvidenceError, OSError) as error:
        yield f"the evidence can't all be read: {error}"


def copied_journal(store: EvidenceStore | None, box: str, generation: int) -> Journal | None:
    """The last kept copy of a box's journal; None if there is none that can be read."""
    if store is None:
        return None
    try:
        return store.journal(box, generation)
    except (EvidenceError, JournalDamaged):
        return None
