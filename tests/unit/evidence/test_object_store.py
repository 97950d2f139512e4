"""A folder as an object store; and records that two people may write."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.core.journal import parse_journal
from sweepstack.core.records import Lease, Teardown
from sweepstack.evidence.object_store import FolderStore, Held, ObjectStore
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceError
from tests.unit.evidence.object_store_contract import *  # noqa: F403
from tests.unit.evidence.world import BEGIN, World


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    root = tmp_path / "evidence"
    root.mkdir()
    return FolderStore(f"file://{socket.gethostname()}{root}", root)


def test_what_can_not_be_read_is_not_absent(objects: FolderStore) -> None:
    (objects.root / "records").write_text("a file where a folder should be")
    for ask in (lambda: objects.read("records/lease.json"), lambda: objects.names("records")):
        with pytest.raises(EvidenceError, match="can't be read"):
            ask()
    with pytest.raises(EvidenceError, match="can't be read"):
        objects.size("x" * 300)


@pytest.mark.parametrize("over", [None, "", "0" * 64])
def test_what_can_not_be_written_is_not_called_written(objects: FolderStore, over: str | None) -> None:
    (objects.root / "records").write_text("a file where a folder should be")
    with pytest.raises(EvidenceError, match="can't be"):
        objects.write("records/lease.json", b"x", over=over)
    with pytest.raises(EvidenceError, match="can't be"):
        objects.remove("x" * 300, over=over)


@pytest.mark.parametrize("act", [lambda o, tag: o.write("a", b"y", over=tag), lambda o, tag: o.remove("a", over=tag)])
def test_what_is_compared_stays_as_it_was_until_it_is_replaced(
    objects: FolderStore, monkeypatch: pytest.MonkeyPatch, act: Callable[[FolderStore, str], object]
) -> None:
    """The folder is held from the look on, or another process writes between the look and the write."""
    tag, read, looks = objects.write("a", b"x"), objects.read, 0

    def looked(key: str) -> Held | None:
        nonlocal looks
        folder = os.open(objects.root, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        looks += 1
        return read(key)

    monkeypatch.setattr(objects, "read", looked)
    act(objects, tag)
    assert looks == 1


def test_a_failed_write_leaves_nothing(objects: FolderStore) -> None:
    objects.write("a", b"x")
    with pytest.raises(EvidenceChanged):
        objects.write("a", b"y", over="")
    assert os.listdir(objects.root) == ["a"]


def test_the_second_of_two_people_is_told(world: World) -> None:
    ann, bob = EvidenceStore.open(world.uri), EvidenceStore.open(world.uri)
    assert ann.lease() is None
    assert bob.lease() is None
    ann.write_lease(Lease(backend="a", host="h", taken_at=BEGIN))
    with pytest.raises(EvidenceChanged, match="Run the command again"):
        bob.write_lease(Lease(backend="b", host="h", taken_at=BEGIN))
    held = ann.lease()
    assert held is not None
    assert held.backend == "a"


def test_a_teardown_that_somebody_else_made_longer_is_not_closed(world: World) -> None:
    ann, bob = EvidenceStore.open(world.uri), EvidenceStore.open(world.uri)
    begun = Teardown(receipt=None, native_ids=("pod-1",), ended=("pod-1",), begun_at=BEGIN)
    ann.write_teardown(begun)
    assert bob.teardown() == begun
    longer = begun.model_copy(update={"native_ids": ("pod-1", "pod-2")})
    bob.write_teardown(longer)
    with pytest.raises(EvidenceChanged):
        ann.write_teardown(None)
    assert ann.teardown() == longer
    ann.write_teardown(None)
    assert bob.teardown() is None


def test_a_box_that_somebody_else_wrote_down_is_not_forgotten(world: World) -> None:
    ann, bob, cid = (EvidenceStore.open(world.uri) for _ in range(3))
    known = world.store.births()[0]
    asked = known.model_copy(update={"generation": 2, "tag": "t-g2", "native_id": None, "created_at": None})
    for store in (ann, bob, cid):
        assert store.birth("box-0", 2) is None
    ann.write_birth(asked.model_copy(update={"native_id": "pod-1", "created_at": BEGIN, "ended_at": BEGIN}))
    bob.write_birth(asked)
    found = world.store.birth("box-0", 2)
    assert found is not None
    assert (found.native_id, found.created_at, found.ended_at) == ("pod-1", BEGIN, BEGIN)
    with pytest.raises(EvidenceChanged):
        cid.write_birth(asked.model_copy(update={"native_id": "pod-2"}))
    assert world.store.birth("box-0", 2) == found


def test_a_teardown_is_added_to_by_all_who_take_part(world: World) -> None:
    other = EvidenceStore.open(world.uri)
    seen = []

    def joined(now: Teardown | None) -> Teardown:
        if not seen:  # somebody else writes between our look and our word
            other.write_teardown(Teardown(native_ids=("theirs",), begun_at=BEGIN))
        seen.append(now)
        return Teardown(native_ids=(*(now.native_ids if now else ()), "ours"), begun_at=BEGIN)

    world.store.update_teardown(joined)
    assert seen[0] is None
    assert other.teardown() == Teardown(native_ids=("theirs", "ours"), begun_at=BEGIN)


def test_who_is_late_each_time_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was written, so nothing may look as if it was."""
    world.run()

    def late(*_: object, **__: object) -> str:
        raise EvidenceChanged("another process was faster")

    birth = world.store.births()[0]
    monkeypatch.setattr(world.store.objects, "write", late)
    for write in (
        lambda: world.store.update_teardown(lambda _: Teardown(native_ids=("ours",), begun_at=BEGIN)),
        lambda: world.store.write_birth(birth),
        lambda: world.store.write_journal("box-0", 1, world.box.journal_file.read_bytes()),
    ):
        with pytest.raises(EvidenceChanged):
            write()


