"""What one command leaves for the next of the same tag: believed, asked after, and never guessed at."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.platforms.common import tag_lock
from sweepstack.platforms.common.rate_limit import PACE_VARIABLE
from sweepstack.platforms.common.tag_lock import Memory, Unanswered

TAG = "sweepstack-a1b2c3-box-0-g1"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PACE_VARIABLE, "0.01")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "0123.json"


def memory(path: Path, wait: Wait | None = None) -> Memory:
    return Memory(path, "acme", TAG, wait or Wait(20), first=False)


def box(native_id: str = "b-1", tag: str = TAG, phase: Phase = Phase.RUNNING) -> BoxRecord:
    return BoxRecord(native_id, tag, "me", phase, 0.5, None, "acme")


def unasked(*_: object) -> BoxRecord | None:
    raise AssertionError("nobody is to be asked")


def nothing(*_: object) -> BoxRecord | None:
    return None


def sent_ago(path: Path, seconds: float) -> None:
    """As if the last request had been sent so many seconds ago, of a platform's time."""
    told = json.loads(path.read_text())
    told["sent"] = (datetime.now(UTC) - timedelta(seconds=seconds * 0.01)).isoformat()
    path.write_text(json.dumps(told))


def test_a_tag_of_which_nothing_is_remembered_costs_no_question(path: Path) -> None:
    assert memory(path).box(unasked, unasked) is None
    assert not path.exists()


def test_what_was_made_is_asked_for_by_its_number(path: Path) -> None:
    memory(path).sending()
    memory(path).made("b-1")
    asked: list[str] = []
    found = memory(path).box(lambda native_id: asked.append(native_id) or box(native_id), unasked)  # type: ignore[func-returns-value]
    assert found == box("b-1")
    assert asked == ["b-1"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_being_destroyed_is_there(path: Path) -> None:
    memory(path).made("b-1")
    found = memory(path).box(lambda _: box(phase=Phase.ENDING), unasked)
    assert found is not None
    assert found.phase is Phase.ENDING


def test_a_request_without_an_answer_is_looked_for_by_its_tag(path: Path) -> None:
    memory(path).sending()
    looks = iter([None, None, box()])
    assert memory(path).box(unasked, lambda: next(looks)) == box()


def test_no_list_proves_that_a_request_without_an_answer_made_nothing(path: Path) -> None:
    """However old it is: that one was sent is forgotten only when what it made is known."""
    memory(path).sending()
    for seconds in (0, 10 * tag_lock.LAG_SECONDS, 10**6):
        sent_ago(path, seconds)
        looks: list[int] = []
        with pytest.raises(Unanswered, match="no list shows it") as caught:
            memory(path).box(unasked, lambda looks=looks: looks.append(1))  # type: ignore[misc]
        assert len(looks) == tag_lock.LOOKS
        assert (datetime.now(UTC) - caught.value.sent).total_seconds() >= seconds * 0.01
        assert path.exists()


def test_a_number_is_gone_only_after_several_looks_and_when_lists_can_not_be_older(path: Path) -> None:
    made = time.monotonic()
    memory(path).made("b-1")
    looks: list[float] = []
    looked: Callable[[str], None] = lambda _: looks.append(time.monotonic())  # noqa: E731
    assert memory(path).box(looked, unasked) is None
    assert len(looks) >= tag_lock.LOOKS
    assert looks[-1] - made >= tag_lock.LAG_SECONDS * 0.01
    assert not path.exists()


def test_what_is_asked_for_is_told_before_it_is_sent_and_after_it_made_nothing(path: Path) -> None:
    told: list[bool] = []
    kept = Memory(path, "acme", TAG, Wait(20), first=False, tell=told.append)
    kept.sending()
    kept.nothing()
    assert told == [True, False]

    def full(_: bool) -> None:
        raise PlatformError("the evidence is full")

    with pytest.raises(PlatformError, match="the evidence is full"):
        Memory(path, "acme", TAG, Wait(20), first=False, tell=full).sending()
    assert memory(path).box(unasked, unasked) is None, "nothing was sent"


def test_a_clock_that_was_set_back_does_not_make_it_wait_for_ever(path: Path) -> None:
    memory(path).made("b-1")
    sent_ago(path, -(10**9))
    assert memory(path).box(nothing, unasked) is None


@pytest.mark.parametrize("wait", ["deadline", "cancelled"])
def test_who_can_not_wait_rents_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, wait: str) -> None:
    monkeypatch.setenv(PACE_VARIABLE, "1")
    memory(path).made("b-1")
    patience = Wait(0.05 if wait == "deadline" else 20)
    if wait == "cancelled":
        threading.Timer(0.1, patience.cancelled.set).start()
    with pytest.raises(Unreachable, match=r"b-1.*may bill, and no second box is rented"):
        memory(path, patience).box(nothing, unasked)
    assert path.exists()


