"""`Evidence` opens a place once, when it is first asked for, and does not keep a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError


def test_it_is_opened_once_and_a_failure_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    found = EvidenceStore.__new__(EvidenceStore)

    def open_(uri: str) -> EvidenceStore:
        opened.append(uri)
        if len(opened) == 1:
            raise EvidenceError("its disk is not mounted")
        return found

    monkeypatch.setattr(EvidenceStore, "open", open_)
    evidence = Evidence(str(tmp_path))
    assert not opened, "making it opens nothing"
    assert evidence.usable is None
    assert evidence.store is found
    assert evidence.store is evidence.usable is found
    assert opened == [str(tmp_path)] * 2, "a failure is tried again, and what is open is kept"
