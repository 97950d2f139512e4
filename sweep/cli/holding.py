"""Which backend the engine works with here, and whether another one holds the sweep."""

from __future__ import annotations

from pathlib import Path

from sweep.backends import named, same
from sweep.errors import SweepstackError
from sweep.evidence.store import EvidenceStore
from sweep.state import backend_url


def backend_of(root: Path) -> str:
    """The name of that backend. Raises SweepstackError."""
    return named(backend_url(root))


def held_by_another(store: EvidenceStore | None, root: Path) -> bool:
    """Whether an `up` here would be refused, as another backend holds the sweep. No where that is not known."""
    try:
        lease = store.lease() if store is not None else None
        return lease is not None and not same(lease.backend, backend_of(root))
    except SweepstackError:
        return False
