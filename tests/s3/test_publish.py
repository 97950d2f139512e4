"""A folder's evidence published: everything is there, damage included, and the folder is not used by mistake again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.bucket_address import S3Address
from sweepstack.core.records import Lease
from sweepstack.evidence import box_logs
from sweepstack.evidence.check_files import check_files
from sweepstack.evidence.file_index import read_index
from sweepstack.evidence.publish import arrival_problem, publish, succession_problem
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.errors import EvidenceError, EvidenceMissing, EvidenceMoved
from sweepstack.platforms.common import s3_client
from tests.s3.conftest import BUCKET
from tests.s3.server import S3Server
from tests.unit.evidence.world import BEGIN, IDENTITY, World, cell_of, outputs

NAME = "lr0.1-seed0"


@pytest.fixture
def folder(tmp_path: Path) -> World:
    """Three cells, verified, in a folder."""
    (tmp_path / "folder").mkdir()
    world = World(tmp_path / "folder")
    world.run()
    (world.box.root / box_layout.RUNNER_LOG).write_bytes(b"begins\n")
    world.pull()
    assert world.verify().ok
    return world


def test_everything_is_there_and_counts(folder: World, uri: str) -> None:
    latest = folder.store.latest_receipt()
    assert latest is not None
    receipt = folder.store.receipt(latest)
    folder.store.write_code("sha256:" + "a" * 64, b"archive")
    said: list[int] = []
    done = publish(folder.uri, uri, lambda _, bytes_done, __: said.append(bytes_done))
    assert done.bytes == said[-1]
    assert done.notes == ()
    assert done.traffic.up < done.bytes + 10_000, "each once: the second round compares"
    store = EvidenceStore.open(uri)
    assert {path: sha256 for path, (_, _, sha256) in read_index(store.objects, receipt).items()} == {
        f"{cell.name}/{path}": sha256
        for cell in receipt.cells
        for path, sha256 in [("manifest.json", hex_of(cell.manifest or "")), *((f.path, f.sha256) for f in cell.files)]
    }
    assert store.marker == folder.store.marker
    assert store.latest_receipt() == latest
    assert store.receipt(latest) == receipt
    assert [birth.native_id for birth in store.births()] == [folder.box.native_id]
    assert store.read_code("sha256:" + "a" * 64) == b"archive"
    logs = box_logs.copied_logs(store, "box-0", 1)
    assert box_logs.read_copied_log(store, logs, logs.logs[0]) == b"begins\n"
    names = [cell.name for cell in folder.cells]
    for full in (False, True):
        assert check_files(store, receipt, names, full=full) == []
    assert store.traffic is not None
    assert store.traffic.moved < 40_000
    assert succession_problem(folder.uri, uri, IDENTITY) == ""
    folder.store = EvidenceStore.open(uri)
    assert folder.verify().receipt == receipt
    folder.pull()
    assert folder.verify().receipt == receipt


def test_the_folder_says_where_its_evidence_went(folder: World, uri: str) -> None:
    publish(folder.uri, uri)
    store, lease = folder.store, Lease(backend="b", host="h", taken_at=BEGIN)
    for ask in (
        lambda: EvidenceStore.open(folder.uri),
        lambda: EvidenceStore.read_marker(folder.uri),
        lambda: EvidenceStore.found(folder.uri, IDENTITY, "project", "sweep-t"),
        lambda: store.write_lease(lease),  # somebody who had it open
        lambda: store.write_code("sha256:" + "b" * 64, b""),
    ):
        with pytest.raises(EvidenceMoved, match=rf"moved to {uri} .*pulumi up"):
            ask()
    there = EvidenceStore.open(uri)
    there.write_lease(lease)
    assert publish(folder.uri, uri).uri == uri
    assert there.lease() == lease, "again: nothing to do, and nothing to take away"
    assert EvidenceStore.open(uri).marker == there.marker
    with pytest.raises(EvidenceError, match=f"published to {uri} already"):
        publish(folder.uri, uri + "-other")


def test_what_was_damaged_is_damaged_there(folder: World, uri: str) -> None:
    first, second, third = (folder.copy(cell) for cell in folder.cells)
    data = bytearray((first / "best.pt").read_bytes())
    data[-30] ^= 4
    status = (first / "best.pt").stat()
    (first / "best.pt").write_bytes(bytes(data))
    os.utime(first / "best.pt", ns=(status.st_atime_ns, status.st_mtime_ns))
    (second / "manifest.json").unlink()
    (third / "log.txt").unlink()
    (third / "log.txt").symlink_to("/etc/hostname")
    latest = folder.store.latest_receipt()
    assert latest is not None
    receipt = folder.store.receipt(latest)
    done = publish(folder.uri, uri)
    assert "log.txt is a link" in done.notes[0]
    store = EvidenceStore.open(uri)
    names = [cell.name for cell in folder.cells]
    for full in (False, True):
        found = check_files(store, receipt, names, full=full)
        assert {problem.split(":")[0] for problem in found} == set(names)
    folder.store = store
    outcome = folder.verify()
    assert [cell_of(outcome, name).state for name in names] == ["damaged"] * 3


def test_a_cut_publishing_leaves_nothing_that_opens_and_goes_on(
    folder: World, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = s3_client.client()
    real, calls = s3.put_object, [0]

    def cut(after: int) -> Callable[..., Any]:
        def put(**words: Any) -> Any:
            calls[0] += 1
            if calls[0] > after:
                raise KeyboardInterrupt
            return real(**words)

        return put

    closed = 0
    for after in range(3, 60, 4):
        calls[0] = 0
        monkeypatch.setattr(s3, "put_object", cut(after))
        try:
            publish(folder.uri, uri)
            break
        except KeyboardInterrupt:
            pass
        monkeypatch.setattr(s3, "put_object", real)
        with pytest.raises(EvidenceMissing):
            EvidenceStore.open(uri)
        try:
            EvidenceStore.open(folder.uri)
        except EvidenceMoved:
            closed += 1
    else:
        pytest.fail("never done")
    monkeypatch.setattr(s3, "put_object", real)
    latest = EvidenceStore.open(uri).latest_receipt()
    assert latest is not None
    store = EvidenceStore.open(uri)
    assert check_files(store, store.receipt(latest), [cell.name for cell in folder.cells], full=True) == []


def test_what_is_written_meanwhile_comes_along(folder: World, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first round, and before the folder is closed."""
    lease = Lease(backend="late", host="h", taken_at=BEGIN)
    folder.store.write_lease(Lease(backend="early", host="h", taken_at=BEGIN))
    folder.store.write_record("gone.json", lease)
    from sweepstack.evidence import publish as publishing

    real = publishing._close

    def late(*words: Any) -> None:
        folder.store.write_lease(lease)
        folder.store.write_record("gone.json", None)
        real(*words)

    monkeypatch.setattr(publishing, "_close", late)
    publish(folder.uri, uri)
    store = EvidenceStore.open(uri)
    assert store.lease() == lease
    assert store.record("gone.json", Lease) is None


