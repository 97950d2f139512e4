"""What the files alone decide: cells that end well and leave the wrong files are not trained again for that."""

from __future__ import annotations

import json
from typing import Any

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
