"""Every way in which a cell must not pass as verified, and the few in which it must."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save as safetensors_bytes

from sweepstack.core.journal import Journal, parse_journal
from sweepstack.core.records import ArtifactSpec, Cell, Loss
from sweepstack.evidence import verify as verifying
from sweepstack.evidence.cell_store import FolderCopies
from sweepstack.evidence.check_files import check_cells
from sweepstack.evidence.object_store import FolderStore
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.verify import ReadBox, VerifyRequest, check_code, verify
from sweepstack.loaders.base import Reader
from sweepstack.loaders.pool import FileToRead, WorkersBroken, read_all
from sweepstack.onbox.common.canonical import canonical_json, sha256_hex
from sweepstack.onbox.common.errors import ConfigError, EvidenceDamaged, EvidenceError, JournalDamaged
from tests.read_here import reads_here
from tests.unit.evidence import torchzip
from tests.unit.evidence.world import BEGIN, IDENTITY, STACK, Box, FakeRoster, World, cell_of, checkpoint_bytes, outputs

GOOD = "lr0.3-seed0"


@pytest.fixture(autouse=True)
def _copies_are_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for tests that ask for `workers`: what those read is read in the same way."""
    reads_here(monkeypatch)


@pytest.fixture
def workers(_copies_are_read_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes read, as in a command."""
    monkeypatch.setattr(verifying, "read_all", read_all)


def good_sweep(world: World) -> World:
    world.run()
    world.pull()
    return world


def flip(path: Path, offset: int, *, keep_mtime: bool = False) -> None:
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(bytes(data))
    if keep_mtime:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.usefixtures("workers")
def test_a_good_sweep_is_verified(world: World) -> None:
    outcome = good_sweep(world).verify()
    receipt = outcome.receipt
    assert outcome.ok
    assert (receipt.verified, receipt.total) == (3, 3)
    assert receipt.roster_digest == FakeRoster(world.cells).digest
    assert receipt.boxes[0].journal_head == world.box.head
    assert receipt.boxes[0].cells == tuple(sorted(cell.name for cell in world.cells))
    files = {file.path: file for file in cell_of(outcome, GOOD).files}
    assert {path: (file.loader, file.verdict) for path, file in files.items()} == {
        "best.pt": ("torch", "ok"),
        "log.txt": (None, "ok"),
        "metrics.json": ("json", "ok"),
        "model.safetensors": ("safetensors", "ok"),
        "plots/curve.csv": (None, "ok"),
    }
    assert world.store.receipt(outcome.digest) == receipt
    assert world.store.latest_receipt() == outcome.digest
    assert outcome.stages["worker.sha256"] > 0
    assert (outcome.differing, outcome.as_sealed, outcome.unknown, outcome.notes) == ([], [], [], [])
    assert outcome.network in (True, False), "each file was read by a worker, which says it"


Attack = Callable[[World, Path], None]


def _empty(world: World, copy: Path) -> None:
    (copy / "best.pt").write_bytes(b"")


def _truncated(world: World, copy: Path) -> None:
    path = copy / "best.pt"
    os.truncate(path, path.stat().st_size - 1)


def _flipped(world: World, copy: Path) -> None:
    flip(copy / "best.pt", 700, keep_mtime=True)


def _flipped_log(world: World, copy: Path) -> None:
    flip(copy / "log.txt", 2)


def _other_cells_file(world: World, copy: Path) -> None:
    shutil.copyfile(world.copy("lr0.1-seed0") / "best.pt", copy / "best.pt")


def _other_cells_folder(world: World, copy: Path) -> None:
    shutil.rmtree(copy)
    shutil.copytree(world.copy("lr0.1-seed0"), copy)


def _extra_file(world: World, copy: Path) -> None:
    (copy / "notes.txt").write_text("mine")


def _missing_file(world: World, copy: Path) -> None:
    (copy / "plots/curve.csv").unlink()


def _symlink(world: World, copy: Path) -> None:
    source = world.box.sealed(GOOD) / "best.pt"
    (copy / "best.pt").unlink()
    (copy / "best.pt").symlink_to(source)


def _hard_link(world: World, copy: Path) -> None:
    source = world.box.sealed(GOOD) / "best.pt"
    (copy / "best.pt").unlink()
    os.link(source, copy / "best.pt")


def _hard_linked_manifest(world: World, copy: Path) -> None:
    (copy / "manifest.json").unlink()
    os.link(world.box.sealed(GOOD) / "manifest.json", copy / "manifest.json")


def _linked_folder(world: World, copy: Path) -> None:
    shutil.rmtree(copy)
    copy.symlink_to(world.box.sealed(GOOD))


def _pipe(world: World, copy: Path) -> None:
    (copy / "log.txt").unlink()
    os.mkfifo(copy / "log.txt")


def _no_manifest(world: World, copy: Path) -> None:
    (copy / "manifest.json").unlink()


def _edit_manifest(world: World, copy: Path, **changes: object) -> None:
    manifest = json.loads((copy / "manifest.json").read_bytes())
    (copy / "manifest.json").write_bytes(canonical_json({**manifest, **changes}) + b"\n")


def _edited_manifest(world: World, copy: Path) -> None:
    _edit_manifest(world, copy, attempt=7)


def _manifest_of_another_sweep(world: World, copy: Path) -> None:
    _edit_manifest(world, copy, identity="zzzzzzzzzz")


def _manifest_with_other_params(world: World, copy: Path) -> None:
    _edit_manifest(world, copy, params={"lr": 0.5, "seed": 0})


def _manifest_leading_out(world: World, copy: Path) -> None:
    entry = {"path": "../../sweep.json", "size": 1, "sha256": "0" * 64, "role": "extra"}
    _edit_manifest(world, copy, files=[entry])


def _matching_manifest(world: World, copy: Path) -> None:
    """A file and its manifest edited together: digests agree, only the journal knows better."""
    data = (copy / "log.txt").read_bytes() + b"accuracy 99.9\n"
    (copy / "log.txt").write_bytes(data)
    manifest = json.loads((copy / "manifest.json").read_bytes())
    for file in manifest["files"]:
        if file["path"] == "log.txt":
            file |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (copy / "manifest.json").write_bytes(canonical_json(manifest) + b"\n")


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (_empty, "best.pt truncated: 0 of"),
        (_truncated, "best.pt truncated:"),
        (_flipped, "best.pt differs from what was sealed"),
        (_flipped_log, "log.txt differs from what was sealed"),
        (_other_cells_file, "best.pt differs from what was sealed"),
        (_other_cells_folder, "that of another cell"),
        (_extra_file, "notes.txt is not in its manifest"),
        (_missing_file, "plots/curve.csv is not there"),
        (_symlink, "best.pt is a link"),
        (_hard_link, "best.pt shares its bytes"),
        (_hard_linked_manifest, "manifest.json shares its bytes"),
        (_linked_folder, "its folder is a link"),
        (_pipe, "log.txt is not a regular file"),
        (_no_manifest, "has no manifest.json"),
        (_edited_manifest, "no journal at hand records its seal, but one of another manifest, by box-0; pull again"),
        (_manifest_of_another_sweep, "of another sweep"),
        (_manifest_with_other_params, "its parameters are not those"),
        (_manifest_leading_out, "leads out of the cell's folder"),
        (_matching_manifest, "its manifest was changed after box-0 sealed attempt 1 with it; pull again"),
    ],
)
def test_a_copy_that_was_touched_is_damaged(world: World, attack: Attack, reason: str) -> None:
    good_sweep(world)
    attack(world, world.copy(GOOD))
    outcome = world.verify()
    cell = cell_of(outcome, GOOD)
    assert cell.state == "damaged"
    assert reason in "; ".join(cell.reasons)
    assert not outcome.ok
    assert (outcome.receipt.verified, outcome.receipt.total) == (2, 3)
    as_sealed = attack is _extra_file  # all that its manifest names is right
    assert (outcome.differing, outcome.as_sealed) == (([], [GOOD]) if as_sealed else ([GOOD], []))


def _flipped_at(data: bytes, offset: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]


def _nan(array: np.ndarray) -> np.ndarray:
    array.flat[5:8] = np.nan
    return array


@pytest.mark.parametrize(
    ("path", "make", "reason"),
    [
        ("best.pt", lambda _: b"", "best.pt is empty"),
        ("best.pt", lambda good: good[: len(good) // 2], "cut off or damaged"),
        ("best.pt", lambda good: _flipped_at(good, 700), "damaged before it was sealed: CRC of archive/data.pkl"),
        (
            "best.pt",
            lambda good: _flipped_at(good, good.index(b"archive/data/0") + 200),
            "damaged before it was sealed: CRC of archive/data/",
        ),
        ("model.safetensors", lambda good: good[:-1], "is cut off or too long"),
        ("model.safetensors", lambda _: b"", "is empty"),
        ("model.safetensors", lambda _: safetensors_bytes({"w1": _nan(np.ones(9, "f4"))}), "3 non-finite (w1)"),
        ("model.safetensors", lambda _: safetensors_bytes({"w9": np.ones(9, "f4")}), "lacks w1"),
        ("metrics.json", lambda _: b"{}", "metrics.json lacks loss"),
        ("metrics.json", lambda _: b"{'loss': 1}", "metrics.json is not JSON"),
        ("metrics.json", lambda _: b"", "metrics.json is empty"),
        ("best.pt", None, "best.pt was not sealed with it"),
        ("log.txt", None, "log.txt was not sealed with it"),
    ],
)
def test_what_was_bad_or_missing_when_it_was_sealed_is_damaged(
    world: World, path: str, make: Callable[[bytes], bytes] | None, reason: str
) -> None:
    """A02: it is there, its digest is right, and it does not load, or holds no good numbers."""
    world.run()
    files = outputs(world.folder, 1)
    good = files.pop(path)
    if make is not None:
        files[path] = make(good)
    world.box.seal(world.cells[1], files, attempt=2)
    world.pull()
    outcome = world.verify()
    cell = cell_of(outcome, GOOD)
    assert cell.state == "damaged"
    assert reason in "; ".join(cell.reasons)
    assert (outcome.differing, outcome.as_sealed) == ([], [GOOD])


def test_what_its_box_doubts_is_suspect_unless_it_is_worse(world: World) -> None:
    """An older version, which knows neither the state nor the doubts, refuses the manifest and the receipt."""
    world.run()
    doubted = {"schema": 2, "doubts": ["x still wrote\x1b[2J", *["more"] * 30]}
    world.box.seal(world.cells[1], outputs(world.folder, 1), attempt=2, **doubted)
    world.pull()
    outcome = world.verify()
    cell = cell_of(outcome, GOOD)
    assert (cell.state, cell.reasons[0], len(cell.reasons)) == ("suspect", "x still wrote?[2J", 20)
    assert not outcome.ok
    assert world.store.receipt(outcome.digest).schema_ == 2
    world.box.seal(world.cells[1], outputs(world.folder, 1) | {"metrics.json": b"{}"}, attempt=2, **doubted)
    world.pull()
    outcome = world.verify()
    assert cell_of(outcome, GOOD).state == "damaged"
    assert world.store.receipt(outcome.digest).schema_ == 1


def test_what_was_left_out_is_told_and_locks_nothing(world: World) -> None:
    world.run()
    skipped = [["latest", "link to step_1 (a folder)"], ["s\x1b", "socket"], *[["p", "pipe"]] * 3]
    world.box.seal(world.cells[1], outputs(world.folder, 1), attempt=2, skipped=skipped)
    world.pull()
    cell = cell_of(world.verify(), GOOD)
    assert cell.state == "verified"
    assert cell.reasons == ("left out: latest is a link to step_1 (a folder), s? is a socket, p is a pipe and 2 more",)


def test_a_file_that_is_far_larger_than_its_data_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run()
    monkeypatch.setattr(verifying, "HOLLOW", 1_000_000)
    files = {**outputs(world.folder, 1), "map": bytes(1_000_000)}
    world.box.seal(world.cells[1], files, attempt=2, sparse={"map": 4096, "best.pt": -5, "other": 1})
    world.pull()
    cell = cell_of(world.verify(), GOOD)
    assert cell.state == "verified"
    assert cell.reasons == (
        "map: 4.1 kB of its 1.0 MB are data, the rest are holes: a bucket, which has none, takes all of it",
    )


def test_non_finite_weights_are_named_and_counted(world: World) -> None:
    world.run()
    weights = torchzip.tensor(_nan(np.ones((4, 4), np.float32)))
    bad = {**outputs(world.folder, 1), "best.pt": checkpoint_bytes(world.folder, 1, model={"head.weight": weights})}
    world.box.seal(world.cells[1], bad, attempt=2)
    world.pull()
    assert cell_of(world.verify(), GOOD).reasons == ("best.pt 3 non-finite (model.head.weight)",)


def test_finite_report_is_noted_and_passes(world: World) -> None:
    world.run()
    world.box.seal(world.cells[1], {**outputs(world.folder, 1), "metrics.json": b'{"loss": NaN}'}, attempt=2)
    world.pull()
    cell = cell_of(world.verify(), GOOD)
    assert cell.state == "verified"
    assert cell.reasons == ("metrics.json: 1 non-finite (loss), reported only",)


def test_an_artifact_that_is_named_by_its_cell(world: World) -> None:
    """A cell that an older runner sealed under the name as it is written keeps that name."""
    world.artifacts = (ArtifactSpec(path="best-{lr}.pt", load="torch"), ArtifactSpec(path="{cell}.json", load="json"))
    world.box.launch(*world.cells)
    for seed, cell in enumerate(world.cells):
        names = ("best-{lr}.pt", "{cell}.json") if seed == 2 else (f"best-{cell.params['lr']}.pt", f"{cell.name}.json")
        made = outputs(world.folder, seed)
        kept = {"log.txt": made["log.txt"], names[0]: made["best.pt"], names[1]: made["metrics.json"]}
        world.box.seal(cell, kept if seed != 1 else {**kept, names[0]: made["best.pt"][:-20]})
    world.pull()
    found = {cell.name: cell for cell in world.verify().receipt.cells}
    assert [found[cell.name].state for cell in world.cells] == ["verified", "damaged", "verified"]
    assert {(file.path, file.loader) for file in found["lr0.1-seed0"].files} == {
        ("best-0.1.pt", "torch"),
        ("lr0.1-seed0.json", "json"),
        ("log.txt", None),
    }
    world.box.seal(world.cells[0], {"log.txt": b"x", "best.pt": b"x"}, attempt=2)
    world.pull()
    assert "best-0.1.pt was not sealed with it" in cell_of(world.verify(), world.cells[0]).reasons


def test_a_stale_copy_is_damaged_until_it_is_pulled_again(world: World) -> None:
    good_sweep(world)
    world.box.seal(world.cells[1], outputs(world.folder, 7), attempt=2)
    cell = cell_of(world.verify(), GOOD)
    assert cell.state == "damaged"
    assert "stale copy: box-0 sealed the cell again" in cell.reasons[0]
    world.pull()
    assert world.verify().ok


def test_a_cell_that_is_retried_is_running_not_verified(world: World) -> None:
    good_sweep(world)
    world.box.start(world.cells[1], attempt=2)
    cell = cell_of(world.verify(), GOOD)
    assert cell.state == "running"
    assert "earlier attempt" in cell.reasons[0]
    dead = [world.box.view(runner_alive=False)]
    assert cell_of(world.verify(boxes=dead), GOOD).state == "failed"


def failed_again(world: World) -> None:
    """GOOD was verified, a person asked for it once more, and that run failed for good."""
    good_sweep(world)
    world.box.start(world.cells[1], attempt=2, retry=1)
    world.box.log("cell-failed", cell=GOOD, attempt=2, exit_code=1, reason="exit code 1: no", final=True)
    world.pull()


def test_the_copy_of_before_stays_the_result_of_a_cell_whose_retry_failed(world: World) -> None:
    failed_again(world)
    outcome = world.verify()
    cell = cell_of(outcome, GOOD)
    assert (cell.state, cell.earlier, cell.has_result, cell.attempt) == ("failed", True, True, 1)
    assert {file.verdict for file in cell.files} == {"ok"}
    assert not outcome.ok
    assert cell.reasons[0].endswith("attempt 2 on box-0: exit code 1: no")
    assert "the copy of attempt 1 is good, and stays the result" in cell.reasons[-1]
    assert outcome.receipt.schema_ == 2, "an older version must not read it as a cell without a copy"
    assert check_cells(world.store, outcome.receipt, [GOOD], full=False) == {GOOD: []}
    (world.copy(GOOD) / "metrics.json").write_bytes(b"{}")
    cell = cell_of(world.verify(), GOOD)
    assert (cell.state, cell.earlier) == ("failed", False)
    assert any("metrics.json" in reason for reason in cell.reasons)


def test_it_stays_so_when_the_box_of_the_retry_is_gone(world: World) -> None:
    """It was called damaged then: no journal at hand records its seal."""
    failed_again(world)
    cell = cell_of(world.verify(boxes=[]), GOOD)
    assert (cell.state, cell.earlier) == ("failed", True)


def test_a_retry_that_fails_on_another_box_locks_that_box(world: World) -> None:
    """It was called verified by the journal of the first box, so that the second one could end with the retry open."""
    good_sweep(world)
    other = Box(world, "box-1")
    other.launch(world.cells[1])
    other.start(world.cells[1], attempt=1, retry=1)
    other.log("cell-failed", cell=GOOD, attempt=1, exit_code=1, reason="exit code 1: no", final=True)
    for boxes in ([world.box.view(), other.view()], [other.view()]):
        cell = cell_of(world.verify(boxes=boxes), GOOD)
        assert (cell.state, cell.earlier) == ("failed", True)


def sealed_again(world: World, **more: object) -> None:
    """GOOD was verified, a person asked for it once more, and that run sealed a copy that is doubted."""
    good_sweep(world)
    world.box.start(world.cells[1], attempt=2, retry=1)
    world.box.seal(world.cells[1], outputs(world.folder, 7), attempt=2, **more)


def test_the_copy_of_before_stays_the_result_until_the_copy_of_the_retry_is_verified(world: World) -> None:
    """Seen: the copy was put aside by the pull, and no command took it back."""
    sealed_again(world, schema=2, doubts=["a process still wrote to t.csv"])
    before = cell_of(world.verify(), GOOD)
    assert (before.state, before.earlier, before.attempt) == ("damaged", True, 1), "it is not pulled"
    world.pull()
    outcome = world.verify()
    cell = cell_of(outcome, GOOD)
    assert (cell.state, cell.earlier, cell.attempt) == ("suspect", False, 2)
    assert cell.aside == cell.result == before.manifest
    assert cell.reasons[-1].startswith("a copy of attempt 1, put aside by a pull, is good")
    assert outcome.receipt.schema_ == 2
    world.box.start(world.cells[1], attempt=3, retry=2)
    assert cell_of(world.verify(), GOOD).aside == before.manifest
    world.box.seal(world.cells[1], outputs(world.folder, 8), attempt=3)
    world.pull()
    cell = cell_of(world.verify(), GOOD)
    assert (cell.state, cell.aside) == ("verified", None)
    assert world.verify().ok


def test_a_copy_that_was_put_aside_counts_only_as_it_was_sealed(world: World) -> None:
    sealed_again(world, schema=2, doubts=["a process still wrote to t.csv"])
    world.pull()
    kept = world.store.root / ".superseded" / f"{GOOD}-1"
    metrics = (kept / "metrics.json").read_bytes()
    (kept / "metrics.json").write_bytes(metrics + b" ")
    assert cell_of(world.verify(), GOOD).aside is None
    (kept / "metrics.json").write_bytes(metrics)
    assert cell_of(world.verify(), GOOD).aside is not None
    (kept / "manifest.json").write_bytes((kept / "manifest.json").read_bytes() + b" ")
    assert cell_of(world.verify(), GOOD).aside is None, "no journal records that seal"


def test_a_seal_that_no_journal_records_does_not_count(world: World) -> None:
    world.run(world.cells[0])
    world.box.seal(world.cells[1], outputs(world.folder, 1), journaled=False)
    shutil.copytree(world.box.sealed(GOOD), world.copy(GOOD))
    assert cell_of(world.verify(), GOOD).reasons == ("no journal at hand records its seal",)


def test_a_seal_of_an_unknown_box_does_not_count(world: World) -> None:
    world.run(world.cells[0])
    world.box.seal(world.cells[1], outputs(world.folder, 1), native_id="local-elsewhere")
    world.pull()
    cell = cell_of(world.verify(), GOOD)
    assert cell.state == "damaged"
    assert "records do not know" in cell.reasons[0]


def test_another_config_than_the_rosters_does_not_count(world: World) -> None:
    good_sweep(world)
    changed = Cell(name=GOOD, params={"lr": 0.3, "seed": 0, "epochs": 3})
    world.cells = (world.cells[0], changed, world.cells[2])
    cell = cell_of(world.verify(), GOOD)
    assert cell.state == "damaged"
    assert "another config" in cell.reasons[0]


def test_an_empty_roster_is_never_verified(world: World) -> None:
    """A06: zero of zero is no yes."""
    world.cells = ()
    outcome = world.verify()
    assert not outcome.ok
    assert (outcome.receipt.verified, outcome.receipt.total) == (0, 0)


def test_a_folder_that_nobody_asked_for_is_named(world: World) -> None:
    good_sweep(world)
    shutil.copytree(world.copy(GOOD), world.copy("lr0.2-seed0"))
    outcome = world.verify()
    assert outcome.unexpected == ["lr0.2-seed0"]
    assert not outcome.ok
    world.dropped = {"lr0.2-seed0": "wrong augmentation"}
    assert world.verify().ok


def test_cells_without_a_copy_are_told_apart(world: World) -> None:
    done, going, broken = world.cells
    world.box.launch(*world.cells)
    world.box.seal(done, outputs(world.folder))
    world.box.start(going)
    world.box.start(broken)
    world.box.log("cell-failed", cell=broken.name, attempt=1, exit_code=2, reason="exit code 2", final=True)
    never, dropped = Cell(name="never", params={}), Cell(name="out", params={})
    world.cells = (*world.cells, never, dropped)
    world.box.start(dropped)
    world.box.log("cell-dropped", cell="out", reason="hangs")
    outcome = world.verify()
    assert {cell.name: (cell.state, cell.reasons) for cell in outcome.receipt.cells} == {
        done.name: ("missing", ("sealed on box-0 and not pulled",)),
        going.name: ("running", ("attempt 1 on box-0",)),
        broken.name: ("failed", ("attempt 1 on box-0: exit code 2",)),
        "never": ("pending", ()),
        "out": ("pending", ("taken out of the queue of box-0: hangs",)),
    }
    other = Box(world, "box-1")
    other.launch(broken, going)
    for cell in (broken, going):
        other.seal(cell, outputs(world.folder))
    outcome = world.verify(boxes=[world.box.view(), other.view()])
    for cell in (broken, going):
        assert cell_of(outcome, cell).reasons == ("sealed on box-1 and not pulled",), "that box has what is wanted"


def test_cells_without_a_copy_of_boxes_that_are_no_more(world: World) -> None:
    """By their journals, of which copies were kept."""
    done, going, broken = world.cells
    world.box.launch(*world.cells)
    world.box.start(broken)
    world.box.log("cell-failed", cell=broken.name, attempt=1, exit_code=2, reason="exit code 2", final=True)
    world.box.seal(done, outputs(world.folder))
    world.box.start(going)
    world.store.write_journal("box-0", 1, world.box.journal_file.read_bytes())
    cells = {cell.name: (cell.state, cell.reasons) for cell in world.verify(boxes=[]).receipt.cells}
    assert cells == {
        done.name: ("missing", ("sealed on box-0 (generation 1) and not pulled",)),
        going.name: ("pending", ()),
        broken.name: ("pending", ()),
    }


def test_what_ran_again_on_a_box_that_is_no_more_did_not_end(world: World) -> None:
    good_sweep(world)
    world.box.start(world.cells[1], attempt=2, retry=1)
    world.pull()
    assert cell_of(world.verify(), GOOD).state == "running"
    cell = cell_of(world.verify(boxes=[]), GOOD)
    assert (cell.state, cell.earlier) == ("failed", True)
    assert "attempt 2 did not end before box-0 (generation 1) did" in cell.reasons[0]


def test_lost_cells_stay_named(world: World) -> None:
    world.store.write_loss(Loss(box="box-0", native_id="local-x/1", cells=(GOOD,), why="deleted by hand", at=BEGIN))
    cell = cell_of(world.verify(boxes=[]), GOOD)
    assert cell.state == "lost"
    assert "deleted by hand" in cell.reasons[0]


def test_verified_cells_outlive_their_box(world: World) -> None:
    good_sweep(world)
    world.box.journal_file.unlink()
    heir = Box(world, "box-0", generation=2)
    heir.launch()
    outcome = world.verify(boxes=[heir.view()])
    assert outcome.ok
    assert [box.generation for box in outcome.receipt.boxes] == [2]


def test_a_later_generation_that_sealed_again_makes_the_copy_stale(world: World) -> None:
    good_sweep(world)
    heir = Box(world, "box-0", generation=2)
    heir.seal(world.cells[1], outputs(world.folder, 9))
    outcome = world.verify(boxes=[heir.view()])
    assert "stale copy: box-0 sealed the cell again; pull again" in cell_of(outcome, GOOD).reasons[0]
    world.pull(heir)
    assert world.verify(boxes=[heir.view()]).ok


def test_a_cell_found_sealed_by_a_later_generation_is_verified(world: World) -> None:
    good_sweep(world)
    (world.store.root / "journals").rename(world.store.root / "gone")
    heir = Box(world, "box-0", generation=2)
    digests = {name: cell.manifest for name, cell in world.box.journal.cells.items()}
    for cell in world.cells:
        heir.log("cell-found-sealed", cell=cell.name, manifest=digests[cell.name], config_digest=cell.config_digest)
    assert world.verify(boxes=[heir.view()]).ok


def _views(box: Box) -> list[ReadBox]:
    """What a caller makes of a box whose journal may be broken."""
    try:
        return [box.view()]
    except JournalDamaged as error:
        return [ReadBox(box.name, box.native_id, box.generation, None, broken=str(error))]


@pytest.mark.parametrize("how", ["edited", "cut", "rewritten"])
def test_a_broken_journal_verifies_nothing(world: World, how: str) -> None:
    good_sweep(world)
    lines = world.box.journal_file.read_bytes().splitlines(keepends=True)
    if how == "edited":
        lines[1] = lines[1].replace(b'"bytes"', b'"bites"')
    elif how == "cut":
        lines = lines[:2]
    else:
        entry = json.loads(lines[0]) | {"slot": 5}
        lines = [canonical_json({**entry, "hash": _hash(entry)}) + b"\n"]
    world.box.journal_file.write_bytes(b"".join(lines))
    outcome = world.verify(boxes=_views(world.box))
    assert outcome.receipt.verified == 0
    assert outcome.receipt.boxes == ()
    assert "the journal of box-0 is broken" in cell_of(outcome, GOOD).reasons[0]
    never = Cell(name="never", params={})
    world.cells = (*world.cells, never)
    outcome = world.verify(boxes=_views(world.box))
    assert (cell_of(outcome, never).state, cell_of(outcome, never).reasons) == ("pending", ()), "it was no cell of its"
    shutil.rmtree(world.copy(GOOD))
    cell = cell_of(world.verify(boxes=_views(world.box)), GOOD)
    assert cell.state == "pending"
    assert "the journal of box-0 is broken" in cell.reasons[0]


def _hash(entry: dict[str, object]) -> str:
    return sha256_hex(canonical_json({key: value for key, value in entry.items() if key != "hash"}))


def test_a_damaged_copy_of_a_dead_boxs_journal_verifies_nothing(world: World) -> None:
    good_sweep(world)
    flip(world.store.journal_path("box-0", 1), 30)
    outcome = world.verify(boxes=[])
    assert outcome.receipt.verified == 0
    assert "copy kept before" in cell_of(outcome, GOOD).reasons[0]


def test_a_live_journal_outweighs_a_damaged_copy_of_it(world: World) -> None:
    good_sweep(world)
    flip(world.store.journal_path("box-0", 1), 30)
    assert world.verify().ok
    world.pull()
    assert world.verify(boxes=[]).receipt.verified == 3


def test_an_unreached_box_speaks_by_its_pulled_journal(world: World) -> None:
    good_sweep(world)
    outcome = world.verify(boxes=[world.box.view(journal=None)])
    assert outcome.ok
    assert outcome.receipt.boxes[0].journal_head == world.box.head


def test_a_damaged_birth_record_means_nobody_knows(world: World) -> None:
    good_sweep(world)
    (world.store.root / "records/births/box-0-g1.json").write_text("{")
    with pytest.raises(EvidenceDamaged, match=r"box-0-g1\.json"):
        world.verify()


def test_the_receipt_is_the_same_for_two_operators(world: World, tmp_path: Path) -> None:
    good_sweep(world)
    flip(world.copy(GOOD) / "best.pt", 700)
    first = world.verify(workers=1)
    other = tmp_path / "elsewhere"
    shutil.copytree(world.store.root, other)
    time.sleep(0.01)
    elsewhere = EvidenceStore(FolderStore("file://elsewhere", other), world.store.marker)
    second = world.verify(store=elsewhere, workers=2)
    assert first.digest == second.digest
    text = (other / "receipts" / f"{second.digest.removeprefix('sha256:')}.json").read_text()
    assert str(tmp_path) not in text
    assert world.store.marker.created_at.isoformat()[:16] not in text


@pytest.mark.usefixtures("workers")
def test_a_hung_reader_is_killed_and_its_file_is_neither_good_nor_damaged(world: World) -> None:
    good_sweep(world)
    (world.copy(world.cells[0]) / "log.txt").unlink()
    outcome = world.verify(seconds=lambda size: 0.0)
    assert outcome.receipt.verified == 0
    assert not outcome.ok
    cell = cell_of(outcome, GOOD)
    assert cell.state == "sealed"
    assert "could not tell: best.pt could not be read within 0 s" in cell.reasons
    assert cell_of(outcome, world.cells[0]).state == "damaged"
    assert outcome.unknown == sorted(c.name for c in world.cells if c.name != world.cells[0].name)


@pytest.mark.usefixtures("workers")
def test_a_command_counts_by_its_answer_and_its_code_is_in_the_receipt(world: World, tmp_path: Path) -> None:
    spec = ArtifactSpec(path="plots/curve.csv", load="command", run="sh check.sh {file}", trust=True)
    world.artifacts = (*world.artifacts, spec)
    world.run()
    world.pull()
    work = tmp_path / "work"
    work.mkdir()
    digests = set()
    for script, state in (
        ("""grep -q 1,2 "$1" && echo '{"ok": true}'""", "verified"),
        ("""echo '{"ok": false, "reason": "empty plot"}'""", "damaged"),
        ("exit 0", "sealed"),
    ):
        (work / "check.sh").write_text(script)
        with check_code(work) as check:
            outcome = world.verify(check=check)
            digests.add(check.digest)
        assert {cell.state for cell in outcome.receipt.cells} == {state}, script
        files = {file.path: file for file in cell_of(outcome, world.cells[0]).files}
        assert files["plots/curve.csv"].loader == f"command {check.digest}"
        assert outcome.unknown == ([cell.name for cell in world.cells] if state == "sealed" else [])
    assert len(digests) == 3
    without = world.verify()
    assert {cell.state for cell in without.receipt.cells} == {"sealed"}
    assert "its code is not here" in cell_of(without, world.cells[0]).reasons[0]


def test_torch_is_asked_for_by_name_and_must_be_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPSTACK_TORCH_READER", "unsafe")
    with pytest.raises(ConfigError, match="restricted or torch"):
        world.verify()
    monkeypatch.setenv("SWEEPSTACK_TORCH_READER", "torch")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="torch is not installed here"):
        world.verify()


def test_where_no_reader_runs_nothing_is_known(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file was read then, and no cell has a reason against it."""
    good_sweep(world)

    def broken(work: Iterable[object], **_: object) -> Iterator[object]:
        for _job in work:
            raise WorkersBroken("no numpy here")
        yield

    monkeypatch.setattr(verifying, "read_all", broken)
    with pytest.raises(EvidenceError, match="nothing is known: no numpy here"):
        world.verify()
    assert world.store.latest_receipt() is None


def test_the_reader_that_was_asked_for_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    good_sweep(world)
    asked, reading = [], verifying.read_all

    def noted(work: Iterable[FileToRead], *, reader: Reader, **how: Any) -> object:
        asked.append(reader)
        return reading(work, reader="restricted", **how)

    monkeypatch.setattr(verifying, "read_all", noted)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    world.verify()
    monkeypatch.setenv("SWEEPSTACK_TORCH_READER", "torch")
    world.verify()
    world.verify(reader="restricted")
    assert asked == ["restricted", "torch", "restricted"]


def test_a_manifest_that_can_not_be_read_fails_its_cell_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    good_sweep(world)
    read = FolderCopies.manifest

    def denied(copies: FolderCopies, cell: str) -> bytes | None:
        if cell == GOOD:
            raise PermissionError(13, "Permission denied")
        return read(copies, cell)

    monkeypatch.setattr(FolderCopies, "manifest", denied)
    outcome = world.verify()
    assert (cell_of(outcome, GOOD).state, outcome.receipt.verified) == ("damaged", 2)
    assert cell_of(outcome, GOOD).reasons == ("its manifest can't be read: Permission denied",)


@pytest.mark.usefixtures("workers")
def test_progress_reaches_the_end(world: World) -> None:
    good_sweep(world)
    seen: list[tuple[str, int, int]] = []
    request = VerifyRequest(
        IDENTITY, STACK, FakeRoster(world.cells), world.artifacts, world.store, [world.box.view()], workers=1
    )
    verify(request, lambda name, done, total: seen.append((name, done, total)))
    assert seen[-1][1] == seen[-1][2] > 0


def test_an_empty_journal_is_a_head_of_its_own(world: World) -> None:
    outcome = world.verify()
    assert outcome.receipt.boxes[0].journal_head == Journal().head == parse_journal(b"").head
    assert not outcome.ok
