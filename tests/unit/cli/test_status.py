"""`sweepctl status`: its documented shape, and what it says when state, records and platforms disagree."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from sweepstack.cli.commands.doctor import sweep as doctor
from sweepstack.cli.output import Out, in_one_line
from sweepstack.cli.render import render
from sweepstack.core.paths import PACKAGE
from sweepstack.evidence.stack_copy import keep_stack_file
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.operations import observe
from sweepstack.operations.strays.beside_sweep import search
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import SweepView, compose
from sweepstack.status.engine.call import ExportCall
from sweepstack.status.engine.state import Export, StackState
from tests.screens import too_long
from tests.unit.cli.support import STACK, World, by_name


def status(world: World, code: int, **settings: Any) -> dict[str, Any]:
    result = world.run("status", "--json", **settings)
    assert result.code == code, result
    return dict(result.json)


def test_what_runs_shows_step_loss_heartbeat_and_eta(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    begun = datetime.now(UTC) - timedelta(seconds=1)
    box.begin = begun - timedelta(seconds=10)
    box.start("lr0.3", metrics=[{"step": 1, "loss": 0.9}, {"step": 8200, "loss": 0.39712}])
    with (box.root / "data/sweep/cells/lr0.3/1/out/metrics.jsonl").open("a") as handle:
        handle.write('{"step": 8201, "loss"')
    box.beat(ago=3)
    box.alive()
    seen = status(world, 0)
    cell = by_name(seen["cells"])["lr0.3"]
    assert (cell["state"], cell["step_text"], cell["loss_text"]) == ("running", "8200", "0.3971")
    assert (cell["step"], cell["loss"]) == ({"done": 8200, "total": None}, pytest.approx(0.3971, abs=1e-4))
    assert box.beats(cell["note"])
    assert by_name(seen["cells"])["lr0.9"]["state"] == "pending"
    # Sealing took 20 s; one cell is about 1 s in, or as long as it took to look; one has not started.
    spent = (datetime.now(UTC) - begun).total_seconds()
    assert max(20.0, 40 - spent) - 1 <= seen["eta_seconds"] <= 40
    assert seen["meter"]["idle"] == 0
    assert "sweepctl wait" in seen["next"][0]
    text = world.run("status").out
    assert "1 running" in text
    assert "LOCKED" in text
    assert "8200" in text
    assert "next   sweepctl wait" in text


@pytest.mark.parametrize(("workers", "most"), [(2, 20), (1, 40), (0, None)])
def test_the_time_left_counts_all_workers_at_work(world: World, workers: int, most: float | None) -> None:
    """A cell took 20 s and two wait. With none at work it is not known: when one begins the scheduler says."""
    box = world.add("box-0")
    box.launch("lr0.1", "lr0.3", "lr0.9")
    for worker in ("7_0.0", "7_1.0"):
        box.log("runner-started", worker=worker, pid=1)
    box.seal("lr0.1")
    for worker in ("7_0.0", "7_1.0")[workers:]:
        box.log("runner-stopped", worker=worker, why="wall")
    box.alive()
    seen = world.run("status", "--json").json
    said = "its runner is alive and has not written one heartbeat" in str(seen["boxes"][0]["alarms"])
    assert said is (workers > 0), "while all wait there is none to write"
    assert seen["eta_seconds"] == (most and pytest.approx(most, abs=0.1))


def test_a_cell_whose_runner_died_is_failed_and_up_resumes_it(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.start("lr0.1")
    seen = status(world, 0)
    cell = by_name(seen["cells"])["lr0.1"]
    assert cell["state"] == "failed"
    assert "runner is not alive" in cell["note"]
    assert seen["next"][0].startswith(f"pulumi up --stack {STACK}")


@pytest.mark.parametrize("known", ["an update", "no answer"])
def test_a_stack_that_was_never_up_is_told_from_one_whose_evidence_is_lost(world: World, known: str) -> None:
    """Both have an empty state. Another backend may have rented for it: what bills stays unknown."""
    world.save(world.empty())
    shutil.rmtree(world.evidence)
    if known == "an update":
        (world.engine / "history.json").write_text(json.dumps([{"kind": "destroy"}]))
    seen = world.run("status", fresh=False)
    assert "it never made an update" not in seen.out
    assert "what bills is not known" in seen.out
    assert world.run("status", "--json", fresh=False).json["bills"] == "unknown"


@pytest.mark.parametrize("remembered", [True, False])
def test_where_the_state_is_lost_it_says_that_a_key_is_missing(world: World, remembered: bool) -> None:
    """It said "is gone or does not read … Put it back"."""
    world.full()
    world.engine_says("error: no stack named 'sweep-t' found\n")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        world.monkeypatch.delenv(name)
    place = "s3://lab-results/sweep-t"
    world.file.path.write_text(world.file.path.read_text().replace("results/sweep-t", place))
    if remembered:
        world.remembers(place)
    seen = world.run("status")
    assert seen.code == 2
    assert "AWS_PROFILE" in seen.err
    assert "ut it back" not in seen.err
    assert ("next   sweepctl audit    (what bills, and what ends it)" in seen.err) == remembered


def test_where_nothing_was_ever_brought_up_no_platform_is_asked(world: World) -> None:
    """Without a marker in the evidence no box has a tag of this sweep."""
    (world.platform_root / "registry.json").write_text("{")
    found = search(StackState(stack=STACK), None, (), Target.find_sweep(STACK).file)
    assert (found.orphans, found.notes, found.searched) == ((), (), True)


def test_cells_of_an_unreachable_box_are_as_of_the_last_copy(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3")
    box.seal("lr0.1")
    box.start("lr0.3")
    box.alive()
    assert world.run("pull").code == 0
    world.move_registry()
    cell = by_name(world.run("status", "--json").json["cells"])["lr0.3"]
    assert cell["state"] == "running"
    assert "last copy" in cell["note"]


def test_a_vanished_box_loses_what_has_no_copy(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    box.start("lr0.3")
    world.run("pull")
    world.run("verify")
    box.vanish()
    seen = status(world, 0)
    cells = by_name(seen["cells"])
    assert cells["lr0.1"]["state"] == "verified"
    assert cells["lr0.3"]["state"] == "lost"
    assert cells["lr0.9"]["state"] == "lost"
    assert by_name(seen["boxes"])["box-0"]["phase"] == "gone"
    assert seen["gates"][0]["state"] == "cleared"
    assert seen["gates"][0]["way"] == "gone"
    assert seen["meter"]["per_hour"] == 0


def test_a_cell_sealed_again_is_not_verified_any_more(world: World) -> None:
    first, _, _ = world.verified()
    first.seal("lr0.1", attempt=2)
    assert by_name(status(world, 0)["cells"])["lr0.1"]["state"] == "sealed"


@pytest.mark.parametrize("readable", [True, False], ids=["running", "journal_unreadable"])
def test_a_dropped_cell_that_keeps_its_box_is_called_what_the_refusal_calls_it(world: World, readable: bool) -> None:
    """One word: `status` said waived, and the refusal listed the cell as not safe."""
    box = world.add("box-0")
    box.launch("lr0.1", "lr0.9")
    box.start("lr0.9")
    box.alive(True)
    if not readable:
        (box.root / box_layout.JOURNAL).write_bytes(b"nonsense\n")
    world.write_stack_file(drop='{lr0.9: "wrong augmentation"}')
    world.up_roster = world.file_roster()  # the queue has the drop; its runner has not taken it yet
    cell = by_name(status(world, 0)["cells"])["lr0.9"]
    (box_snapshot,) = take_snapshot(open_sources(Target.find(STACK, start=world.root))).box_snapshots
    kept = {line.name: line.state for line in box_snapshot.verdict.unsettled}
    assert kept["lr0.9"] == ("running" if readable else "pending")
    assert cell["state"] == kept["lr0.9"]
    assert "wrong augmentation" in cell["note"]
    box.log("cell-dropped", cell="lr0.9", reason="wrong augmentation") if readable else world.up()
    assert by_name(status(world, 0)["cells"])["lr0.9"]["state"] == "waived"


def test_the_doctor_does_not_call_well_what_has_neither_state_nor_evidence(world: World) -> None:
    """It said "ok", and what was rented is not known."""
    world.full()
    world.engine_says(f"error: no stack named '{STACK}' found\n")
    world.evidence.rename(f"{world.evidence}-away")
    world.remembers(world.uri)
    world.file.path.unlink()
    (finding,) = doctor.boxes(doctor.CheckedSweep(Target.find(STACK)))
    assert finding.verdict == "unknown"


def test_outside_a_project(world: World, tmp_path: Any) -> None:
    """Each command that needs one says what to type: into the project below, or a new one."""
    below = tmp_path / "outside" / "mine"
    below.mkdir(parents=True)
    (below / "Pulumi.yaml").write_text("name: mine\n")
    world.monkeypatch.chdir(below.parent)
    for words in (["status"], ["drop", "a"], ["audit"], ["profile", "new", "some-cloud"]):
        result = world.run(*words, stack=None)
        assert result.code == 2
        assert "no Pulumi.yaml" in result.err
        assert "next   cd mine    (your project)\n" in result.err
        assert f"next   cd {PACKAGE.parent}    (the project of this sweepctl)" in result.err, "`init` makes none here"


def test_a_project_without_its_pulumi_yaml_says_what_brings_it_back(world: World) -> None:
    """It had no `next` at all, while boxes bill."""
    world.verified()
    keep_stack_file(world.uri, world.file.path)
    (world.root / "Pulumi.yaml").unlink()
    result = world.run("status", "--json")
    assert result.code == 2
    back = f"git -C {world.root} checkout -- Pulumi.yaml    (or from a backup; its name has to be sweepstack again)"
    assert result.json["next"] == [back]
    for words in (["audit"], ["doctor"], ["profile", "new", "some-cloud"], ["ci", "github"]):
        found = world.run(*words, stack=None)
        assert (found.code, back.split("    (")[0] in " ".join(found.err.split())) == (2, True), found


def test_from_a_folder_below_and_by_the_environment(world: World) -> None:
    world.full()
    (world.root / "a/b").mkdir(parents=True)
    world.monkeypatch.chdir(world.root / "a/b")
    world.monkeypatch.setenv("PULUMI_STACK", STACK)
    assert world.run("status", "--json", stack=None).json["stack"] == STACK


def test_many_cells_are_counted_not_listed(world: World) -> None:
    world.add()
    world.lrs = str([round(0.001 * number, 3) for number in range(1, 201)])
    world.write_stack_file()
    world.up_roster = world.file_roster()
    result = world.run("status")
    assert "… and 140 cells more" in result.out
    assert len(world.run("status", "--json").json["cells"]) == 200


LONG_CELL, LONG_BOX = (
    "optimizeradamw-lr0.0003-width512-depth12-dropout0.1-seed{}",
    "a-box-with-a-rather-long-name-for-a-b{}",
)


def with_long_names(view: SweepView) -> SweepView:
    """The same picture of cells and boxes with the longest names that people give."""
    cells = tuple(
        replace(cell, name=LONG_CELL.format(number), box=LONG_BOX.format(0)) for number, cell in enumerate(view.cells)
    )
    boxes = tuple(replace(box, name=LONG_BOX.format(number)) for number, box in enumerate(view.boxes))
    gates = tuple(
        replace(
            gate, box=LONG_BOX.format(number), state="locked", reasons=("the receipt is older than the box's journal",)
        )
        for number, gate in enumerate(view.gates)
    )
    notes = [
        *view.notes,
        f"to run again, as was asked for: {', '.join(cell.name for cell in cells)}. `pulumi up` starts it",
    ]
    ways = [f"sweepctl wait --stack {STACK}-with-a-name done && sweepctl finish --stack {STACK}-with-a-name"]
    return replace(view, stack=f"{STACK}-with-a-name", cells=cells, boxes=boxes, gates=gates, notes=notes, next=ways)


def test_long_names_fit_too_and_stay_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.full()
    world.save()
    view = with_long_names(compose(take_snapshot(open_sources(Target.find(STACK)))))
    for module in ("sweepstack.cli.output", "sweepstack.cli.render"):
        monkeypatch.setattr(f"{module}.console", lambda: Console(file=sys.stdout, width=80, highlight=False))
    world.capsys.readouterr()
    render(view, Out(as_json=False))
    screen = world.capsys.readouterr().out
    assert not too_long(screen), screen
    assert len(screen.splitlines()[0]) > 1
    for name in (*(cell.name for cell in view.cells), *(box.name for box in view.boxes)):
        assert name in screen.split(), f"{name} is cut\n{screen}"
    for column in ("STATE", "NOTE", "AGE", "WHERE"):
        assert column in screen.split(), f"{column} is cut\n{screen}"
    assert view.as_json()["cells"][0]["name"] == LONG_CELL.format(0)


@pytest.mark.parametrize("width", [80, 60])
def test_a_row_of_the_live_table_is_a_line(width: int) -> None:
    """There long names are shortened in the middle: how many lines a picture has must be known before."""
    rows = [[LONG_CELL.format(number), "running", LONG_BOX.format(0), "heartbeat 3 s ago"] for number in range(3)]
    screen = Console(file=io.StringIO(), width=width, highlight=False)
    screen.print(in_one_line(width, ["CELL", "STATE", "BOX", "NOTE"], rows))
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 4
    assert max(map(len, lines)) <= width
    assert all(line.startswith("optim") and f"eed{number} " in line for number, line in enumerate(lines[1:])), lines


# Boxes that are gone


def test_a_cell_that_was_sealed_on_a_box_that_is_gone_is_lost_and_runs_again(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3")
    box.seal("lr0.1")
    assert world.run("pull").code == 0
    assert world.run("verify").code == 1
    box.seal("lr0.3")
    copy = world.evidence / "journals/box-0-g1.jsonl"
    shutil.copy(box.root / "data/sweep/journal.jsonl", copy)  # a look kept it; the files were never pulled
    box.vanish()
    seen = world.run("status", "--json").json
    assert by_name(seen["cells"])["lr0.3"]["state"] == "sealed", "its volume outlived the box, and has it"
    shutil.rmtree(world.volume_folder / "abcdefghjk/cells/lr0.3")
    seen = world.run("status", "--json").json
    cells = by_name(seen["cells"])
    assert (cells["lr0.1"]["state"], cells["lr0.3"]["state"]) == ("verified", "lost")
    assert "never pulled; `pulumi up` runs it again" in cells["lr0.3"]["note"]
    assert [command.partition("    ")[0] for command in seen["next"]] == [
        f"pulumi up --stack {STACK}",
        f"pulumi destroy --stack {STACK}",
    ]


def test_a_pulled_copy_of_a_box_that_is_gone_is_not_lost(world: World) -> None:
    first, _ = world.full()
    assert world.run("pull").code == 0
    first.vanish()
    shutil.rmtree(world.volume_folder)
    assert by_name(world.run("status", "--json").json["cells"])["lr0.1"]["state"] == "sealed"


def test_a_box_s_files_are_listed_only_where_an_end_is_approved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shown of them before that. What is approved is judged by them, and the document always has them."""
    listed: list[int] = []
    listing = observe._listing
    monkeypatch.setattr(observe, "_listing", lambda channel: listed.append(1) or listing(channel))
    first, _, receipt = world.verified()
    note = first.root / "data/notes.bin"
    note.write_text("lr 0.3 was best")
    listed.clear()
    assert "LOCKED" in world.run("status").out
    assert not listed
    assert status(world, 0)["gates"][0]["unclaimed"]["files"] == 1
    assert world.run("approve", receipt).code == 0
    world.up()
    os.truncate(note, 200_000_000)
    listed.clear()
    shown = world.run("status").out
    assert "LOCKED" in shown
    assert "belong to no sealed cell" in shown
    assert len(listed) == 2


