"""Places, markers, records, receipts, and whether pulled files are still what a receipt says."""

from __future__ import annotations

import json
import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweepstack.core.records import Lease, Loss, Receipt, Teardown
from sweepstack.evidence import cell_store
from sweepstack.evidence.cell_store import FolderCopies
from sweepstack.evidence.check_files import check_files
from sweepstack.evidence.stack_copy import keep_stack_file, places_of
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import canonical_json, digest_of, file_sha256
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceElsewhere, EvidenceError, EvidenceMissing
from tests.unit.evidence.world import BEGIN, IDENTITY, STACK, World, outputs

HERE = socket.gethostname()


def test_evidence_on_another_host_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(EvidenceElsewhere, match=r"host gpu-desk .*sweepctl pull --to"):
        EvidenceStore.open(f"file://gpu-desk{tmp_path}")
    with pytest.raises(EvidenceElsewhere):
        EvidenceStore.read_marker(f"file://gpu-desk{tmp_path}")


@pytest.mark.parametrize("uri", ["gs://bucket/a", "/tmp/a", "file:///tmp/a", f"file://{HERE}", "file://"])
def test_addresses_that_are_none_are_refused(uri: str) -> None:
    with pytest.raises(EvidenceError, match="file://<host>/<"):
        EvidenceStore.open(uri)


def test_a_folder_without_marker_is_missing_not_empty(tmp_path: Path) -> None:
    uri = f"file://{HERE}{tmp_path / 'absent'}"
    with pytest.raises(EvidenceMissing, match="is not there"):
        EvidenceStore.open(uri)
    assert EvidenceStore.read_marker(uri) is None
    (tmp_path / "absent").mkdir()
    with pytest.raises(EvidenceMissing, match=r"holds no sweep\.json"):
        EvidenceStore.open(uri)
    assert EvidenceStore.read_marker(uri) is None


def test_records_of_a_folder_that_vanished_are_unknown(world: World) -> None:
    shutil.rmtree(world.store.root)
    for ask in (
        world.store.births,
        world.store.losses,
        world.store.teardown,
        world.store.lease,
        world.store.latest_receipt,
        lambda: world.store.birth("box-0", 1),
        lambda: world.store.write_lease(Lease(backend="b", host="h", taken_at=BEGIN)),
        lambda: world.store.write_teardown(None),
    ):
        with pytest.raises(EvidenceMissing):
            ask()
    assert not world.store.root.exists()


def test_founding_is_idempotent_and_exclusive(tmp_path: Path) -> None:
    uri = f"file://{HERE}{tmp_path / 'a b' / 'evidence'}"
    first = EvidenceStore.found(uri, IDENTITY, "p", "s")
    assert EvidenceStore.found(uri, IDENTITY, "p", "s").marker == first.marker
    assert EvidenceStore.read_marker(uri) == first.marker
    with pytest.raises(EvidenceError, match="holds the evidence of p/s"):
        EvidenceStore.found(uri, "zzzzzzzzzz", "p", "s2")


def test_of_many_founders_one_wins(tmp_path: Path) -> None:
    uri = f"file://{HERE}{tmp_path / 'evidence'}"

    def found(number: int) -> str:
        try:
            return EvidenceStore.found(uri, f"identity{number}", "p", "s").marker.identity
        except EvidenceError:
            return ""

    with ThreadPoolExecutor(8) as pool:
        winners = {name for name in pool.map(found, range(8)) if name}
    assert winners == {EvidenceStore.open(uri).marker.identity}
    assert os.listdir(tmp_path / "evidence") == ["sweep.json"]


def test_evidence_whose_marker_is_lost_is_not_taken_over(world: World) -> None:
    (world.store.root / "sweep.json").unlink()
    with pytest.raises(EvidenceError, match=r"holds records and no sweep\.json"):
        EvidenceStore.found(world.uri, "zzzzzzzzzz", "p", "s")


