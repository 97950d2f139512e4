"""The evidence at one place, opened when it is first asked for."""

from __future__ import annotations

from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError


class Evidence:
    """Made by an entry and passed on, so that one command opens the evidence once. Nothing is read before `store`.

    A failure is not kept: the next use tries again. `uri` is "" where no evidence is known.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._store: EvidenceStore | None = None

    @property
    def store(self) -> EvidenceStore:
        """The open evidence. Raises as `EvidenceStore.open`."""
        if self._store is None:
            self._store = EvidenceStore.open(self.uri)
        return self._store

    @property
    def usable(self) -> EvidenceStore | None:
        """The same; None where it can't be opened."""
        try:
            return self.store
        except EvidenceError:
            return None
