"""The retries that people asked for; the next `pulumi up` brings them to the queues."""

from __future__ import annotations

from collections.abc import Mapping

from sweepstack.core.retry_records import Retries, Retry
from sweepstack.evidence.store import EvidenceStore

RECORD = "retries.json"


def on_record(store: EvidenceStore) -> dict[str, Retry]:
    """The last retry that was asked for of each cell; empty where there was none."""
    record = store.record(RECORD, Retries)
    return dict(record.cells) if record else {}


def add(store: EvidenceStore, retries: Mapping[str, Retry]) -> None:
    """Adds to those on record, and replaces those of the same cells. Two people at once lose nothing."""
    store.update_record(RECORD, Retries, lambda record: Retries(cells=(record.cells if record else {}) | dict(retries)))