def test_records_come_back(world: World) -> None:
    store = world.store
    world.box.launch(*world.cells)
    assert store.birth("box-0", 1) == store.births()[0]
    assert store.birth("box-0", 2) is None
    assert store.launch("box-0", 1) == store.launches()[0]
    loss = Loss(box="box-0", native_id="ns/pod:1", cells=("a",), why="gone", at=BEGIN)
    store.write_loss(loss)
    assert store.losses() == [loss]
    assert store.teardown() is None
    teardown = Teardown(receipt=None, native_ids=("a",), begun_at=BEGIN)
    store.write_teardown(teardown)
    assert store.teardown() == teardown
    store.write_teardown(None)
    store.write_teardown(None)
    assert store.teardown() is None
    lease = Lease(backend="file://x", host="h", taken_at=BEGIN)
    store.write_lease(lease)
    assert store.lease() == lease
    store.release_lease()
    assert store.lease() is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"box":"box-0"}', b"\xff"])
def test_damaged_records_are_named(world: World, damage: bytes) -> None:
    (world.store.root / "records/births/box-0-g1.json").write_bytes(damage)
    for ask in (world.store.births, lambda: world.store.birth("box-0", 1)):
        with pytest.raises(EvidenceDamaged, match=r"births/box-0-g1\.json is damaged"):
            ask()
    (world.store.root / "sweep.json").write_bytes(damage)
    with pytest.raises(EvidenceDamaged, match=r"sweep\.json is damaged"):
        EvidenceStore.open(world.uri)


def test_names_cannot_lead_out(world: World) -> None:
    for name in ("", ".", "..", "../x", "a/b"):
        with pytest.raises(EvidenceError):
            world.store.cell_dir(name)


def verified(world: World) -> Receipt:
    world.run()
    world.pull()
    return world.verify().receipt


def test_an_edited_receipt_is_damaged(world: World) -> None:
    verified(world)
    digest = world.store.latest_receipt()
    assert digest is not None
    receipt = world.store.receipt(digest)  # that it was read before, and right, does not vouch for what is there now
    assert receipt.digest == digest == digest_of(receipt.model_dump(mode="json", by_alias=True))
    path = world.store.root / "receipts" / f"{digest.removeprefix('sha256:')}.json"
    path.write_bytes(path.read_bytes().replace(b'"verified":3', b'"verified":4'))
    with pytest.raises(EvidenceDamaged, match="was edited"):
        world.store.receipt(digest)
    path.unlink()
    with pytest.raises(EvidenceMissing):
        world.store.receipt(digest)
    for wrong in ("sha256:../../x", "latest", digest.upper()):
        with pytest.raises(EvidenceError):
            world.store.receipt(wrong)


def test_a_receipt_of_another_shape_is_damaged(world: World) -> None:
    value = {"schema": 1, "verified": 3}
    digest = digest_of(value)
    path = world.store.root / "receipts" / f"{digest.removeprefix('sha256:')}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(canonical_json(value))
    with pytest.raises(EvidenceDamaged):
        world.store.receipt(digest)


def test_a_receipt_whose_place_a_folder_has_is_written_again(world: World) -> None:
    verified(world)
    digest = world.store.latest_receipt()
    assert digest is not None
    receipt = world.store.receipt(digest)
    path = world.store.root / "receipts" / f"{digest.removeprefix('sha256:')}.json"
    path.unlink()
    path.mkdir()
    (path / "x").write_text("kept")
    assert world.store.write_receipt(receipt) == digest
    assert world.store.receipt(digest) == receipt
    assert (path.with_name(f"{path.name}.superseded-1") / "x").read_text() == "kept"


def test_the_latest_receipt_must_read_as_one(world: World) -> None:
    assert world.store.latest_receipt() is None
    verified(world)
    (world.store.root / "records/latest-receipt").write_text("sha256:../x")
    with pytest.raises(EvidenceDamaged):
        world.store.latest_receipt()