def test_a_later_copy_of_a_journal_that_another_process_wrote_meanwhile_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(world.cells[0])
    earlier = world.box.journal_file.read_bytes()
    world.run(world.cells[1])
    later, path = world.box.journal_file.read_bytes(), world.store.journal_path("box-0", 1)
    write = world.store.objects.write

    def second(key: str, data: bytes, *, over: str | None = None) -> str:
        monkeypatch.setattr(world.store.objects, "write", write)
        write(key, later)
        return write(key, data, over=over)

    monkeypatch.setattr(world.store.objects, "write", second)
    world.store.write_journal("box-0", 1, earlier)
    assert path.read_bytes() == later
    world.store.keep_journal("box-0", 1, parse_journal(earlier))
    assert path.read_bytes() == later
    world.run(world.cells[2])
    world.store.keep_journal("box-0", 1, world.box.journal)
    assert path.read_bytes() == world.box.journal_file.read_bytes()


def test_code_is_kept_once_a_version(world: World) -> None:
    digest = digest_of("code")
    assert world.store.read_code(digest) is None
    assert world.store.codes() == []
    world.store.write_code(digest, b"archive")
    world.store.write_code(digest, b"another")
    assert world.store.read_code(digest) == b"archive"
    assert world.store.codes() == [digest]
    with pytest.raises(EvidenceError, match="no code digest"):
        world.store.write_code("sha256:../x", b"")


def test_records_of_other_kinds_have_a_place(world: World) -> None:
    lease = Lease(backend="a", host="h", taken_at=BEGIN)
    assert world.store.record("ledger/box-0.json", Lease) is None
    world.store.write_record("ledger/box-0.json", lease)
    assert world.store.records("ledger", Lease) == [lease] == [world.store.record("ledger/box-0.json", Lease)]
    world.store.write_record("ledger/box-0.json", None)
    assert world.store.records("ledger", Lease) == []
