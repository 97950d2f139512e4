"""What adapters share when they rent: which box of a list counts, and one offer after another."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.errors import NoCapacity, PlatformError, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.common.box_session import BoxSession, Listed, Names, Row, first_of
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver
from sweepstack.platforms.common.http_client import HttpClient, Refusals
from sweepstack.platforms.common.renting import Try, first_granted
from sweepstack.platforms.common.tag_lock import hold_tag_lock

NAMES = Names("Some Cloud", "some_cloud", "machines")
REQUEST = BoxRequest(tag="t", name="box-0")


def record(native_id: str, day: int = 1, phase: Phase = Phase.RUNNING) -> BoxRecord:
    return BoxRecord(native_id, "t", "ann", phase, 1.0, datetime(2026, 11, day, tzinfo=UTC), f"Some Cloud, {native_id}")


def test_a_list_with_an_entry_that_has_no_id_proves_no_absence() -> None:
    listed = Listed.of(NAMES, [{"id": "b"}, {"id": 7}, {"id": "a"}])
    with pytest.raises(Unreachable, match="1 of Some Cloud's machines can't be read"):
        listed.must_be_whole("t")
    shown = listed.tagged([record("b"), record("a")], "", "ann")
    assert [(one.native_id, one.phase) for one in shown][::2] == [("a", Phase.RUNNING), ("", Phase.UNKNOWN)]
    Listed.of(NAMES, [{"id": "a"}]).must_be_whole("t")


def test_of_several_the_one_on_record_counts_then_the_oldest_and_one_that_ends_is_the_last() -> None:
    found = [record("new", 3), record("old", 2), record("ends", 1, Phase.ENDING)]
    assert first_of(found, "new", NAMES).native_id == "new"
    first = first_of(found, "", NAMES)
    assert first.native_id == "old"
    assert first.note.startswith("2 machines carry this tag, and new may bill beside it")
    assert first.note.endswith("sweepctl audit --end some_cloud:new")


def test_a_refusal_proves_that_nothing_was_made_and_the_next_offer_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    told: list[bool] = []

    def late() -> BoxRecord:
        raise DeadlineOver("not within 60 s")

    full = Try("a", "it for a", lambda: NoCapacity("no a left"))
    with hold_tag_lock("some_cloud", "ann", "t", Wait(60), told.append) as memory:
        rent = partial(
            first_granted, look=lambda: None, request=REQUEST, wait=Wait(60), deadline=Deadline(60), memory=memory
        )
        assert rent([full, Try("b", "it for b", lambda: record("b"))], refusals=[]).native_id == "b"
        assert told == [True, False, True], "what was refused is told before the next request"
        with pytest.raises(NoCapacity, match="z: taken\n  a: no a left"):
            rent([full], refusals=["z: taken"])
        with pytest.raises(NoCapacity, match="a: no a left\n  no other offer was asked for: not within 60 s"):
            rent([full, Try("b", "it for b", late)], refusals=[])
        with pytest.raises(PlatformError, match="nothing was rented: not within 60 s\nz: taken") as caught:
            rent([Try("b", "it for b", late)], refusals=["z: taken"])
        assert type(caught.value) is PlatformError, "where nothing was refused, nothing is known of the market"
        assert told[-1] is False


class Cloud(BoxSession):
    """A platform whose key is asked whose it is, and never answers in time."""

    names, form, path, no_such_thing = NAMES, re.compile("[a-z]+"), "/machines", "NONE"
    refusals = Refusals(lambda answer: "", ())

    def account(self) -> str:
        return "ann"

    def must_reach(self, account: str, what: str, *, absent: bool) -> None:
        raise DeadlineOver("whose key it is would take 9 s more")

    def rows(self) -> list[Any]:
        return []

    def record_of(self, row: Row, account: str, *, ending: bool) -> BoxRecord:
        return record(str(row["id"]))

    def carries(self, row: Row, tag: str) -> bool:
        return True


def test_a_box_that_was_never_looked_at_is_not_called_gone() -> None:
    cloud = Cloud(HttpClient("Some Cloud", "http://127.0.0.1:1", "", key_hint="SOME_KEY"))
    assert cloud.watched("a", "ann", Phase.GONE, 0.05, 0.01).phase is Phase.UNKNOWN