CANCEL = f"pulumi cancel --stack {STACK}    (only where that process has ended: it would be cut)"
LOOKS = """
import sys
import sweepstack.status.engine.call
engine = sys.argv.pop(1)
sweepstack.status.engine.call.find_engine = lambda: engine
from sweepstack.cli.app import app
import sweepstack.cli.app
try:
    app()
finally:
    print("sweepstack.cli.commands.doctor.engine" in sys.modules, file=sys.stderr)
"""


def test_a_lock_is_told_without_the_doctor(world: World) -> None:
    """The doctor imports more than all of a look."""
    world.verified()
    command = [sys.executable, "-c", LOOKS, str(world.engine / "pulumi"), "status", "--stack", STACK]
    env = {**os.environ, "PULUMI_BACKEND_URL": f"file://{world.folder}/backend"}

    def asked() -> tuple[bool, str]:
        done = subprocess.run(command, cwd=world.root, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return "pulumi cancel" in done.stdout, done.stderr.splitlines()[-1]

    assert asked() == (False, "False")
    ended = subprocess.Popen(["true"])
    ended.wait()
    locks = world.folder / "backend/.pulumi/locks/organization/sweepstack" / STACK
    locks.mkdir(parents=True)
    facts = {"pid": ended.pid, "hostname": socket.gethostname(), "timestamp": "2026-11-21T09:00:00Z"}
    (locks / "1.json").write_text(json.dumps(facts))
    assert asked() == (True, "False")


def test_a_lock_of_another_computer_names_what_takes_it_away(world: World) -> None:
    """A killed engine leaves it, and no other command of the engine gets through; no `next` said which one does."""
    world.verified()
    first = world.run("status", "--json").json["next"]
    locks = world.folder / "backend/.pulumi/locks/organization/sweepstack" / STACK
    locks.mkdir(parents=True)
    world.monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{world.folder}/backend")
    facts = {"pid": 4711, "hostname": "ci-7", "timestamp": "2026-11-21T09:00:00Z"}
    (locks / "1.json").write_text(json.dumps(facts))
    seen = world.run("status", "--json").json
    assert seen["next"][:2] == [first[0], CANCEL], "first what fails harmlessly where it still holds"
    assert any("held by process 4711 on ci-7 since 2026-11-21T09:00:00" in note for note in seen["notes"])
    (locks / "1.json").write_text(json.dumps(facts | {"pid": os.getpid(), "hostname": socket.gethostname()}))
    assert CANCEL not in world.run("status", "--json").json["next"], "it runs here"


ASKS = """
import sys
import sweepstack.status.engine.call
engine = sys.argv.pop(1)
def find_engine():
    print("engine;", "pydantic" in sys.modules, file=sys.stderr)
    return engine
sweepstack.status.engine.call.find_engine = find_engine
from sweepstack.cli.entry import main
main()
"""


def test_the_engine_begins_before_what_reads_its_answer_is_imported(world: World) -> None:
    """It takes longer than all else in a look at a small sweep: once, and not for a help."""
    world.verified()

    def asked(*words: str, stack: str = "", verb: str = "status") -> tuple[int, list[str]]:
        command = [sys.executable, "-c", ASKS, str(world.engine / "pulumi"), verb, *words]
        env = {**os.environ, "PULUMI_STACK": stack}
        done = subprocess.run(command, cwd=world.root, env=env, capture_output=True, text=True, timeout=60)
        return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("engine;")]

    assert asked("--stack", STACK) == (0, ["engine; False"])
    assert asked(f"-s{STACK}", "--json", stack="another") == (0, ["engine; False"])
    assert asked(stack=STACK) == (0, ["engine; False"])
    assert asked("--stack", STACK, "--help") == (0, [])
    assert asked() == (2, [])
    assert asked("--stack") == (2, [])
    assert asked("--stack", STACK, "--interval") == (2, [])
    assert asked("--stack", STACK, verb="pull") == (0, ["engine; False"])
    assert asked("--stack", STACK, verb="verify") == (0, ["engine; False"])
    assert asked("--stack", STACK, "--evidence", str(world.evidence), verb="verify")[1] == []


