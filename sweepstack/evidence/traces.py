"""What copied journals and receipts say of boxes and cells when the folder `records` is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sweepstack.core.records import Receipt
from sweepstack.evidence import location
from sweepstack.evidence.check_files import check_files
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import DIGEST_PREFIX
from sweepstack.onbox.common.errors import EvidenceError

_JOURNAL = re.compile(r"(.+)-g([0-9]+)\.jsonl")


def receipts(store: EvidenceStore) -> Iterator[Receipt]:
    """All receipts that read. Raises EvidenceError where the place does not answer."""
    for name in sorted(store.objects.names(location.RECEIPTS)):
        try:
            yield store.receipt(DIGEST_PREFIX + name.removesuffix(".json"))
        except EvidenceError:
            continue


def generations(store: EvidenceStore) -> dict[str, int]:
    """Box → its last generation of which a journal was copied, or that a receipt names. Asks no birth record.

    Raises EvidenceError where the place does not answer.
    """
    found: dict[str, int] = {}
    copied = [match for name in store.objects.names(location.JOURNALS) if (match := _JOURNAL.fullmatch(name))]
    seen = [(match[1], int(match[2])) for match in copied]
    seen += [(one.box, one.generation) for receipt in receipts(store) for one in receipt.boxes]
    for box, generation in seen:
        found[box] = max(generation, found.get(box, 0))
    return found


def finished_by(store: EvidenceStore, roster_digest: str) -> str:
    """The digest of a receipt that calls every cell of this roster verified, and whose copies are whole; "" where there
    is none. Reads files that no index knows. Raises EvidenceError where the place does not answer."""
    for receipt in receipts(store):
        if receipt.roster_digest != roster_digest or receipt.verified != receipt.total:
            continue
        if not check_files(store, receipt, [cell.name for cell in receipt.cells], full=False):
            return receipt.digest
    return ""
