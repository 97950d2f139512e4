"""What every object store must do, a folder or a bucket. Import the tests, and give an empty fixture `objects`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from sweepstack.evidence.object_store import ABSENT, ObjectStore
from sweepstack.onbox.common.errors import EvidenceChanged

KEY = "records/births/box-0-g1.json"


def winners_of_eight(objects: ObjectStore, read: str) -> list[int]:
    """Which of eight writers succeed that begin at once, and have all read the same tag."""

    def write(number: int) -> bool:
        try:
            objects.write(KEY, b"%d" % number, over=read)
        except EvidenceChanged:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        return [number for number, done in enumerate(pool.map(write, range(8))) if done]


def test_what_was_written_is_read(objects: ObjectStore) -> None:
    assert objects.read(KEY) is None
    tag = objects.write(KEY, b"one")
    held = objects.read(KEY)
    assert held is not None
    assert (held.data, held.tag, objects.size(KEY)) == (b"one", tag, 3)
    assert objects.size(f"{KEY}.more") is objects.size(KEY[:-1]) is None
    assert objects.write(KEY, b"two") != tag
    objects.remove(KEY)
    objects.remove(KEY)
    assert objects.read(KEY) is None


def test_names_are_those_directly_below(objects: ObjectStore) -> None:
    assert objects.names("records/births") == []
    assert not objects.holds_any("records")
    for key in ("records/births/b.json", "records/births/a.json", "records/births/deep/c.json", "records/lease.json"):
        objects.write(key, b"x")
    assert [name for name in objects.names("records/births") if name.endswith(".json")] == ["a.json", "b.json"]
    assert objects.holds_any("records")
    assert not objects.holds_any("record")


def test_only_the_first_may_make_a_key(objects: ObjectStore) -> None:
    winners = winners_of_eight(objects, ABSENT)
    assert len(winners) == 1
    held = objects.read(KEY)
    assert held is not None
    assert held.data == b"%d" % winners[0]


def test_nobody_writes_over_what_he_did_not_read(objects: ObjectStore) -> None:
    first = objects.write(KEY, b"one")
    second = objects.write(KEY, b"two", over=first)
    for stale in (first, ABSENT, "0" * 32):
        with pytest.raises(EvidenceChanged, match="another command"):
            objects.write(KEY, b"three", over=stale)
    held = objects.read(KEY)
    assert held is not None
    assert (held.data, held.tag) == (b"two", second)
    objects.remove(KEY)
    with pytest.raises(EvidenceChanged):
        objects.write(KEY, b"three", over=second)
    assert objects.read(KEY) is None


def test_nobody_takes_away_what_he_did_not_read(objects: ObjectStore) -> None:
    first = objects.write(KEY, b"one")
    second = objects.write(KEY, b"two", over=first)
    for stale in (first, ABSENT, "0" * 32):
        with pytest.raises(EvidenceChanged, match="another command"):
            objects.remove(KEY, over=stale)
    held = objects.read(KEY)
    assert held is not None
    assert (held.data, held.tag) == (b"two", second)
    objects.remove(KEY, over=second)
    assert objects.read(KEY) is None
    for known in (second, ABSENT):
        objects.remove(KEY, over=known)  # it is gone already: the same command twice is no mistake
    with pytest.raises(EvidenceChanged):
        objects.write(KEY, b"three", over=second)
    third = objects.write(KEY, b"three", over=ABSENT)
    held = objects.read(KEY)
    assert held is not None
    assert (held.data, held.tag) == (b"three", third)
    objects.remove(KEY)
    assert objects.read(KEY) is None


def test_of_many_who_read_one_takes_away_or_writes(objects: ObjectStore) -> None:
    """A removal that came second must not take a newer record with it."""
    tag = objects.write(KEY, b"start")

    def act(number: int) -> str | None:
        try:
            if number % 2:
                objects.remove(KEY, over=tag)
                return "removed"
            objects.write(KEY, b"%d" % number, over=tag)
        except EvidenceChanged:
            return None
        return "written"

    with ThreadPoolExecutor(8) as pool:
        done = {what for what in pool.map(act, range(8)) if what}
    held = objects.read(KEY)
    assert done == ({"removed"} if held is None else {"written"})


def test_of_many_who_read_one_writes(objects: ObjectStore) -> None:
    assert len(winners_of_eight(objects, objects.write(KEY, b"start"))) == 1