def test_an_answer_for_another_stack_is_not_taken(world: World) -> None:
    world.verified()
    calls = world.engine / "calls"
    for stack, root, times in ((STACK, world.root, 1), ("other", world.root, 2), (STACK, world.folder, 2)):
        calls.unlink(missing_ok=True)
        begun = ExportCall(stack, root)
        assert Export(STACK, world.root, begun=begun).state().stack == STACK
        begun._process.wait(120)
        assert len(calls.read_text().splitlines()) == times, (stack, root)


def test_the_checkpoints_in_a_bucket_their_age_and_price(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3")
    box.start("lr0.1")
    box.alive()
    copied = {"lr0.1": {"age": 40.0, "bytes": 4_000_000_000, "sets": 2, "behind": "it changes all the time"}}
    said = {"source": "s3://lab/x", "endpoint": "", "cells": [], "bytes": 0, "seconds": 0.0, "why": ""}
    box.beat(ago=5, uploads={**said, "checkpoints": copied | {"lr0.3": "odd"}})
    found = world.run("status", "--json").json["boxes"][0]["bucket"]
    assert (found["source"], found["bytes"], round(found["usd_per_month"], 3)) == ("s3://lab/x", 4_000_000_000, 0.092)
    assert [(cell["name"], cell["sets"]) for cell in found["cells"]] == [("lr0.1", 2)]
    assert found["cells"][0]["age_seconds"] >= 45.0
    shown = world.run("status").out
    assert "bucket box box-0: s3://lab/x: 4.0 GB of checkpoints in 2 sets, about $0.09 a month" in shown
    assert "lr0.1 is not copied: it changes all the time" in shown
    box.beat(ago=5, uploads={**said, "endpoint": "https://minio.lab:9000", "checkpoints": copied})
    assert world.run("status", "--json").json["boxes"][0]["bucket"]["usd_per_month"] is None, "whose price is not known"
    box.beat(ago=5)
    assert world.run("status", "--json").json["boxes"][0]["bucket"] is None


def test_what_a_runner_did_not_copy_before_it_ended_is_an_alarm(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3")
    box.start("lr0.1")
    box.log("runner-stopped", signal="SIGTERM", not_copied={"lr0.1": "there was no time to copy it"})
    told = " ".join(world.run("status", "--json").json["boxes"][0]["alarms"])
    assert "lie on this box alone: lr0.1 (there was no time to copy it)" in told
    box.start("lr0.1", attempt=2)
    assert "on this box alone" not in str(world.run("status", "--json").json["boxes"][0]["alarms"])


def test_evidence_that_was_moved_to_where_the_stack_file_says_is_moved_back(world: World) -> None:
    """`give-up` was the only line, and a person who followed it lost sealed cells."""
    world.full()
    there = world.root / "elsewhere" / "deep"
    there.parent.mkdir(exist_ok=True)
    os.rename(world.evidence, there)
    world.file.path.write_text(world.file.path.read_text().replace("results/sweep-t", "elsewhere/deep"))
    found = world.run("status", "--json")
    assert found.json["next"] == [f"mv {there} {world.evidence}    (the evidence was moved; nothing is lost)"]
    os.rename(there, world.evidence)
    assert "mv " not in " ".join(world.run("status", "--json").json["next"])


def test_evidence_of_another_sweep_is_not_taken_for_one_that_was_moved(world: World) -> None:
    world.full()
    away = world.folder / "away"
    os.rename(world.evidence, away)
    other = f"file://{socket.gethostname()}{world.evidence.with_name('other')}"
    EvidenceStore.found(other, "another000", "sweepstack", "other")
    assert "mv " not in " ".join(world.run("status", "--json").json["next"])