def test_a_place_in_use_is_left_alone(folder: World, world: World, uri: str, server: S3Server) -> None:
    with pytest.raises(EvidenceError, match=r"holds evidence already \(project/sweep-t"):
        publish(folder.uri, world.uri)
    other = S3Address.parse(uri)
    server.sdk().put_object(Bucket=BUCKET, Key=f"{other.prefix}-b/thesis.pdf", Body=b"x")
    with pytest.raises(EvidenceError, match="is not empty"):
        publish(folder.uri, f"{other.uri}-b")
    begun = f"{other.prefix}-c/records/publishing.json"
    server.sdk().put_object(Bucket=BUCKET, Key=begun, Body=b'{"source":"file://another/place"}')
    with pytest.raises(EvidenceError, match="something else is being published"):
        publish(folder.uri, f"{other.uri}-c")
    for source, target, words in (
        (folder.uri, f"{folder.uri}-2", "from a folder to s3://"),
        (world.uri, f"{other.uri}-d", "from a folder to s3://"),
        (f"{folder.uri}-2", f"{other.uri}-d", "there is nothing to publish"),
    ):
        with pytest.raises(EvidenceError, match=words):
            publish(source, target)
    assert EvidenceStore.open(folder.uri).marker == folder.store.marker  # still open


def test_only_what_was_published_from_here_may_be_followed_to(folder: World, world: World, uri: str) -> None:
    uri += "-published"
    publish(folder.uri, uri)
    assert "belongs to another sweep" in succession_problem(folder.uri, uri, "zzzzzzzzzz")
    assert "was not published from" in succession_problem(folder.uri + "2", uri, IDENTITY)
    assert "was not published from" in succession_problem(folder.uri, world.uri, IDENTITY)
    assert "sweep.json" in succession_problem(folder.uri, uri + "-none", IDENTITY)
    assert arrival_problem(uri, "project", "sweep-t") == ""
    for at, stack, words in (
        (uri, "another", "holds the evidence of project/sweep-t"),
        (world.uri, "sweep-t", "was not published there"),
        (uri + "-none", "sweep-t", "sweep.json"),
    ):
        assert words in arrival_problem(at, "project", stack)


def test_a_new_seal_after_it_is_pulled_into_the_bucket(folder: World, uri: str) -> None:
    publish(folder.uri, uri)
    folder.store = EvidenceStore.open(uri)
    folder.box.seal(folder.cells[0], outputs(folder.folder, 0) | {"metrics.json": b'{"loss": 0.5}'}, attempt=2)
    folder.pull()
    assert folder.verify().ok
    assert folder.store.copies.read(NAME, "metrics.json") == b'{"loss": 0.5}'
