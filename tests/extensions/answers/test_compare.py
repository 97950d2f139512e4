"""`sweepctl results --compare A B`: config, values, curves, a diff of the code, and the environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.core import extensions
from sweepstack.core.workdir import collect
from sweepstack.launch.ship import pack
from tests.unit.cli.support import World


def code(world: World, folder: Path, **files: bytes) -> str:
    """Puts a version of the code into the evidence: its digest."""
    folder.mkdir()
    for name, data in files.items():
        (folder / f"{name}.py").write_bytes(data)
    shipment = collect(folder, (), ())
    world.store.write_code(shipment.digest, pack(folder, shipment))
    return shipment.digest


def test_all_that_differs_is_told(world: World, tmp_path: Path) -> None:
    one = code(world, tmp_path / "one", train=b"lr = 1\nkeep = 2\n", gone=b"x\n", raw=b"\0a")
    other = code(world, tmp_path / "other", train=b"lr = 3\nkeep = 2\n", new=b"y\n", raw=b"\0b")
    box = world.add()
    rows = [b'{"step": 0, "loss": 0.5}\n', b'{"step": 0, "loss": 0.4}\n{"step": 1, "loss": 0.2}\n']
    box.seal("lr0.1", files={"metrics.jsonl": rows[0]}, code=one, environment={"torch": "2.6", "gpus": ["H200"]})
    box.seal("lr0.3", files={"metrics.jsonl": rows[1]}, code=other, environment={"torch": "2.7", "gpus": ["H200"]})
    assert world.run("pull").code == 0
    world.run("verify")
    found = world.run("results", "--compare", "lr0.1", "lr0.3", "--json").json
    assert found["config"] == {"lr": [0.1, 0.3]}
    assert found["environment"] == {"torch": ["2.6", "2.7"]}, "and not what is the same"
    assert [(row["cell"], row["last"], row["least"]) for row in found["curves"]] == [
        ("lr0.1", [0.0, 0.5], [0.0, 0.5]),
        ("lr0.3", [1.0, 0.2], [1.0, 0.2]),
    ]
    diff = found["code"]["diff"]
    assert {"-lr = 1", "+lr = 3", " keep = 2", "+++ /dev/null", "--- /dev/null", "-x", "+y"} <= set(diff)
    assert "a/raw.py and b/raw.py differ, and are no text or too long" in diff
    text = world.run("results", "--compare", "lr0.1", "lr0.3").out
    assert "-lr = 1" in text
    assert "torch" in text


def test_what_is_not_known_is_said(world: World) -> None:
    box = world.add()
    box.seal("lr0.1")
    box.start("lr0.3", metrics=[{"step": 1, "loss": 0.5}])
    assert world.run("pull").code == 0
    shown = world.run("results", "--compare", "lr0.1", "lr0.3")
    assert shown.code == 1
    assert "unknown  lr0.3 has no pulled copy" in shown.out
    assert "code: the same" not in shown.out
    lost = world.run("results", "--compare", "lr0.1", "lr0.4")
    assert lost.code == 1
    assert "there is no cell lr0.4" in lost.err
    assert world.run("results", "--compare", "lr0.1").code == 2
    assert world.run("results", "--compare", "lr0.1", "lr0.3", "--all").code == 2
    unlogged = world.run("results", "--compare", "lr0.1", "lr0.3", "--metric", "los")
    assert unlogged.code == 1
    assert '--metric los: metrics.jsonl has loss; did you mean "loss"?' in unlogged.err


def test_a_lost_archive_of_the_code_is_no_equal_code(world: World, tmp_path: Path) -> None:
    box = world.add()
    box.seal("lr0.1")
    box.seal("lr0.3", code=code(world, tmp_path / "one", train=b"1"))
    assert world.run("pull").code == 0
    found = world.run("results", "--compare", "lr0.1", "lr0.3", "--json").json
    assert found["code"]["diff"] == []
    assert "has no archive of code" in found["code"]["problem"]


def test_without_the_extension_it_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add().seal("lr0.1")
    monkeypatch.delitem(extensions.ROOTS, "sweepstack.extensions")
    shown = world.run("results", "--compare", "lr0.1", "lr0.3")
    assert shown.code == 2
    assert "belongs to the extension `answers`" in shown.err
