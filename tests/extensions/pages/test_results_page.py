"""`sweepctl results --as html`: what the page holds, of a sweep at work or over; and what it never writes over."""

from __future__ import annotations

import json
import math
import re
from datetime import timedelta
from typing import Any

import pytest

from sweepstack.onbox.common import box_layout
from tests.extensions.pages.test_plots import numbers
from tests.unit.cli.support import CODE, STACK, World

PAGE = f"report-{STACK}.html"


def plots(text: str) -> dict[str, dict[str, Any]]:
    """The data of the plots by their kind, and lines by their y."""
    found = [json.loads(data) for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text)]
    return {one["y"] if one["kind"] == "lines" else one["kind"]: one for one in found}


def page(world: World, *arguments: str) -> str:
    result = world.run("results", "--as", "html", *arguments)
    assert result.code == 0, result
    return (world.root / PAGE).read_text("utf-8")


def at_work(world: World) -> World:
    """Two sealed and verified cells, of which one was cut off and went on; one that runs, with a curve."""
    box = world.add("box-0")
    box.launch("lr0.1", "lr0.3", "lr0.9")
    born = box.begin - timedelta(minutes=10)
    world.store.write_birth(box.birth(begun_at=born, created_at=born))
    rows = [{"step": step, "loss": 1 / (step + 1)} for step in range(5)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    box.seal("lr0.1", files={"metrics.jsonl": text})
    box.start("lr0.3", metrics=rows[:3])
    box.log("runner-stopped", signal="SIGTERM")
    box.log("runner-started", after=600, pid=2)
    box.seal("lr0.3", attempt=2, files={"metrics.jsonl": b"".join(text.splitlines(keepends=True)[2:])})
    box.start("lr0.9", metrics=rows)
    box.alive()
    memory = {"used": 30, "limit": 60, "oom_kills": 0}
    disk = {"free": 25, "total": 100, "inodes_free": 9, "inodes_total": 10}
    gpus = [{"index": 0, "util": 97, "memory_used": 40, "memory_total": 80, "temperature": 61}]
    box.beat(memory=memory, disk=disk, gpus=gpus, alarms=["disk 95% full"])
    assert world.run("pull").code == 0
    assert world.run("verify").code == 1, "one still runs"
    return world


def test_a_sweep_at_work_and_over(world: World) -> None:
    at_work(world)
    text = page(world)
    digest = world.store.latest_receipt()
    assert digest is not None
    assert digest in text
    for cell in world.store.receipt(digest).cells:
        assert cell.name in text
        assert cell.manifest is None or cell.manifest in text
    found = plots(text)
    spans = [(name, what) for _, _, _, what, name, _ in found["spans"]["spans"] if not what.startswith("billed")]
    assert spans == [
        ("lr0.1", "sealed"),
        ("lr0.3", "cut off"),
        ("lr0.3", "sealed"),
        ("lr0.9", "running"),
    ], "each attempt, by time"
    cut_off, went_on = [span for span in found["spans"]["spans"] if span[4] == "lr0.3"]
    assert cut_off[2] < went_on[1], "it does not end when its successor begins, but with the last that is on record"
    assert {curve[0] for curve in found["loss"]["curves"]} == {"lr0.1", "lr0.3", "lr0.9"}
    assert [len(numbers(curve[2])) for curve in found["loss"]["curves"]] == [5, 5, 5], "lr0.3 from its two tries"
    assert "The curves of 1 cell begin with what earlier tries wrote" in text
    assert found["loss"]["axes"] == ["lr"]
    assert numbers(found["% of the limit"]["curves"][0][2])[-1] == 50
    assert found["% of the time"]["curves"][0][0] == "box-0 GPU 0"
    assert "disk 95% full" in text
    layers = {name: values[-1] for name, values, _ in found["areas"]["layers"]}
    assert set(layers) == {"at work", "idle"}
    spent = world.run("ledger", "--json").json["usd"]
    assert abs(sum(layers.values()) - spent) < 0.01, "the layers add up to what the ledger says"
    assert layers["idle"] > 0.5 * (600 + 600) / 3600 * 0.9
    # Over, by its evidence alone; also the machines' figures, which a pull copied with the logs
    live = found
    world.boxes[0].vanish()
    world.move_registry()
    (world.root / "stacks" / f"Pulumi.{STACK}.yaml").unlink()
    (world.root / PAGE).unlink()
    kept = world.evidence / "stack-files"
    kept.mkdir(exist_ok=True)
    (kept / f"Pulumi.{STACK}.yaml").write_text(STACK_TEXT)
    result = world.run("results", "--as", "html", "--evidence", str(world.evidence), stack=None)
    assert result.code == 0, result
    found = plots((world.root / PAGE).read_text("utf-8"))
    assert [span[:2] for span in found["spans"]["spans"][:1]] == [span[:2] for span in live["spans"]["spans"][:1]]
    assert found["% of the limit"]["curves"] == live["% of the limit"]["curves"]


def test_a_long_curve_keeps_its_peak_and_its_gap_and_the_page_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweepstack.extensions.pages.curves.MOST_POINTS", 0)
    box = world.add("box-0")
    box.launch("lr0.1", "lr0.3")
    odd = {77: math.nan, 150: 9.0}
    rows = [{"step": step, "loss": odd.get(step, 1 / (step + 1))} for step in range(300)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    box.seal("lr0.1", files={"metrics.jsonl": text, "metrics.json": b'{"loss": 0.5}'})
    box.seal("lr0.3", files={"metrics.jsonl": text[: text.index(b"\n") + 1]})
    assert world.run("pull").code == 0
    world.run("verify")
    made = page(world)
    long, short = (numbers(curve[2]) for curve in plots(made)["loss"]["curves"])
    assert (long[0], max(long, key=lambda y: (y == y, y)), long[-1]) == (1.0, 9.0, pytest.approx(1 / 300))
    assert any(math.isnan(y) for y in long)
    assert len(long) < 100
    assert list(short) == [1.0]
    assert "Long curves are drawn by about 60 of their points" in made


STACK_TEXT = """\
config:
  sweepstack:sweep:
    job: {workdir: job, run: python train.py --lr {lr} --out {out}}
    cells: {grid: {lr: [0.1, 0.3, 0.9]}}
    artifacts:
      metrics.json: {load: json, keys: [loss]}
    metrics: {file: metrics.jsonl, x: step, y: [loss]}
    candidates: [local]
    boxes: {box-0: {want: running}}
    pull_to: results/sweep-t
"""


def test_decisions_with_who_and_why(world: World) -> None:
    _, _, receipt = world.verified()
    command = ("give-up", receipt, "cell/lr0.9", "--reason", "<script>it diverged")
    assert world.run(*command).code == 0
    text = page(world)
    row = next(line for line in text.splitlines() if "waived</th>" in line)
    assert "lr0.9" in row
    assert "&lt;script&gt;it diverged" in row
    assert world.file.approval().by in row  # type: ignore[union-attr]


def test_another_file_is_not_written_over(world: World) -> None:
    world.verified()
    (world.root / PAGE).write_text("my notes")
    result = world.run("results", "--as", "html")
    assert result.code == 1
    assert "no page of sweepctl" in result.err
    assert (world.root / PAGE).read_text() == "my notes"
    (world.root / PAGE).unlink()
    assert page(world).startswith("<!doctype html>")
    page(world)  # its own page is made anew
    assert world.run("results", "--as", "html", "-o", "no/such/folder.html").code == 1
    assert [path.name for path in world.root.iterdir() if path.name.startswith(".")] == []


def test_for_programs_and_pipes(world: World) -> None:
    world.verified()
    found = world.run("results", "--as", "html", "--json", "-o", "page.html").json
    assert found["file"] == str(world.root / "page.html")
    assert found["bytes"] == (world.root / "page.html").stat().st_size
    assert (found["cells"], found["verified"]) == (3, 3)
    assert world.run("results", "--as", "html", "-o", "-").out.startswith("<!doctype html>")
    assert world.run("results", "--as", "html", "--json", "-o", "-").code == 2


def test_a_box_on_which_nothing_was_started(world: World) -> None:
    world.add("box-0")
    text = page(world)
    assert {span[3] for span in plots(text)["spans"]["spans"]} == {"billed while running"}
    assert "There is no receipt" in text


def test_of_several_workers_each_has_its_series_and_its_lane(world: World) -> None:
    """As one runner has, from the box and later from the copy of its logs. Two tries of one task are one series; the
    disk is that of the tier that all of them share."""
    box = world.add("box-0")
    box.launch("lr0.1", "lr0.3", "lr0.9")
    digest = world.cell("lr0.1").config_digest
    for worker, cell, used in (("7_0.0", "lr0.1", 30), ("7_1.0", "lr0.3", 45), ("7_1.1", "lr0.9", 15)):
        folder = box.root / box_layout.WORKERS / worker
        folder.mkdir(parents=True)
        box.log("runner-started", worker=worker, pid=1)
        started = {"cell": cell, "attempt": 1, "config_digest": digest, "code": CODE, "argv": ["x"], "slot": 0}
        box.log("cell-started", worker=worker, **started)
        line = {"memory": {"used": used, "limit": 60}, "gpus": [{"index": 0, "util": used}], "alarms": [f"hot {used}"]}
        disk = {"disk": {"free": used, "total": 100}}
        (folder / "patrol.jsonl").write_text(json.dumps({"time": box.begin.isoformat(), **line, **disk}) + "\n")
        if worker != "7_0.0":
            box.log("runner-stopped", worker=worker, why="wall")
    box.alive()

    def shown() -> None:
        text = page(world)
        found = plots(text)
        memory = {name: list(numbers(ys)) for name, _, ys, *_ in found["% of the limit"]["curves"]}
        assert memory == {"box-0 7_0": [50.0], "box-0 7_1": [75.0, 25.0]}
        assert {curve[0] for curve in found["% of the time"]["curves"]} == {"box-0 7_0 GPU 0", "box-0 7_1 GPU 0"}
        assert [(name, list(numbers(ys))) for name, _, ys, *_ in found["% used"]["curves"]] == [("box-0", [70, 55, 85])]
        assert {"box-0 7_0 slot 0", "box-0 7_1 slot 0"} <= set(found["spans"]["lanes"])
        assert all(f"hot {used}" in text for used in (30, 45, 15))

    shown()
    assert world.run("pull").code == 0
    box.vanish()
    shown()
