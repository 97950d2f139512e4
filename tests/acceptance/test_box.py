"""Completeness and evidence (A) and what happens on a box (B), with the real runner."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.core.journal import parse_journal
from sweepstack.core.records import Manifest
from sweepstack.evidence.manifest import parse_manifest
from sweepstack.onbox.common.errors import JournalDamaged, SweepstackError
from tests.onbox.harness import IDENTITY, Box, wait_for
from tests.onbox.test_disk import MB, MIN_FREE, SmallDisk, blocked


def test_a01_zero_byte_checkpoint_is_not_sealed(box: Box) -> None:
    """Training says success and leaves an empty artifact: never sealed, named as empty; the others are."""
    box.set(retries=0)
    for name in ("a", "b", "c"):
        write = ": > {out}/result.json" if name == "b" else "echo '{ }' > {out}/result.json"
        box.add(name, f"{write}; echo success")
    box.run("a", "c", code=1)
    (failure,) = box.events("cell-failed", "b")
    assert failure["exit_code"] == 0
    assert "artifact empty: result.json" in failure["reason"]
    assert not box.sealed("b").exists()


def test_a07_durable_sync_fails_and_training_exits_0(box: Box) -> None:
    """What can't be copied to the durable tier is not done, whatever training said; the queue's exit code says so."""
    box.set(retries=0)
    held = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    tier = box.sealed("a").parent
    tier.rename(tier.with_name("unmounted"))
    tier.write_text("no folder any more")
    held.unlink()
    assert runner.ended() == 1, box.log()
    assert box.state("a") == "failed"
    (failure,) = box.events("cell-failed", "a")
    assert failure["exit_code"] == 0
    assert "could not be sealed" in failure["reason"]
    assert box.events("cell-sealed") == []


PRODUCED = {
    "manifest": {
        "schema", "identity", "box", "native_id", "generation", "cell", "attempt", "config_digest", "params", "code",
        "argv", "started_at", "sealed_at", "environment", "files",
    },
    "file": {"path", "size", "sha256", "role"},
    "cell-started": {"attempt", "argv", "cell", "code", "config_digest", "slot", "version"},
    "cell-sealed": {"attempt", "bytes", "cell", "config_digest", "manifest"},
}  # fmt: skip


def test_fixture_rule(box: Box) -> None:
    """The shapes that our fixtures have are those that the real runner writes; a wrong one is not read."""
    box.add("a", lr=0.1)
    box.run("a")
    data = (box.sealed("a") / "manifest.json").read_bytes()
    raw = json.loads(data)
    assert PRODUCED["manifest"] <= set(raw)
    assert {field.alias or name for name, field in Manifest.model_fields.items() if field.is_required()} <= set(raw)
    for file in raw["files"]:
        assert set(file) == PRODUCED["file"]
    lines = (box.home / "journal.jsonl").read_bytes().splitlines()
    for event in ("cell-started", "cell-sealed"):
        (line,) = [entry for entry in map(json.loads, lines) if entry["event"] == event]
        assert PRODUCED[event] <= set(line)
    for key in PRODUCED["manifest"]:
        without = {name: value for name, value in raw.items() if name != key}
        with pytest.raises(SweepstackError, match="its manifest"):
            parse_manifest(json.dumps(without).encode(), IDENTITY, "a")


def test_fixture_rule_for_the_tests_own_worlds(box: Box, tmp_path: Path) -> None:
    """The worlds that other tests build by hand have the keys of the real ones, and none that the runner lacks."""
    from tests.unit.evidence.world import World

    world = World(tmp_path / "world")
    world.run()
    box.add("a", lr=0.1)
    box.run("a")
    theirs = json.loads((world.box.sealed(world.cells[0].name) / "manifest.json").read_bytes())
    real = json.loads((box.sealed("a") / "manifest.json").read_bytes())
    assert set(theirs) <= set(real)
    entries = {entry["event"]: set(entry) for entry in world.box.journal.entries}
    for entry in box.journal().entries:
        if entry["event"] in entries:
            assert entries[entry["event"]] <= set(entry), entry["event"]


def test_a03_log_that_says_done_is_no_evidence(box: Box) -> None:
    """A job that prints the runner's own words of success, and then hangs or fails, has done nothing."""
    box.set(retries=0)
    box.add("a", "echo '[sweepstack] attempt 1: exit code 0 after 1.0 s'; echo a sealed, 5 bytes; exit 3")
    box.add("b")
    box.run("b", code=1)
    assert box.state("a") == "failed"
    with pytest.raises(JournalDamaged):
        parse_journal(b"cell-sealed a\n")


