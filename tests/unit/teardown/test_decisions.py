"""The decisions that are kept on this computer."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.local_decisions import Decision, decisions, decisions_file, record_decision
from sweepstack.onbox.common.errors import SweepstackError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def decision(native_id: str = "local-a", **more: Any) -> Decision:
    known = {"what": "abandoned", "by": "me@here", "at": datetime(2026, 11, 22, tzinfo=UTC), "reason": "a test"}
    return Decision.model_validate(known | {"platform": "local", "native_id": native_id} | more)


def test_what_was_recorded_is_read_back_in_order(home: Path) -> None:
    assert decisions() == []
    first, other = decision(box="box-0", stack="s", identity="i"), decision("local-b")
    assert record_decision(first) == record_decision(other) == home / "sweepstack" / "decisions.jsonl"
    assert decisions() == [first, other]
    assert decisions("local-b") == [other]
    assert [json.loads(line)["schema"] for line in decisions_file().read_text().splitlines()] == [1, 1]
    assert decisions_file().stat().st_mode & 0o777 == 0o600


def test_half_a_line_and_a_newer_version_s_line_cost_no_other_line() -> None:
    record_decision(decision("local-a"))
    with decisions_file().open("ab") as handle:
        handle.write(decision("local-b").line().replace(b"{", b'{"later":1,', 1) + b'{"what":"aband')
    record_decision(decision("local-c"))
    assert [found.native_id for found in decisions()] == ["local-a", "local-b", "local-c"]


def test_two_at_once_are_both_there() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: record_decision(decision(f"local-{n}")), range(40)))
    assert {found.native_id for found in decisions()} == {f"local-{n}" for n in range(40)}


def test_a_full_disk_leaves_no_part_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    record_decision(decision("local-a"))
    before, write = decisions_file().read_bytes(), os.write

    def full(handle: int, data: bytes) -> int:
        return write(handle, data[:20])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SweepstackError, match="could not be recorded"):
        record_decision(decision("local-b"))
    assert decisions_file().read_bytes() == before


def test_a_place_that_can_t_be_written_or_read_is_said(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "file"))
    with pytest.raises(SweepstackError, match=os.strerror(errno.ENOTDIR)):
        record_decision(decision())
    with pytest.raises(SweepstackError, match=os.strerror(errno.ENOTDIR)):
        decisions()
