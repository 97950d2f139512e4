"""A cell that begins from another one, on the box: real runners, real kills, damaged copies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.records import Cell
from sweepstack.extensions.longer.onbox import begin
from sweepstack.onbox.common.canonical import canonical_json, digest_of_bytes, file_sha256, hex_of
from sweepstack.onbox.common.longer import FROM, MARK, SOURCE
from sweepstack.onbox.common.next_version import checkpoint_name, work_of
from tests.onbox.harness import IDENTITY, Box, around

JOB = """
import json, os, sys, time
from pathlib import Path
steps, out, checkpoints, control = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
cell = os.environ["SWEEPSTACK_CELL"]
kept = checkpoints / "state.json"
done = json.loads(kept.read_text()) if kept.exists() else []
print(f"begins at {len(done)} of {sorted(os.listdir(checkpoints))}", flush=True)
while len(done) < steps:
    done.append(cell)
    beside = checkpoints / "state.tmp"
    beside.write_text(json.dumps(done))
    os.replace(beside, kept)
    if len(done) == steps - 1:
        (control / f"middle-{cell}").touch()
        while (control / f"hold-{cell}").exists():
            time.sleep(0.01)
(out / "notes.txt").write_text("not proved by any loader")
(out / "result.json").write_text(json.dumps(done))
(out / "state.json").write_text(json.dumps(done))
"""
RUN = "python job.py {steps} {out} {checkpoints} CONTROL"
NAMES = ("result.json", "state.json")


@pytest.fixture
def box(make_box: Callable[..., Box]) -> Box:
    artifacts = [{"path": name, "load": "json", "keys": [], "finite": "report", "min_bytes": 1} for name in NAMES]
    found = make_box(artifacts=artifacts)
    found.code = found.ship({"job.py": JOB})
    return found


def add(box: Box, name: str, steps: int, source: str = "", manifest: str = "", **more: Any) -> dict[str, Any]:
    """Appends a cell's line, and returns it."""
    cell = Cell(name=name, params={"steps": steps, **({SOURCE: source} if source else {})})
    line = box.line(cell, RUN.replace("CONTROL", str(box.control)))
    line |= {FROM: {"cell": source, "manifest": manifest}} if source else {}
    box.append(line | more)
    return line | more


def short_run(box: Box, steps: int = 3) -> str:
    """A cell that has ended; its manifest's digest."""
    add(box, "short", steps)
    box.run("short")
    return str(box.journal().cells["short"].manifest)


def folder_of(box: Box, line: dict[str, Any]) -> Path:
    name = checkpoint_name(line["config_digest"], work_of(line, int(line.get("salt", 0))))
    return box.volume / IDENTITY / "checkpoints" / line["cell"] / name


def result(box: Box, cell: str) -> list[str]:
    found = json.loads((box.sealed(cell) / "result.json").read_text())
    assert isinstance(found, list)
    return found


def begun_from(box: Box, cell: str) -> dict[str, str]:
    """What the seal says; the journal says the same of each start."""
    begun = box.manifest(cell).begun_from
    assert begun is not None
    said = {"cell": begun.cell, "manifest": begun.manifest}
    assert all(one[FROM] == said for one in box.events("cell-started", cell))
    return said


def test_it_goes_on_from_the_sealed_artifacts_and_says_so(box: Box) -> None:
    manifest = short_run(box)
    line = add(box, "long", 5, "short", manifest)
    box.run("long")
    assert result(box, "long") == ["short"] * 3 + ["long"] * 2
    assert box.output("long").startswith(f"begins at 3 of {sorted([MARK, *NAMES])}")
    assert begun_from(box, "long") == {"cell": "short", "manifest": manifest}
    assert box.manifest("short").begun_from is None
    assert [path.name for path in folder_of(box, line).parent.iterdir()] == [folder_of(box, line).name]


def test_after_a_kill_it_goes_on_from_its_own_checkpoint(box: Box) -> None:
    manifest = short_run(box)
    add(box, "long", 6, "short", manifest)
    held = box.hold("long")
    runner = box.start()
    box.in_the_middle("long")
    runner.kill()
    shutil.rmtree(box.sealed("short"))
    runner = box.start()  # which ends what the killed one left running
    runner.until("long", "sealed", 2)
    held.unlink()
    assert runner.ended() == 0, box.log()
    assert box.output("long", 2).startswith("begins at 5")
    assert result(box, "long") == ["short"] * 3 + ["long"] * 3
    assert begun_from(box, "long") == {"cell": "short", "manifest": manifest}


def test_a_chain(box: Box) -> None:
    manifest = short_run(box)
    add(box, "long", 5, "short", manifest)
    box.run("long")
    add(box, "longest", 7, "long", str(box.journal().cells["long"].manifest))
    box.run("longest")
    assert result(box, "longest") == ["short"] * 3 + ["long"] * 2 + ["longest"] * 2


