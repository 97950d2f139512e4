"""Artifacts of several files: verified as a whole, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.records import LATER, SCHEMA, ArtifactSpec, ReceiptCell
from sweepstack.loaders.base import PlainSpec
from sweepstack.loaders.load import load
from sweepstack.onbox.common.canonical import digest_of
from tests.unit.evidence.world import World, cell_of, outputs


def sealed(world: World, *artifacts: ArtifactSpec, spoil: dict[str, bytes] | None = None) -> Path:
    """One cell with two checkpoints, pulled; where its copy lies."""
    world.artifacts = artifacts
    made = outputs(world.folder)
    files = {
        "log.txt": made["log.txt"],
        "ckpt-1/model.safetensors": made["model.safetensors"],
        "ckpt-1/metrics.json": made["metrics.json"],
        "ckpt-20/model.safetensors": outputs(world.folder, 1)["model.safetensors"],
        "part-0.json": b'{"a": 1}',
        "part-1.json": b'{"a": 2}',
    }
    cell = world.cells[0]
    world.cells = (cell,)
    world.box.launch(cell)
    world.box.seal(cell, {**files, **(spoil or {})})
    world.pull()
    return world.store.copies.folder(cell.name)  # type: ignore[attr-defined, no-any-return]


def found(world: World) -> ReceiptCell:
    return cell_of(world.verify(), world.cells[0].name)


FOLDERS = ArtifactSpec(path="ckpt-*/", load="folder")
PARTS = ArtifactSpec(path="part-*.json", load="json", keys=("a",))


def test_a_pattern_of_files_and_one_of_folders(world: World) -> None:
    sealed(world, FOLDERS, PARTS)
    outcome = world.verify()
    cell = cell_of(outcome, world.cells[0].name)
    assert (cell.state, cell.reasons) == ("verified", ())
    loaders = {file.path: file.loader for file in cell.files}
    assert loaders == {
        "ckpt-1/metrics.json": "json",
        "ckpt-1/model.safetensors": "safetensors",
        "ckpt-20/model.safetensors": "safetensors",
        "log.txt": None,
        "part-0.json": "json",
        "part-1.json": "json",
    }
    folders, parts = cell.groups
    assert (folders.path, folders.loader, folders.files, folders.verdict) == ("ckpt-*/", "folder", 3, "ok")
    entries = sorted((file.path, file.size, file.sha256) for file in cell.files if file.path.startswith("part-"))
    assert parts.digest == digest_of(entries)
    assert outcome.receipt.schema_ == LATER
    assert world.store.receipt(outcome.digest) == outcome.receipt


def test_a_receipt_without_them_is_as_it_was(world: World) -> None:
    sealed(world, ArtifactSpec(path="part-0.json", load="json"))
    receipt = world.verify().receipt
    assert receipt.schema_ == SCHEMA
    assert "groups" not in json.loads(receipt.cells[0].model_dump_json())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda copy: (copy / "ckpt-20/model.safetensors").unlink(), "ckpt-20/model.safetensors is not there"),
        (lambda copy: (copy / "ckpt-1/late.json").write_text("{}"), "ckpt-1/late.json is not in its manifest"),
        (lambda copy: (copy / "part-7.json").write_text("{}"), "part-7.json is not in its manifest"),
        (lambda copy: (copy / "part-0.json").write_text('{"a": 3}'), "part-0.json differs from what was sealed"),
        (lambda copy: (copy / "ckpt-30").symlink_to("ckpt-20"), "ckpt-30"),
    ],
)
def test_what_changed_between_pull_and_verify(world: World, change: Any, reason: str) -> None:
    copy = sealed(world, FOLDERS, PARTS)
    change(copy)
    cell = found(world)
    assert cell.state == "damaged"
    assert any(reason in said for said in cell.reasons)


def test_nothing_that_a_pattern_means_is_not_verified(world: World) -> None:
    sealed(world, ArtifactSpec(path="epoch-*/", load="folder"), ArtifactSpec(path="lo*.txt", load="json"))
    cell = found(world)
    assert cell.state == "damaged"
    assert cell.reasons == ("epoch-*/ was not sealed with it", "lo*.txt was not sealed with it")
    assert [group.verdict for group in cell.groups] == ["is not there", "is not there"]


def test_one_bad_file_or_folder_damages_the_cell(world: World) -> None:
    sealed(world, FOLDERS, PARTS, spoil={"part-1.json": b'{"b": NaN}', "ckpt-20/model.safetensors": b"cut"})
    cell = found(world)
    assert cell.state == "damaged"
    assert cell.reasons == (
        "ckpt-20/model.safetensors is too short for a safetensors file",
        "part-1.json lacks a",
        "part-1.json 1 non-finite (b)",
    )
    assert [group.verdict.partition(" ")[0] for group in cell.groups] == ["ckpt-20/model.safetensors", "part-1.json"]


def test_a_folder_is_judged_by_a_command_as_a_whole(world: World) -> None:
    check = ArtifactSpec(path="ckpt-1/", load="command", run="test -d {file} && ls {file}", trust=True)
    sealed(world, check)
    cell = found(world)
    assert cell.state == "sealed", "its code is not here, so nothing is known"
    assert "could not tell: ckpt-1/ is to be judged by a command" in cell.reasons[0]


def test_without_the_extension_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text("{}")
    assert load(str(tmp_path), PlainSpec("folder"), members=("a.json",)).ok
    monkeypatch.setattr("sweepstack.loaders.load.part_of", lambda *_: None)
    result = load(str(tmp_path), PlainSpec("folder"), members=("a.json",))
    assert (result.ok, result.unknown) == (False, True)
    assert "belongs to the extension `formats`, which is not installed here" in result.reasons[0]
    assert not load(str(tmp_path / "a.json"), PlainSpec("yaml")).ok
