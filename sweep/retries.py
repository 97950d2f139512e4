"""What a person asked to run again, on record in the evidence: the next `pulumi up` brings it to the queues."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.errors import EvidenceChanged
from sweep.evidence.store import EvidenceStore
from sweep.model import Retries, Retry

RECORD = "retries.json"
_TRIES = 10


def on_record(store: EvidenceStore) -> dict[str, Retry]:
    """The last retry that was asked for of each cell; empty while nobody did."""
    record = store.record(RECORD, Retries)
    return dict(record.cells) if record else {}


def add(store: EvidenceStore, retries: Mapping[str, Retry]) -> None:
    """Adds to those on record, and replaces those of the same cells. Two people at once lose nothing."""
    for left in reversed(range(_TRIES)):
        try:
            store.write_record(RECORD, Retries(cells=on_record(store) | dict(retries)))
            return
        except EvidenceChanged:
            if not left:
                raise
