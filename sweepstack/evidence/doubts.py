"""What verify notices across several cells: worth a person's look, no mistake of one cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweepstack.core.records import Cell, ReceiptCell
from sweepstack.evidence.seal_resolution import SweepJournals
from sweepstack.loaders.base import some
from sweepstack.onbox.common.canonical import canonical_json

if TYPE_CHECKING:
    from sweepstack.core.roster import Roster

WEIGHTS = ("torch", "safetensors", "npz", "npy")
"""Loaders of files that hold what a training run ends with."""


def doubts(cells: Sequence[ReceiptCell], roster: Roster, journals: SweepJournals) -> list[str]:
    """A sentence for each doubt."""
    return [*_same_weights(cells, roster), *_sealed_twice(cells, journals)]


def _same_weights(cells: Sequence[ReceiptCell], roster: Roster) -> list[str]:
    """Cells of different parameters all of whose weights are the same: one that is the same beside others that differ
    is a split or a frozen part, and cells of the same parameters repeat each other on purpose."""
    same = defaultdict(list)
    for cell in cells:
        weights = _weights(cell)
        if weights and cell.state == "verified":
            same[tuple(sorted(weights.values()))].append(cell.name)  # a file may have another name in each cell
    known = {cell.name: cell for cell in roster.cells}
    said = {cell.name: cell for cell in cells}
    found = []
    for names in sorted(names for names in same.values() if len(names) > 1):
        differing = some(_differing([known[name] for name in names]))
        if differing:
            files = some(sorted(_weights(said[names[0]])))
            found.append(
                f"the same {files}, byte for byte, in {some(names)}, whose {differing} differ: does the job use it?"
            )
    return found


def _weights(cell: ReceiptCell) -> dict[str, str]:
    return {f.path: f.sha256 for f in cell.files if f.role == "artifact" and f.loader in WEIGHTS}


def _differing(cells: Sequence[Cell]) -> list[str]:
    keys = sorted({key for cell in cells for key in cell.params})
    return [key for key in keys if len({canonical_json(cell.params.get(key)) for cell in cells}) > 1]


def _sealed_twice(cells: Sequence[ReceiptCell], journals: SweepJournals) -> list[str]:
    """Cells of which another box of the sweep has a result of its own, which ends with that box."""
    found = []
    for cell in cells:
        said = [(box, one) for box in journals.boxes if (one := box.journal.cells.get(cell.name))]
        if cell.state != "verified" or len(said) < 2:
            continue
        ours = max((one.retry for _, one in said if one.manifest == cell.manifest), default=0)
        others = [
            box.name
            for box, one in said
            if box.live and one.state == "sealed" and one.manifest != cell.manifest and one.retry >= ours
        ]
        if others:
            found.append(f"{cell.name}: {some(others)} sealed it, too; the copy here is that of {cell.box}")
    return found
