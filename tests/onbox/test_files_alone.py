"""What the files alone decide: cells that end well and leave the wrong files are not trained again for that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sweepstack.core.records import Cell
from sweepstack.onbox.common.canonical import digest_of
from tests.onbox.harness import Box, around, wait_for

TABLE = "echo $SWEEPSTACK_ATTEMPT >> {control}/ran-$SWEEPSTACK_CELL; echo 1 > {{out}}/table.json"


def ask(box: Box, file: str, *cells: str, run: str = TABLE, **more: Any) -> None:
    """What an `up` does: the artifact, and a line for each cell, whose version depends on it."""
    artifacts = [{"path": file, "load": "json"}]
    box.set(artifacts=artifacts)
    for name in cells:
        line = box.line(Cell(name=name, params={}), run.format(control=box.control))
        box.append({**line, "artifacts": digest_of(artifacts), **more})


def trainings(box: Box, cell: str) -> int:
    path = box.control / f"ran-{cell}"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_other_artifacts_are_tried_on_the_files_that_are_there(box: Box) -> None:
    ask(box, "model.json", "a")
    box.run(code=1)
    before = box.journal().cells["a"]
    box.set(env={"LATER": "1"})  # the manifest tells of the attempt that ran
    ask(box, "table.json", "a")
    box.run("a")
    assert trainings(box, "a") == 1
    manifest = box.manifest("a")
    assert (manifest.attempt, manifest.code, manifest.started_at) == (1, box.code, manifest.started_at)
    assert before.started_at is not None
    assert abs((manifest.started_at - before.started_at).total_seconds()) < 2
    assert {file.path: file.role for file in manifest.files} == {"log.txt": "log", "table.json": "artifact"}
    (sealed,) = box.events("cell-sealed", "a")
    assert (sealed["attempt"], sealed["resealed"]) == (1, True)
    assert json.loads((box.sealed("a") / "manifest.json").read_bytes())["resealed"] is True
    head = box.journal().head
    box.run("a")
    assert box.journal().head == head


def test_a_second_wrong_name_costs_no_training_either_and_a_retry_does(box: Box) -> None:
    ask(box, "model.json", "a")
    box.run(code=1)
    ask(box, "tabel.json", "a")
    box.run(code=1)
    box.run(code=1)  # nor does the next runner try anything
    _, second = box.events("cell-failed", "a")
    assert second["reason"].startswith("artifact missing: tabel.json; there are: table.json (2 B)")
    assert (second["class"], second["final"], second["attempt"]) == ("files", True, 1)
    assert trainings(box, "a") == 1
    ask(box, "tabel.json", "a", retry=1)
    box.run(code=1)
    assert trainings(box, "a") == 2
    ask(box, "table.json", "a", retry=1)
    box.run("a")
    assert (trainings(box, "a"), box.manifest("a").attempt) == (2, 2)


def test_what_computes_something_else_or_did_not_end_well_is_trained(box: Box) -> None:
    ask(box, "model.json", "a", "b", "c")
    box.set(slots=4)
    ask(box, "model.json", "d", run=TABLE + "; exit 1")
    box.run(code=1)
    (box.home / "cells/b/1/left.json").unlink()  # as of an older runner
    box.set(slots=1)
    ask(box, "table.json", "a", run=TABLE + "; true")
    ask(box, "table.json", "b")
    ask(box, "table.json", "c", env={"MORE": "1"})
    ask(box, "table.json", "d", run=TABLE + "; exit 1")
    box.run("a", "b", "c", code=1)
    assert [trainings(box, name) for name in "abcd"] == [2, 2, 2, 4]


@pytest.mark.proof  # test_a_second_wrong_name… stays
def test_a_file_that_was_put_there_later_is_doubted(box: Box) -> None:
    """A result is what the job left behind."""
    ask(box, "model.json", "a", "b")
    box.set(slots=2)
    box.run(code=1)
    (box.home / "cells/a/1/out/model.json").write_text("{}")
    (box.home / "cells/b/1/out/note.txt").write_text("no artifact")
    ask(box, "model.json", "a", artifacts=digest_of("once more"))
    box.run("a", code=1)
    ask(box, "table.json", "b")
    box.run("b")
    doubts = [json.loads((box.sealed(name) / "manifest.json").read_bytes()).get("doubts") for name in "ab"]
    assert doubts == [["model.json was changed after its try had ended"], None]


@pytest.mark.proof  # test_killed.py stays
def test_a_runner_that_is_killed_while_it_seals_them_loses_nothing(box: Box) -> None:
    ask(box, "model.json", "a")
    box.run(code=1)
    ask(box, "table.json", "a")
    runner = box.start(script=around(box, "sealing.publish = die"))
    wait_for(lambda: runner.process.poll() is not None, box.log)
    assert box.journal().cells["a"].state == "running"
    box.run("a")
    assert (trainings(box, "a"), len(box.events("cell-resealing", "a"))) == (1, 2)
    box.manifest("a")


def waiting(box: Box, *cells: str) -> bool:
    return not any(trainings(box, name) for name in cells) and all(box.state(name) == "pending" for name in cells)


def test_the_first_such_failure_holds_the_cells_that_have_not_begun(box: Box) -> None:
    """Each would come to the same end. What runs goes on; then the box has nothing to do."""
    box.set(slots=2)
    ask(box, "model.json", "a", "b", "c", "d")
    box.run(code=1)
    assert waiting(box, "c", "d")
    assert (trainings(box, "a"), trainings(box, "b")) == (1, 1)
    assert "cells that have not begun wait: " in box.log()
    box.run(code=1)  # the next runner ends at once
    assert waiting(box, "c", "d")
    assert list(box.journal().hold) in (["a", "b"], ["b", "a"])
    ask(box, "tabel.json", "a", "b", "c", "d")  # still wrong: no training shows it
    box.run(code=1)
    assert waiting(box, "c", "d")
    ask(box, "table.json", "a", "b", "c", "d")
    box.run("a", "b", "c", "d")
    assert [trainings(box, name) for name in "abcd"] == [1, 1, 1, 1]
    assert list(box.journal().hold) == []


def test_one_slot_is_not_given_on_before_the_files_are_judged(box: Box) -> None:
    ask(box, "model.json", "a", "b")
    box.run(code=1)
    assert waiting(box, "b")


@pytest.mark.proof  # test_the_first_such_failure… stays
def test_a_cell_that_is_sealed_meanwhile_ends_the_hold_and_after_one_there_is_none(box: Box) -> None:
    box.set(slots=2)
    ask(box, "table.json", "a", run="until test -e {control}/go; do sleep 0.05; done; " + TABLE)
    ask(box, "table.json", "b", run="true")
    ask(box, "table.json", "c", "d")
    runner = box.start()
    wait_for(lambda: bool(box.events("cell-failed", "b")), box.log)
    assert waiting(box, "c", "d")
    (box.control / "go").touch()
    assert runner.ended() == 1
    assert [box.state(name) for name in "abcd"] == ["sealed", "failed", "sealed", "sealed"]
    ask(box, "table.json", "e", run="true")
    ask(box, "table.json", "f")
    box.run("f", code=1)


# The first row stays; the others end the hold by the same rule.
@pytest.mark.parametrize(
    "how", ["retry", *(pytest.param(how, marks=pytest.mark.proof) for how in ("drop", "another version"))]
)
def test_a_person_ends_the_hold(box: Box, how: str) -> None:
    ask(box, "table.json", "a", run="true")
    ask(box, "table.json", "b")
    box.run(code=1)
    assert waiting(box, "b")
    if how == "drop":
        box.drop("a")
    elif how == "retry":
        ask(box, "table.json", "a", run="true", retry=1)
    else:
        ask(box, "table.json", "a", run="true; true")
    box.run("b", code=0 if how == "drop" else 1)
    assert len(box.events("cell-started", "a")) == (1 if how == "drop" else 2)


def test_a_held_queue_is_nothing_to_do_for_its_box(box: Box) -> None:
    """`when_done`: the bill ends, and the cells are still there for the next start."""
    said = box.control / "off"
    box.set(when_drained={"native": "stop", "command": f"touch {said}"}, off_seconds=0, off_again_seconds=[])
    ask(box, "model.json", "a", "b")
    box.run(code=1)
    assert said.exists()
    assert waiting(box, "b")