def flip(path: Path, *, keep_mtime: bool) -> None:
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[-30] ^= 4
    path.write_bytes(bytes(data))
    if keep_mtime:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1000))


def test_files_are_compared_with_the_receipt(world: World) -> None:
    receipt = verified(world)
    names = [cell.name for cell in world.cells]
    assert check_files(world.store, receipt, names, full=False) == []
    assert check_files(world.store, receipt, names, full=True) == []
    assert check_files(world.store, receipt, ["nobody"], full=False) == ["nobody is not in the receipt"]
    path = world.copy(names[0]) / "best.pt"
    flip(path, keep_mtime=True)
    assert check_files(world.store, receipt, names, full=False) == []  # what size and mtime can't see …
    assert check_files(world.store, receipt, names, full=True) == [f"{names[0]}: best.pt changed after the receipt"]
    flip(path, keep_mtime=False)
    assert check_files(world.store, receipt, names, full=False) == []  # … the same bytes under another mtime are hashed
    flip(path, keep_mtime=False)
    assert check_files(world.store, receipt, names, full=False) == [f"{names[0]}: best.pt changed after the receipt"]


@pytest.mark.parametrize("full", [True, False])
def test_every_change_of_a_copy_is_seen(world: World, full: bool) -> None:
    receipt = verified(world)
    first, second, third = (world.copy(cell) for cell in world.cells)
    shutil.rmtree(first)
    os.truncate(second / "log.txt", 1)
    (second / "new").write_text("x")
    flip(third / "manifest.json", keep_mtime=full)
    (third / "plots/curve.csv").unlink()
    os.link(third / "log.txt", world.folder / "elsewhere")
    problems = "\n".join(check_files(world.store, receipt, [cell.name for cell in world.cells], full=full))
    for reason in (
        "is not there any more",
        "log.txt has 1 bytes, not 7",
        "new was not there when the receipt was made",
        "manifest.json changed after the receipt",
        "plots/curve.csv is not there any more",
        "log.txt shares its bytes",
    ):
        assert reason in problems


@pytest.mark.parametrize("index", [None, b"", b"[]", b'{"files":[]}'])
def test_without_a_usable_index_files_are_hashed(world: World, index: bytes | None) -> None:
    receipt = verified(world)
    path = next((world.store.root / "records").glob("files-*.json"))
    if index is None:
        path.unlink()
    else:
        path.write_bytes(index)
    name = world.cells[0].name
    assert check_files(world.store, receipt, [name], full=False) == []
    flip(world.copy(name) / "best.pt", keep_mtime=True)
    assert check_files(world.store, receipt, [name], full=False) == [f"{name}: best.pt changed after the receipt"]


@pytest.mark.parametrize("what", ["sha256", "receipt"])
def test_an_index_that_is_not_of_this_receipt_lets_nothing_pass(world: World, what: str) -> None:
    """It has the damaged file's size and time, so that it alone speaks for the file. Of a copy without folders: there
    one look at sizes and times may settle all of its files."""
    first, *others = world.cells
    world.run(*others)
    world.box.seal(first, {path: data for path, data in outputs(world.folder, 0).items() if "/" not in path})
    world.pull()
    receipt, name = world.verify().receipt, first.name
    copy = world.copy(name) / "best.pt"
    flip(copy, keep_mtime=False)
    path = next((world.store.root / "records").glob("files-*.json"))
    index = json.loads(path.read_bytes())
    key, now = f"{name}/best.pt", copy.stat()
    index["files"][key][:2] = [now.st_size, now.st_mtime_ns]
    if what == "sha256":
        index["files"][key][2] = file_sha256(copy)
    else:
        index["receipt"] = "sha256:" + "7" * 64
    path.write_bytes(canonical_json(index) + b"\n")
    assert check_files(world.store, receipt, [name], full=False) == [f"{name}: best.pt changed after the receipt"]