def test_b07_script_replaced_under_a_live_run(box: Box) -> None:
    """A new version lies beside the old one: what runs keeps its files, cells that come later take the new ones."""
    held = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    code = box.home / "code" / box.code.removeprefix("sha256:")
    before = {path.name: path.read_bytes() for path in code.iterdir()}
    box.code = box.ship({"new.py": "import sys, pathlib\npathlib.Path(sys.argv[1], 'result.json').write_text('2')\n"})
    box.add("b", "python new.py {out}")
    held.unlink()
    assert runner.ended() == 0, box.log()
    assert {path.name: path.read_bytes() for path in code.iterdir()} == before
    assert (box.sealed("b") / "result.json").read_text() == "2"
    assert box.manifest("a").code != box.manifest("b").code
    wait_for(lambda: not list(box.processes(cells=True)), box.log)


def test_b04_disk_full_by_inodes(small_disk: Callable[..., SmallDisk]) -> None:
    """Two thirds of the bytes are free and no inode is: no cell starts, and the words are of inodes, not of bytes."""
    disk = small_disk(inodes=1000)
    box, many = disk.box, disk.use_up_inodes()
    box.add("a", f"touch {box.control}/trained; echo > {{out}}/result.json")
    runner = box.start()
    event = blocked(box)
    assert event["why"] == "inodes"
    assert "inodes" in event["hint"]
    assert "GB" not in event["hint"]
    assert not (box.control / "trained").exists()
    assert box.events("cell-started") == box.events("cell-failed") == []
    assert disk.free > disk.box.settings["min_free"]["bytes"]
    shutil.rmtree(many)
    assert runner.ended() == 0
    assert box.state("a") == "sealed"


def test_b05_disk_fills_mid_queue(small_disk: Callable[..., SmallDisk]) -> None:
    """Too little room after the second of six: the others do not start and do not fail; they go on with the third."""
    disk = small_disk()
    box, filler = disk.box, disk.folder / "filler"
    for number in range(1, 7):
        leave = f"; fallocate -l {disk.free - 40 * MB} {filler}; sync" if number == 2 else ""
        box.add(f"c{number}", f"echo > {{out}}/result.json{leave}")
    box.set(min_free=MIN_FREE | {"bytes": 60 * MB})
    runner = box.start()
    event = blocked(box)
    assert (event["why"], event["needed"]) == ("disk", 60 * MB)
    started = [one["cell"] for one in box.events("cell-started")]
    assert started[:2] == ["c1", "c2"]
    assert "c3" not in started
    assert box.events("cell-failed") == []
    filler.unlink()
    assert runner.ended() == 0
    assert [one["cell"] for one in box.events("cell-started")] == [f"c{number}" for number in range(1, 7)]
    assert {box.state(f"c{number}") for number in range(1, 7)} == {"sealed"}


def test_b02_box_reclaimed_in_the_middle_of_a_cell(box: Box) -> None:
    """No signal, no grace: the same command goes on from the checkpoint that was loaded, in a second try of the same
    config, and what a save left half-way is no candidate. The cadence: test_interval_is_young_and_daly_s."""
    box.set(retries=0)
    held = box.hold("a")
    cell = box.add_steps("a", seed=7)
    runner = box.start()
    box.in_the_middle("a")
    os.killpg(box.pid("a"), signal.SIGKILL)
    runner.kill()
    (saved,) = {path.parent for path in (box.volume / IDENTITY / "checkpoints" / "a").rglob("step-*.ckpt")}
    (saved / f"step-00000009-{64 * 'f'}.ckpt.tmp").write_bytes(b"half of a save")
    held.unlink()
    box.run("a")
    assert box.output("a", 2).startswith("starts at 6 ")
    starts = box.events("cell-started", "a")
    assert [one["attempt"] for one in starts] == [1, 2]
    assert {one["config_digest"] for one in starts} == {cell.config_digest}
    assert box.manifest("a").attempt == 2
