"""Pulled cells in a bucket: checked on the way in, proved without a download after, and never believed when changed."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.bucket_address import S3Address
from sweepstack.core.records import FileEntry, Receipt
from sweepstack.evidence.cell_store import find_seal
from sweepstack.evidence.check_files import check_files
from sweepstack.evidence.file_index import read_index
from sweepstack.evidence.s3.cell_store import S3Copies, seal_of
from sweepstack.evidence.s3.object_store import S3Store
from sweepstack.evidence.s3.objects import digest, download, head, upload
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceError, Unreachable
from sweepstack.platforms.common import s3_client
from tests.s3.conftest import BUCKET
from tests.s3.server import S3Server
from tests.unit.evidence.test_pull import Flaky, content
from tests.unit.evidence.world import IDENTITY, World, cell_of, outputs, sealed_elsewhere

NAME = "lr0.1-seed0"
Elsewhere = Callable[[], None]


def verified(world: World) -> Receipt:
    world.run()
    world.pull()
    outcome = world.verify()
    assert outcome.ok, [cell.reasons for cell in outcome.receipt.cells]
    return outcome.receipt


def fresh(world: World) -> World:
    """The same evidence through an object that remembers nothing."""
    world.store = EvidenceStore.open(world.uri)
    return world


def moved(world: World) -> int:
    assert world.store.traffic is not None
    return world.store.traffic.moved


def sealed_key(world: World, path: str, cell: str = NAME) -> str:
    """The object of a file of the seal that counts."""
    (manifest,) = (found.manifest for found in world.verify().receipt.cells if found.name == cell)
    assert manifest is not None
    return f"{S3Address.parse(world.uri).prefix}/cells/{cell}/{seal_of(manifest)}/{path}"


def shrink_parts(world: World) -> None:
    """Files of this size go up in several parts; 5 MiB is the smallest that S3 allows."""
    assert isinstance(world.store.objects, S3Store)
    world.store.objects.part_bytes = 5 << 20


def big(world: World, megabytes: int = 12) -> dict[str, bytes]:
    return outputs(world.folder, 0) | {"big.bin": os.urandom(megabytes << 20)}


def test_a_sweep_is_pulled_verified_and_checked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt = verified(world)
    names = [cell.name for cell in world.cells]
    for full in (False, True):
        assert check_files(fresh(world).store, receipt, names, full=full) == []
        found = check_files(fresh(world).store, receipt, [*names, "none"], full=full)
        assert found == ["none is not in the receipt"]
    index = read_index(world.store.objects, receipt)
    assert index.keys() == {
        f"{cell.name}/{path}" for cell in receipt.cells for path in ("manifest.json", *(f.path for f in cell.files))
    }
    copies = world.store.copies
    wanted = {cell.name: cell.manifest for cell in receipt.cells}
    one_by_one = {name: copies.look(name, manifest) for name, manifest in wanted.items()}
    assert {len(folder.files) for folder in one_by_one.values()} == {6}
    for many in (64, 0):
        monkeypatch.setattr("sweepstack.evidence.s3.cell_store.MANY", many)
        assert copies.look_all(wanted) == one_by_one
    for name in ("", ".", "..", "a/b", "a\0b"):
        with pytest.raises(EvidenceError, match="no cell name"):
            copies.look(name)
    assert sorted(copies.cells()) == sorted(names)
    assert copies.read(NAME, "log.txt") == b"step 1\n"
    assert copies.read(NAME, "log.txt", 5, 1) == b"1"
    assert copies.size(NAME, "log.txt") == 7
    assert copies.read(NAME, "none") is None
    assert copies.manifest("none") is None
    assert not copies.look("none").exists


def test_nothing_that_did_not_change_is_moved_twice(world: World, elsewhere: Elsewhere) -> None:
    receipt = verified(world)
    names = [cell.name for cell in world.cells]
    size = sum(file.size for cell in receipt.cells for file in cell.files)
    records = 40_000  # manifests, journals, records, the receipt, the index
    (pull,) = fresh(world).pull()
    assert {result.state for result in pull.results} == {"current"}
    assert moved(world) < records
    again = fresh(world).verify()
    assert again.receipt == receipt
    assert moved(world) < records
    elsewhere()
    for full in (False, True):
        assert check_files(fresh(world).store, receipt, names, full=full) == []
        assert moved(world) < records
    assert world.store.traffic is not None
    assert world.store.traffic.unchanged == size
    assert fresh(world).verify().receipt == receipt  # an empty cache: every byte has to be loaded once
    assert size <= moved(world) < size + records
    assert fresh(world).verify().receipt == receipt
    assert moved(world) < records


@pytest.mark.parametrize(
    "damage",
    [
        *("replace", "delete", "extra", "pointer"),
        *(pytest.param(damage, marks=pytest.mark.proof) for damage in ("overwrite", "flip", "truncate", "beside")),
    ],
)
def test_every_change_of_an_object_is_seen(world: World, server: S3Server, elsewhere: Elsewhere, damage: str) -> None:
    receipt = verified(world)
    key = sealed_key(world, "best.pt")
    s3, data = server.sdk(), bytearray(b"")
    data[:] = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    data[-30] ^= 4
    prefix = S3Address.parse(world.uri).prefix
    if damage == "overwrite":
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"other")
    elif damage == "flip":
        s3.put_object(Bucket=BUCKET, Key=key, Body=bytes(data), ChecksumAlgorithm="SHA256")
    elif damage == "truncate":
        s3.put_object(Bucket=BUCKET, Key=key, Body=bytes(data[:-1]), ChecksumAlgorithm="CRC32")
    elif damage == "delete":
        s3.delete_object(Bucket=BUCKET, Key=key)
    elif damage == "replace":
        s3.copy_object(Bucket=BUCKET, Key=key, CopySource={"Bucket": BUCKET, "Key": sealed_key(world, "log.txt")})
    elif damage == "extra":
        s3.put_object(Bucket=BUCKET, Key=key + ".new", Body=b"x")
    elif damage == "beside":
        s3.put_object(Bucket=BUCKET, Key=f"{prefix}/cells/{NAME}/stray", Body=b"x")
    else:
        s3.delete_object(Bucket=BUCKET, Key=f"{prefix}/cells/{NAME}/manifest.json")
    names = [cell.name for cell in world.cells]
    for cache in (lambda: None, elsewhere):
        cache()
        for full in (False, True):
            problems = check_files(fresh(world).store, receipt, names, full=full)
            assert len(problems) >= 1
            assert all(problem.startswith(f"{NAME}: ") for problem in problems)
        outcome = fresh(world).verify()
        assert not outcome.ok
        assert cell_of(outcome, NAME).state in ("damaged", "missing")
        assert outcome.receipt.verified == 2
    if damage in ("extra", "beside"):
        return
    fresh(world).pull()  # the box still has it
    assert fresh(world).verify().receipt == receipt
    assert check_files(fresh(world).store, receipt, names, full=True) == []


def test_the_same_bytes_without_a_checksum_are_read_to_be_believed(
    world: World, server: S3Server, elsewhere: Elsewhere
) -> None:
    """As another tool would have put them there."""
    receipt = verified(world)
    key = sealed_key(world, "best.pt")
    good = server.sdk().get_object(Bucket=BUCKET, Key=key)["Body"].read()
    server.sdk().put_object(Bucket=BUCKET, Key=key, Body=good, ChecksumAlgorithm="CRC32")
    names = [cell.name for cell in world.cells]
    assert check_files(fresh(world).store, receipt, names, full=True) == []
    data = bytearray(good)
    data[-30] ^= 4
    server.sdk().put_object(Bucket=BUCKET, Key=key, Body=bytes(data), ChecksumAlgorithm="CRC32")
    assert check_files(fresh(world).store, receipt, names, full=True) == [f"{NAME}: best.pt changed after the receipt"]
    for cache in (lambda: None, elsewhere):
        server.sdk().put_object(Bucket=BUCKET, Key=key, Body=bytes(data), ChecksumAlgorithm="CRC32")
        cache()
        box = Flaky(fresh(world))
        world_pull(world, box)
        assert box.fetched == (["best.pt"] if cache is elsewhere else []), "put there again from what is right"
        assert check_files(fresh(world).store, receipt, names, full=True) == []
    server.sdk().put_object(Bucket=BUCKET, Key=key, Body=bytes(data), ChecksumAlgorithm="CRC32")
    assert cell_of(fresh(world).verify(), NAME).state == "damaged", "the cache has it as it was sealed"
    server.sdk().put_object(Bucket=BUCKET, Key=key, Body=good, ChecksumAlgorithm="CRC32")
    elsewhere()
    box = Flaky(fresh(world))
    assert {result.state for result in world_pull(world, box)} == {"current"}
    assert box.fetched == [], "it is right"
    prefix = S3Address.parse(world.uri).prefix
    server.sdk().put_object(Bucket=BUCKET, Key=f"{prefix}/records/latest-receipt", Body=b"no digest")
    assert fresh(world).verify().receipt == receipt


def test_what_was_written_down_of_an_object_speaks_for_that_object_alone(world: World, server: S3Server) -> None:
    """Size and tag of an object spare asking, where it is the one that was hashed, and was what it has to be."""
    (cell,) = (one for one in verified(world).cells if one.name == NAME)
    key, entry = sealed_key(world, "best.pt"), next(file for file in cell.files if file.path == "best.pt")
    index, copies = read_index(world.store.objects, world.verify().receipt), fresh(world).store.copies
    assert isinstance(copies, S3Copies)
    facts = copies.look(NAME, cell.manifest).files
    of_file, of_manifest = index[f"{NAME}/best.pt"], index[f"{NAME}/manifest.json"]
    before = moved(world)
    assert copies.unchanged(NAME, entry, facts["best.pt"], of_file, full=False)
    assert copies.manifest_is(NAME, cell.manifest, facts["manifest.json"], of_manifest, full=False)
    assert moved(world) == before, "nothing was asked for"
    other = "0" * 64
    assert copies.unchanged(NAME, entry, facts["best.pt"], None, full=False)
    wrong = entry.model_copy(update={"sha256": other})
    assert not copies.unchanged(NAME, wrong, facts["best.pt"], of_file, full=False)
    assert copies.manifest_is(NAME, cell.manifest, facts["manifest.json"], None, full=False)
    assert not copies.manifest_is(NAME, f"sha256:{other}", facts["manifest.json"], of_manifest, full=False)
    s3 = server.sdk()
    data = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    s3.put_object(Bucket=BUCKET, Key=key, Body=data[:-1] + b"?", ChecksumAlgorithm="SHA256")
    found = head(copies.objects, key.removeprefix(f"{S3Address.parse(world.uri).prefix}/"))
    assert found is not None
    vouched = (found.size, found.stamp, entry.sha256)
    assert not copies.unchanged(NAME, entry, facts["best.pt"], vouched, full=True), "the server's checksum knows better"
    s3.delete_object(Bucket=BUCKET, Key=key)
    assert not copies.unchanged(NAME, entry, facts["best.pt"], of_file, full=True)
    with pytest.raises(EvidenceError, match="vanished"):
        copies.here(NAME, [FileEntry(path="best.pt", size=entry.size, sha256=entry.sha256, role="artifact")])
    with pytest.raises(EvidenceError, match="is not there"):
        copies.local("none", "best.pt")


def test_a_rotten_cache_is_not_believed(world: World) -> None:
    receipt = verified(world)
    copies = world.store.copies
    assert isinstance(copies, S3Copies)
    local = copies.local(NAME, "best.pt")
    status = local.stat()
    data = bytearray(local.read_bytes())
    data[-30] ^= 4
    local.write_bytes(bytes(data))
    os.utime(local, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fresh(world).verify().receipt == receipt  # brought again
    assert local.read_bytes() != bytes(data)


def test_large_files_go_up_in_parts_and_on_after_a_cut(
    world: World, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink_parts(world)
    world.box.launch(*world.cells)
    files = big(world)
    world.box.seal(world.cells[0], files)
    s3 = s3_client.client()
    sent: list[int] = []
    real = s3.upload_part

    def flaky(**words: Any) -> Any:
        if len(sent) == 2:
            sent.append(0)
            raise Unreachable("cut off")
        sent.append(words["PartNumber"])
        return real(**words)

    monkeypatch.setattr(s3, "upload_part", flaky)
    (pull,) = world.pull()
    assert "cut off" in pull.problem
    assert not world.store.copies.look(NAME).exists  # nothing of it can be seen
    box = Flaky(world)
    (result,) = world_pull(world, box)
    assert result.state == "pulled"
    assert sent == [1, 2, 0, 3]
    assert "big.bin" not in box.fetched  # it was in the cache
    assert world.store.traffic is not None
    for store in (world.store, fresh(world).store):
        world.store = store
        shrink_parts(world)
        before = store.traffic.down if store.traffic else 0
        receipt = world.verify().receipt
        assert receipt.verified == 1
        assert store.traffic is not None
        assert store.traffic.down - before < 40_000, "the cache has it: by the checksums of its parts"
    assert check_files(fresh(world).store, receipt, [NAME], full=True) == []
    assert moved(world) < 40_000


@pytest.mark.parametrize("megabytes", [1, 12])
def test_a_file_that_changes_on_its_way_is_refused(
    world: World, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int
) -> None:
    """It was hashed before it went; the server compares what came with that."""
    shrink_parts(world)
    assert isinstance(world.store.objects, S3Store)
    path, data = tmp_path / "big.bin", os.urandom(megabytes << 20)
    path.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    s3 = s3_client.client()
    verb = "upload_part" if megabytes > 5 else "put_object"
    real = getattr(s3, verb)

    def late(**words: Any) -> Any:
        if words.get("PartNumber", 2) == 2:
            words["Body"] = words["Body"][:-1] + bytes([words["Body"][-1] ^ 1])
        return real(**words)

    monkeypatch.setattr(s3, verb, late)
    with pytest.raises(EvidenceError):
        upload(world.store.objects, "cells/x/big.bin", path, sha256)
    monkeypatch.setattr(s3, verb, real)
    assert head(world.store.objects, "cells/x/big.bin") is None
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(EvidenceError, match="changed while it was copied"):
        upload(world.store.objects, "cells/x/big.bin", path, sha256)
    path.write_bytes(data)
    assert upload(world.store.objects, "cells/x/big.bin", path, sha256).size == len(data)


def world_pull(world: World, channel: Flaky) -> Any:
    from sweepstack.evidence.pull import BoxSource, pull_all

    (pull,) = pull_all([BoxSource("box-0", 1, channel)], IDENTITY, world.store)
    assert not pull.problem
    return pull.results


@pytest.mark.parametrize("damage", ["flip", pytest.param("truncate", marks=pytest.mark.proof)])
def test_a_changed_large_object_is_seen(world: World, server: S3Server, elsewhere: Elsewhere, damage: str) -> None:
    shrink_parts(world)
    world.box.launch(*world.cells)
    files = big(world)
    world.box.seal(world.cells[0], files)
    world.pull()
    receipt = world.verify().receipt
    data = bytearray(files["big.bin"])
    data[7 << 20] ^= 1
    key = sealed_key(world, "big.bin")
    path = world.folder / "changed"
    path.write_bytes(bytes(data) if damage == "flip" else bytes(data[:-1]))
    from boto3.s3.transfer import TransferConfig

    config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    server.sdk().upload_file(str(path), BUCKET, key, Config=config, ExtraArgs={"ChecksumAlgorithm": "SHA256"})
    fresh(world)
    shrink_parts(world)
    assert cell_of(world.verify(), NAME).state == "damaged", "the cache has it as it was sealed"
    elsewhere()
    for full in (False, True):
        fresh(world)
        shrink_parts(world)
        assert len(check_files(world.store, receipt, [NAME], full=full)) == 1
    assert cell_of(world.verify(), NAME).state == "damaged"


def test_what_another_machine_pulled_is_not_fetched_from_the_box_again(world: World, elsewhere: Elsewhere) -> None:
    world.run()
    world.pull()
    elsewhere()
    fresh(world)
    box = Flaky(world)
    assert {result.state for result in world_pull(world, box)} == {"current"}
    assert box.fetched == []
    assert moved(world) < 40_000, "nor from the bucket"


def test_a_later_copy_is_not_taken_away_by_a_box_that_sealed_it_before(world: World) -> None:
    world.run()
    later = sealed_elsewhere(world, 7, retry=1)
    world.pull()
    metrics = (later.sealed(NAME) / "metrics.json").read_bytes()
    (pull,) = fresh(world).pull(world.box)
    (result,) = (result for result in pull.results if result.cell == NAME)
    assert (result.state, result.notes) == (
        "current",
        ("box-0 sealed it before box-1 did, whose copy is here and stays",),
    )
    assert world.store.copies.read(NAME, "metrics.json") == metrics


def test_an_object_is_put_taken_and_hashed_only_as_the_one_that_was_seen(
    world: World, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, key, path = world.store.objects, "cells/x/a", tmp_path / "a"
    assert isinstance(objects, S3Store)
    path.write_bytes(b"ours")
    sha256 = hashlib.sha256(b"ours").hexdigest()
    seen = upload(objects, key, path, sha256)
    assert upload(objects, key, path, sha256) == seen, "it is there"
    objects.write(key, b"else")
    with pytest.raises(EvidenceChanged):
        upload(objects, key, path, sha256)
    for ask in (lambda: download(objects, key, seen, tmp_path / "b"), lambda: digest(objects, key, seen)):
        with pytest.raises(EvidenceChanged):
            ask()
    assert not (tmp_path / "b").exists()
    now = head(objects, key)
    assert now is not None
    answers = iter([{"Body": io.BytesIO()}])
    monkeypatch.setattr(s3_client.client(), "get_object", lambda **_: next(answers))
    with pytest.raises(EvidenceError, match="sent nothing"):
        download(objects, key, now, tmp_path / "b")


def test_a_new_seal_takes_over_whole_and_the_old_one_stays(world: World, server: S3Server) -> None:
    receipt = verified(world)
    old = sealed_key(world, "metrics.json")
    world.box.seal(world.cells[0], outputs(world.folder, 0) | {"metrics.json": b'{"loss": 0.5}'}, attempt=2)
    (pull,) = fresh(world).pull()
    (result,) = (result for result in pull.results if result.cell == NAME)
    assert result.state == "pulled"
    assert "earlier seal is kept" in result.notes[0]
    assert world.store.copies.read(NAME, "metrics.json") == b'{"loss": 0.5}'
    assert server.sdk().get_object(Bucket=BUCKET, Key=old)["Body"].read() != b'{"loss": 0.5}'
    assert check_files(world.store, receipt, [NAME], full=False) != []
    assert world.verify().ok


def test_copies_outlive_the_box_and_the_cache(world: World, elsewhere: Elsewhere, tmp_path: Path) -> None:
    receipt = verified(world)
    before = content(world.box.sealed(NAME))
    shutil.rmtree(world.box.root)
    elsewhere()
    assert fresh(world).verify(boxes=[]).receipt.cells == receipt.cells
    for path, data in before.items():
        assert world.store.copies.read(NAME, path) == data or path == "manifest.json"


@pytest.mark.proof  # an outage at the gate: test_gate.py
def test_an_outage_is_unknown_and_passes(world: World, server: S3Server) -> None:
    receipt = verified(world)
    names = [cell.name for cell in world.cells]
    server.stop()
    try:
        for full in (False, True):
            problems = check_files(world.store, receipt, names, full=full)
            assert len(problems) == 3
            assert all("does not answer" in problem for problem in problems)
        with pytest.raises(EvidenceError, match="does not answer"):
            world.verify()
        (pull,) = world.pull()
        assert "does not answer" in pull.problem
        assert pull.results == ()
    finally:
        server.start()
    s3_client.forget()
    assert check_files(fresh(world).store, receipt, names, full=True) == []
    assert world.verify().receipt == receipt


def test_the_earlier_seal_stays_the_result_until_the_later_one_is_verified(world: World, elsewhere: Elsewhere) -> None:
    """As in a folder: its files stay where they are, and its manifest is kept where the later one takes its place."""
    before = verified(world)
    (good,) = (cell for cell in before.cells if cell.name == NAME)
    later = outputs(world.folder, 0) | {"metrics.json": b'{"loss": 0.5}'}
    world.box.seal(world.cells[0], later, attempt=2, schema=2, doubts=["a process still wrote to t.csv"])
    fresh(world).pull()
    elsewhere()
    cell = cell_of(fresh(world).verify(), NAME)
    assert cell.state == "suspect"
    assert cell.aside == cell.result == good.manifest
    found = find_seal(world.store.copies, NAME, good.manifest or "", aside=True)
    assert found is not None
    copies, name, _ = found
    assert copies.read(name, "metrics.json") == outputs(world.folder, 0)["metrics.json"]
    world.box.seal(world.cells[0], outputs(world.folder, 0), attempt=3)
    fresh(world).pull()
    cell = cell_of(fresh(world).verify(), NAME)
    assert (cell.state, cell.aside) == ("verified", None)
