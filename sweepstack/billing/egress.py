"""What the bytes of a pull cost where the platform bills them: USD per GB × sizes on record.

An estimate, which the ledger does not count: what a platform meters is known to it alone, also what the job itself
sends and fetches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sweepstack.core.journal import Journal
from sweepstack.core.records import Birth, Receipt
from sweepstack.onbox.common.dataclass import dataclass

GB = 1e9


@dataclass(frozen=True)
class Egress:
    """Bytes that leave a box, or left it. `per_gb`: USD, None where they are billed at a price that is not known."""

    box: str
    native_id: str
    bytes: int
    per_gb: float | None

    @property
    def usd(self) -> float | None:
        """None where the price is not known."""
        return None if self.per_gb is None else self.bytes / GB * self.per_gb

    def as_json(self) -> dict[str, Any]:
        """With names that stay."""
        known = {"box": self.box, "native_id": self.native_id, "bytes": self.bytes}
        return known | {"per_gb": self.per_gb, "usd": None if self.usd is None else round(self.usd, 6)}


def egress_words(count: float, per_gb: float | None) -> str:
    """`about $0.06 at $0.02/GB`, for so many bytes; `at a price that is not known`."""
    if per_gb is None:
        return "at a price that is not known"
    usd = count / GB * per_gb
    return f"about {'less than $0.01' if 0 < usd < 0.005 else f'${usd:.2f}'} at ${per_gb:g}/GB"


def sealed_besides(journal: Journal, without: frozenset[str]) -> tuple[int, int]:
    """How many cells of a box are sealed that are not in `without`, and their bytes, by its journal."""
    sizes = {
        str(entry["cell"]): int(entry["bytes"])
        for entry in journal.entries
        if entry["event"] == "cell-sealed" and isinstance(entry.get("bytes"), int) and entry["cell"] not in without
    }
    return len(sizes), sum(sizes.values())


def copied(receipt: Receipt, births: Iterable[Birth], prices: Mapping[str, float | None]) -> list[Egress]:
    """What left each box for the cells that the receipt verified. `prices`: native id → USD per GB, of those boxes
    alone whose bytes are billed. A copy that was made twice counts once."""
    sizes: dict[tuple[str, int], int] = {}
    for cell in receipt.cells:
        if cell.has_result and cell.box is not None and cell.generation is not None:
            key = (cell.box, cell.generation)
            sizes[key] = sizes.get(key, 0) + sum(file.size for file in cell.files)
    known = {(one.box, one.generation): one.native_id for one in births if one.native_id in prices}
    return [
        Egress(key[0], native_id, size, prices[native_id])
        for key, size in sorted(sizes.items())
        if (native_id := known.get(key)) is not None
    ]
