"""What `verify` saw of each file (size, time, digest), so that a check need not read it again."""

from __future__ import annotations

import json

from sweepstack.core.records import Receipt
from sweepstack.evidence import location
from sweepstack.evidence.cell_store import Known
from sweepstack.evidence.object_store import ObjectStore
from sweepstack.onbox.common.canonical import canonical_json, hex_of
from sweepstack.onbox.common.errors import EvidenceError


def write_index(objects: ObjectStore, receipt_digest: str, seen: dict[str, Known]) -> None:
    """Remembers size, stamp and SHA-256 of files (`<cell>/<path>`) as they were when the receipt was made."""
    index = {"schema": 1, "receipt": receipt_digest, "files": {path: list(facts) for path, facts in seen.items()}}
    objects.write(_index_key(receipt_digest), canonical_json(index) + b"\n")


def read_index(objects: ObjectStore, receipt: Receipt) -> dict[str, Known]:
    """The index of this receipt, or nothing when it does not read: then files are read, which is slow and right."""
    digest = receipt.digest
    try:
        held = objects.read(_index_key(digest))
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
    return f"{location.RECORDS}/files-{hex_of(receipt_digest)}.json"
