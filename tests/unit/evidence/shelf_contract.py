"""What every shelf must do, whatever it is made of. Import the tests, and give a fixture `shelf` that is empty."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from sweepstack.evidence.object_store import ABSENT, Shelf
from sweepstack.onbox.common.errors import EvidenceChanged

KEY = "records/births/box-0-g1.json"


def test_what_was_written_is_read(shelf: Shelf) -> None:
    assert shelf.read(KEY) is None
    tag = shelf.write(KEY, b"one")
    held = shelf.read(KEY)
    assert held is not None
    assert (held.data, held.tag) == (b"one", tag)
    assert shelf.write(KEY, b"two") != tag
    shelf.remove(KEY)
    shelf.remove(KEY)
    assert shelf.read(KEY) is None


def test_names_are_those_directly_below(shelf: Shelf) -> None:
    assert shelf.names("records/births") == []
    assert not shelf.holds_any("records")
    for key in ("records/births/b.json", "records/births/a.json", "records/births/deep/c.json", "records/lease.json"):
        shelf.write(key, b"x")
    assert [name for name in shelf.names("records/births") if name.endswith(".json")] == ["a.json", "b.json"]
    assert shelf.holds_any("records")
    assert not shelf.holds_any("record")


def test_only_the_first_may_make_a_key(shelf: Shelf) -> None:
    def make(number: int) -> int | None:
        try:
            shelf.write(KEY, b"%d" % number, over=ABSENT)
        except EvidenceChanged:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(make, range(8)) if number is not None]
    assert len(winners) == 1
    held = shelf.read(KEY)
    assert held is not None
    assert held.data == b"%d" % winners[0]


def test_nobody_writes_over_what_he_did_not_read(shelf: Shelf) -> None:
    first = shelf.write(KEY, b"one")
    second = shelf.write(KEY, b"two", over=first)
    for stale in (first, ABSENT, "0" * 32):
        with pytest.raises(EvidenceChanged, match="another command"):
            shelf.write(KEY, b"three", over=stale)
    held = shelf.read(KEY)
    assert held is not None
    assert (held.data, held.tag) == (b"two", second)
    shelf.remove(KEY)
    with pytest.raises(EvidenceChanged):
        shelf.write(KEY, b"three", over=second)
    assert shelf.read(KEY) is None


def test_nobody_takes_away_what_he_did_not_read(shelf: Shelf) -> None:
    first = shelf.write(KEY, b"one")
    second = shelf.write(KEY, b"two", over=first)
    for stale in (first, ABSENT, "0" * 32):
        with pytest.raises(EvidenceChanged, match="another command"):
            shelf.remove(KEY, over=stale)
    held = shelf.read(KEY)
    assert held is not None
    assert (held.data, held.tag) == (b"two", second)
    shelf.remove(KEY, over=second)
    assert shelf.read(KEY) is None
    for known in (second, ABSENT):
        shelf.remove(KEY, over=known)  # it is gone, whoever did it
    with pytest.raises(EvidenceChanged):
        shelf.write(KEY, b"three", over=second)
    third = shelf.write(KEY, b"three", over=ABSENT)
    held = shelf.read(KEY)
    assert held is not None
    assert (held.data, held.tag) == (b"three", third)
    shelf.remove(KEY)
    assert shelf.read(KEY) is None


def test_of_many_who_read_one_takes_away_or_writes(shelf: Shelf) -> None:
    """A removal that came second must not take a newer record with it."""
    tag = shelf.write(KEY, b"start")

    def act(number: int) -> str | None:
        try:
            if number % 2:
                shelf.remove(KEY, over=tag)
                return "removed"
            shelf.write(KEY, b"%d" % number, over=tag)
        except EvidenceChanged:
            return None
        return "written"

    with ThreadPoolExecutor(8) as pool:
        done = {what for what in pool.map(act, range(8)) if what}
    held = shelf.read(KEY)
    assert done == ({"removed"} if held is None else {"written"})


def test_of_many_who_read_one_writes(shelf: Shelf) -> None:
    tag = shelf.write(KEY, b"start")

    def write(number: int) -> int | None:
        try:
            shelf.write(KEY, b"%d" % number, over=tag)
        except EvidenceChanged:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        assert sum(number is not None for number in pool.map(write, range(8))) == 1
