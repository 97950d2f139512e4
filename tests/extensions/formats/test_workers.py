"""A good file or folder of each format is verified in a real worker: without a network, and within its limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweepstack.core.records import ArtifactSpec
from tests.extensions.formats.damage import files_below
from tests.extensions.formats.samples import FILES
from tests.extensions.formats.test_damage import EVERY, sample
from tests.unit.evidence.world import World, cell_of

QUICK = ("png", "gguf", "onnx", "h5", "keras", "tfevents", "msgpack", "joblib.gz", "wds.tar", "hf", "zarr", "mixed")
"""One for each library, of those that are imported in a second."""


def play(name: str, tmp_path: Path) -> None:
    good, _, spec = sample(name, tmp_path)
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world")
    world.artifacts = (ArtifactSpec(path=good.name if name in FILES else f"{good.name}/", load=spec.load),)
    cell, *_ = world.cells
    world.cells = (cell,)
    world.box.launch(cell)
    files = [good] if good.is_file() else [good / file for file in files_below(good)]
    held = {str(file.relative_to(tmp_path)): file.read_bytes() for file in files}
    world.box.seal(cell, {"log.txt": b"step 1\n", **held})
    world.pull()
    found = cell_of(world.verify(), cell)
    assert found.state == "verified", found.reasons


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("name", QUICK)
def test_it_is_verified(name: str, tmp_path: Path) -> None:
    play(name, tmp_path)


@pytest.mark.proof  # the rest of them: test_it_is_verified
@pytest.mark.parametrize("name", [name for name in EVERY if name not in QUICK])
def test_each_is_verified(name: str, tmp_path: Path) -> None:
    play(name, tmp_path)
