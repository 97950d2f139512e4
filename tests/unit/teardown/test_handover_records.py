"""The record of an end that is not ours to finish, on a computer whose disk takes nothing any more."""

from __future__ import annotations

import errno
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceMissing
from sweepstack.teardown.handover_records import (
    Handover,
    begun_before,
    forget_handover,
    handover_of,
    keep_handover,
    kept_here,
)

KNOWN = Handover(
    box="box-0",
    native_id="host-aaaaaaaaaa",
    verb="destroy",
    by="person",
    native="terminate",
    way="abandoned",
    begun_at=datetime(2026, 11, 22, 9, tzinfo=UTC),
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EvidenceStore:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    uri = f"file://{socket.gethostname()}{tmp_path}/evidence"
    return EvidenceStore.found(uri, "abcdefghjk", "project", "sweep-t")


def read_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only file system says so even of what is not there."""
    honest = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if folder in path.parents:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        honest(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)


def test_where_this_computer_keeps_none_its_disk_is_not_in_the_way(
    store: EvidenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only(tmp_path / "data", monkeypatch)
    keep_handover(store, KNOWN)
    assert handover_of(store, KNOWN.native_id) == KNOWN
    forget_handover(store, KNOWN.native_id)
    assert handover_of(store, KNOWN.native_id) is None


def test_one_that_would_go_on_to_count_is_named(
    store: EvidenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_handover(None, KNOWN)
    assert kept_here(KNOWN.native_id) == handover_of(store, KNOWN.native_id) == KNOWN
    read_only(tmp_path / "data", monkeypatch)
    for call in (
        lambda: keep_handover(store, KNOWN.model_copy(update={"ended_at": KNOWN.begun_at})),
        lambda: forget_handover(store, KNOWN.native_id),
    ):
        with pytest.raises(
            EvidenceMissing, match=r"host-aaaaaaaaaa.json .* can't be taken away: Read-only file system"
        ):
            call()


def test_only_an_end_by_a_person_s_word_goes_on_where_its_record_can_t_be_read_or_written(
    store: EvidenceStore, tmp_path: Path
) -> None:
    """A cleared box whose handover is not known may have ended: it is not begun a second time."""
    keep_handover(store, KNOWN)
    (path,) = (tmp_path / "evidence/records").rglob(f"*{KNOWN.native_id}*")
    path.write_bytes(b"{")
    with pytest.raises(EvidenceDamaged):
        begun_before(store, KNOWN.native_id, "cleared")
    assert begun_before(store, KNOWN.native_id, "abandoned") is None
    with pytest.raises(EvidenceMissing):
        keep_handover(None, KNOWN.model_copy(update={"way": "cleared"}))
    assert kept_here(KNOWN.native_id) is None


def test_what_is_kept_nowhere_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(EvidenceMissing, match=r"host-aaaaaaaaaa.json could not be written"):
        keep_handover(None, KNOWN)


def test_what_is_left_for_a_person_says_how_far_it_is_proved() -> None:
    assert KNOWN.rented_on == "its host could not be asked; it bills on until a person does this (terminate): end it"
    ended = KNOWN.model_copy(update={"ended_at": KNOWN.begun_at})
    assert ended.rented_on.startswith("nothing of it is left on its host; it bills on until")
    asked = KNOWN.model_copy(update={"by": "ssh"})
    assert asked.rented_on == "terminate was asked for, and that it took effect is not proved"