def test_who_can_not_be_asked_is_not_believed(path: Path) -> None:
    memory(path).made("b-1")

    def away(_: str) -> BoxRecord | None:
        raise Unreachable("acme does not answer")

    with pytest.raises(Unreachable, match=r"b-1.*acme does not answer"):
        memory(path).box(away, unasked)
    assert path.exists()


def test_a_box_that_bears_another_tag_by_now_is_neither_adopted_nor_doubled(path: Path) -> None:
    memory(path).made("b-1")
    with pytest.raises(PlatformError, match="carries the tag 'mine'") as caught:
        memory(path).box(lambda _: box(tag="mine"), unasked)
    assert f"rm {path}" in str(caught.value)


GOOD = {"tag": TAG, "platform": "acme", "sent": "2026-11-21T10:00:00+00:00", "made": "b-1"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "held\n",
        "[]",
        "null",
        '"b-1"',
        "\0" * 64,
        "\udcff",
        json.dumps(GOOD)[:-9],
        json.dumps({**GOOD, "tag": "sweepstack-zzzzzz-box-0-g1"}),
        json.dumps({**GOOD, "sent": "2026-11-21T10:00:00"}),
        json.dumps({**GOOD, "sent": "yesterday"}),
        json.dumps({**GOOD, "sent": 7}),
        json.dumps({**GOOD, "made": None}),
        json.dumps({**GOOD, "made": 4711}),
        json.dumps({**GOOD, "made": "../volumes/x"}),
        json.dumps({**GOOD, "made": "b-1\n"}),
        json.dumps({key: value for key, value in GOOD.items() if key != "made"}),
    ],
)
def test_what_can_not_be_read_rents_nothing_and_says_what_to_do(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content.encode(errors="surrogateescape"))
    refused_with_the_fix(path, unasked)


def test_a_memory_that_is_no_file_rents_nothing(path: Path) -> None:
    path.mkdir(parents=True)
    refused_with_the_fix(path, unasked)


def test_an_id_that_the_platform_can_not_have_given_is_no_memory(path: Path) -> None:
    memory(path).made("b-1")

    def refuse(native_id: str) -> BoxRecord | None:
        raise PlatformError(f"{native_id!r} is no box of acme")

    refused_with_the_fix(path, refuse)


def refused_with_the_fix(path: Path, by_id: Callable[[str], BoxRecord | None]) -> None:
    with pytest.raises(PlatformError) as caught:
        memory(path).box(by_id, unasked)
    for part in (str(path), TAG, "no second one is rented", "`sweepctl audit`", f"`rm {path}`"):
        assert part in str(caught.value)
    assert path.exists()


def test_a_good_memory_is_read(path: Path) -> None:
    """What the cases above spoil."""
    path.parent.mkdir()
    path.write_text(json.dumps(GOOD))
    assert memory(path).box(lambda native_id: box(native_id), unasked) == box("b-1")


def test_where_it_can_not_be_written_nothing_is_sent(path: Path) -> None:
    path.parent.parent.mkdir(exist_ok=True)
    path.parent.write_text("")  # in the way of the folder
    with pytest.raises(PlatformError, match=r"nothing was rented.*XDG_DATA_HOME"):
        memory(path).sending()


def test_a_box_that_is_there_is_kept_though_it_can_not_be_written_down(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory(path).sending()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    heard: list[str] = []
    monkeypatch.setattr(tag_lock, "write_atomically", full)
    memory(path, Wait(20, heard.append)).made("b-1")
    monkeypatch.undo()
    assert len(heard) == 1
    assert "b-1" in heard[0]
    assert "No space left" in heard[0]
    assert json.loads(path.read_text())["made"] == ""  # the next one still looks for it