# What "changed" proves by the digest, the others of make proof prove by size and name.
@pytest.mark.parametrize(
    "how",
    [
        *("changed", "another", "link", "no manifest"),
        *(pytest.param(one, marks=pytest.mark.proof) for one in ("cut", "lost")),
    ],
)
def test_what_is_not_the_sealed_copy_is_not_begun_from(box: Box, how: str) -> None:
    """Refused in words; what is sent later is begun from, once a person asks for the cell again."""
    manifest = short_run(box)
    sealed = box.sealed("short")
    kept = shutil.copytree(sealed, box.root / "kept")
    state = sealed / "state.json"
    if how == "changed":
        state.write_bytes(state.read_bytes().replace(b"short", b"shirt"))
    elif how == "cut":
        state.write_bytes(state.read_bytes()[:-1])
    elif how == "lost":
        state.unlink()
    elif how == "link":
        shutil.copy(state, box.root / "elsewhere")
        state.unlink()
        state.symlink_to(box.root / "elsewhere")
    elif how == "no manifest":
        (sealed / "manifest.json").unlink()
    asked = "sha256:" + "0" * 64 if how == "another" else manifest
    line = add(box, "long", 5, "short", asked)
    assert box.start().ended() == 1
    (failed,) = box.events("cell-failed", "long")
    assert "what it begins from can't be had on this box, short as" in failed["reason"]
    assert failed["final"]
    folder = folder_of(box, line)
    assert not folder.exists()
    sent = folder.parent / f"{hex_of(manifest)[:16]}.sent"
    shutil.copytree(kept, sent)
    again = add(box, "long", 5, "short", manifest, retry=1)
    box.run("long")
    assert result(box, "long") == ["short"] * 3 + ["long"] * 2
    assert not sent.exists()
    assert folder_of(box, again).exists()


def test_holes_of_a_sealed_file_stay_holes(tmp_path: Path) -> None:
    sealed, there = tmp_path / "sealed", tmp_path / "there"
    sealed.mkdir()
    with open(sealed / "map", "wb") as file:
        file.write(b"begins")
        file.truncate(64 << 20)
    if (sealed / "map").stat().st_blocks * 512 >= 1 << 20:
        pytest.skip("this file system has no holes")
    digest = file_sha256(sealed / "map")
    data = canonical_json({"files": [{"path": "map", "size": 64 << 20, "sha256": digest, "role": "artifact"}]})
    (sealed / "manifest.json").write_bytes(data + b"\n")
    begin.copy_artifacts(sealed, digest_of_bytes(data), there)
    assert file_sha256(there / "map") == digest
    assert (there / "map").stat().st_blocks * 512 < 1 << 20


def test_a_line_that_does_not_say_from_which_copy_starts_nothing(box: Box) -> None:
    cell = Cell(name="long", params={"steps": 5, SOURCE: "short"})
    line = box.line(cell, RUN.replace("CONTROL", str(box.control)))
    short_run(box)
    wrong: list[Any] = [{}, {"cell": "other", "manifest": "sha256:" + "0" * 64}, {"cell": "short", "manifest": "x"}]
    box.append(line, *(line | {FROM: said} for said in wrong))
    assert box.start().ended() == 1
    assert not box.events("cell-started", "long")
    assert "does not say from which sealed copy of short" in str(box.events("cell-refused", "long")[0]["reason"])


def test_a_runner_without_the_extension_starts_no_such_cell(box: Box) -> None:
    manifest = short_run(box)
    add(box, "long", 5, "short", manifest)
    shutil.rmtree(box.runner / "sweepstack" / "onbox" / "longer")
    assert box.start().ended() == 7
    assert not box.events("cell-started", "long")


# In make proof: what leaves the same behind as one of the others.
KILLED = [
    pytest.param("begin._copy = die", id="before a file", marks=pytest.mark.proof),
    pytest.param("old = begin._copy; begin._copy = lambda *a: (old(*a), die())", id="after a file"),
    pytest.param("begin.write_atomically = die", id="before the mark", marks=pytest.mark.proof),
    pytest.param("begin.fsync_directory = die", id="before the flush", marks=pytest.mark.proof),
    pytest.param("begin.os.rename = die", id="before the name"),
    pytest.param("old = os.rename; begin.os.rename = lambda *a: (old(*a), die())", id="after the name"),
]


@pytest.mark.parametrize("change", KILLED)
def test_killed_in_the_middle_of_the_copy(box: Box, change: str) -> None:
    manifest = short_run(box)
    line = add(box, "long", 5, "short", manifest)
    script = around(box, f"from sweepstack.onbox.longer import begin\n{change}")
    assert box.start(script=script).ended() == -9, box.log()
    folder = folder_of(box, line)
    if folder.exists():
        assert sorted(path.name for path in folder.iterdir()) == sorted([MARK, *NAMES])
    box.run("long")
    assert result(box, "long") == ["short"] * 3 + ["long"] * 2
    assert [path.name for path in folder.parent.iterdir() if path.name != folder.name] == [], "it takes no room"


MADE_AT_ONCE = """
from sweepstack.onbox.longer import begin
held, ready = [], begin.Beginnings.ready
class Held(begin.threading.Thread):
    def start(self):
        held.append(self)
def and_made(self, entry):
    said = ready(self, entry)
    while held:
        held.pop().run()
    return said
begin.threading = type("threading", (), {"Thread": Held})
begin.Beginnings.ready = and_made
"""


def test_a_copy_that_is_made_as_soon_as_the_cell_was_put_back(box: Box) -> None:
    """The queue is not drained then: the cell is to start."""
    manifest = short_run(box)
    add(box, "long", 5, "short", manifest)
    assert box.start(script=around(box, MADE_AT_ONCE)).ended() == 0, box.log()
    assert result(box, "long") == ["short"] * 3 + ["long"] * 2


def test_a_new_seal_of_the_source_changes_nothing_of_a_cell_that_has_begun(box: Box) -> None:
    manifest = short_run(box)
    add(box, "long", 6, "short", manifest)
    box.run("long")
    add(box, "short", 3, retry=1, salt=1)
    box.run("short")
    newer = str(box.journal().cells["short"].manifest)
    assert newer != manifest
    assert begun_from(box, "long") == {"cell": "short", "manifest": manifest}
    add(box, "long", 6, "short", newer, retry=1, salt=1)
    box.run("long")
    begun = box.manifest("long").begun_from
    assert begun is not None
    assert begun.manifest == newer