@pytest.mark.parametrize("folders", [True, False])
def test_a_copy_that_is_as_it_was_is_told_without_reading_it(
    world: World, monkeypatch: pytest.MonkeyPatch, folders: bool
) -> None:
    """By sizes and times; ten thousand cells in a second."""
    world.run()
    if not folders:
        for seed, cell in enumerate(world.cells):
            made = outputs(world.folder, seed)
            world.box.seal(cell, {path: data for path, data in made.items() if "/" not in path}, attempt=2)
    world.pull()
    receipt, names = world.verify().receipt, [cell.name for cell in world.cells]

    def read(*_: object) -> None:
        pytest.fail("it was read")

    monkeypatch.setattr(cell_store, "file_sha256", read)
    monkeypatch.setattr(cell_store, "_open_manifest", read)
    if not folders:
        monkeypatch.setattr(FolderCopies, "look", read)
    assert check_files(world.store, receipt, names, full=False) == []


def test_a_quick_look_that_can_not_be_had_says_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt, name = verified(world), world.cells[0].name
    flip(world.copy(name) / "best.pt", keep_mtime=False)

    def unknown(*_: object) -> bool:
        raise EvidenceError("it can't be told")

    monkeypatch.setattr(FolderCopies, "untouched", unknown)
    assert check_files(world.store, receipt, [name], full=False) == [f"{name}: best.pt changed after the receipt"]


def test_a_folder_that_takes_no_writes_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.store.writable()
    monkeypatch.setattr(os, "access", lambda path, mode: path != world.store.root)
    assert not world.store.writable()


def test_checking_changes_nothing(world: World) -> None:
    receipt = verified(world)

    def tree() -> dict[str, tuple[int, int]]:
        found = world.store.root.rglob("*")
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in found}

    before = tree()
    check_files(world.store, receipt, [cell.name for cell in world.cells], full=True)
    assert tree() == before


def test_an_unverified_cell_is_never_fine(world: World) -> None:
    world.run(world.cells[0])
    world.pull()
    receipt = world.verify().receipt
    problems = check_files(world.store, receipt, [cell.name for cell in world.cells], full=False)
    assert len(problems) == 2


def test_a_place_that_does_not_read_is_none_of_a_stack_s(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(world.folder / "data"))
    path = world.folder / f"Pulumi.{STACK}.yaml"
    path.write_text("config: {}\n")
    keep_stack_file(world.uri, path)
    assert (places_of(STACK), places_of("another")) == ([world.uri], [])
    (world.store.root / "sweep.json").write_bytes(b"{")
    assert places_of(STACK) == []


# Other versions


def test_a_record_says_which_schema_it_is_of(world: World) -> None:
    """What an older version wrote has none, and reads; what a newer one wrote is told apart from damage."""
    store, lease = world.store, Lease(backend="b", host="h", taken_at=BEGIN)
    store.write_lease(lease)
    path = store.root / "records" / "lease.json"
    written = json.loads(path.read_text())
    assert written["schema"] == 1
    for old in (written, {name: value for name, value in written.items() if name != "schema"}):
        path.write_text(json.dumps(old))
        assert store.lease() == lease
    newer = r"lease\.json can't be read here: .*newer.* Next: git pull"
    for new in (written | {"schema": 2}, written | {"schema": 2, "more": 1}, written | {"more": 1}):
        path.write_text(json.dumps(new))
        with pytest.raises(EvidenceDamaged, match=newer):
            store.lease()
    path.write_text(json.dumps({"schema": 1, "backend": 7}))
    with pytest.raises(EvidenceDamaged, match=r"lease\.json is damaged: "):
        store.lease()
    marker = store.root / "sweep.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"schema": 2}))
    with pytest.raises(EvidenceDamaged, match="written by a newer sweepstack"):
        EvidenceStore.open(store.objects.uri)
