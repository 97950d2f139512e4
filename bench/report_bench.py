"""What a sweep's page costs: `python -m bench.report_bench [cells] [boxes] [rounds]`.

`sweepctl results --as html` of a sweep on boxes of the local platform, with real journals, evidence, curves and
patrols; then its page in a headless Chromium, until a reader can use it, and until all plots are drawn. Against the
same for a sweep of four cells on two boxes: what any report costs. By turns; of the clock, and of the CPU, which no
neighbour changes.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from bench.clone import ROOT
from bench.compared import compared
from bench.status_bench import RUN, Quiet
from sweepstack.onbox.common import box_layout
from tests.extensions.pages.opened import chromium, cpu_of, is_open
from tests.unit.cli.support import STACK, World

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

MADE, OPENED = 3.0, 2.0
"""Seconds."""
SEEDS = 100
STEPS = 500
PATROLS = 120


def build(folder: Path, cells: int, boxes: int, patch: pytest.MonkeyPatch) -> World:
    """A sweep whose cells are all verified, with two curves each, on boxes with a GPU and hours of patrols."""
    seeds = min(SEEDS, max(cells // 2, 1))
    lrs = [round(0.001 * number, 3) for number in range(1, cells // seeds + 1)]
    world = World(folder, patch, Quiet(), lrs=f"{lrs}, seed: {list(range(seeds))}")  # type: ignore[arg-type]
    rented = [world.add(f"box-{number}") for number in range(boxes)]
    world.up_roster = world.file_roster()
    by_name = {cell.name: cell for cell in world.up_roster.cells}
    world.cell = by_name.__getitem__  # type: ignore[method-assign]
    names = list(by_name)
    for number, box in enumerate(rented):
        mine = names[number::boxes]
        box.launch(*mine)
        for name in mine:
            box.seal(name, files={"metrics.jsonl": curves(names.index(name))})
        patrol(box.root / box_layout.PATROL)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for command in ("pull", "verify"):
            if world.run(command).code:
                raise RuntimeError(f"{command} failed")
    world.save()
    return world


def curves(number: int) -> bytes:
    """A metrics file. No two are the same."""
    rows = (
        {"step": step, "loss": (1 + number % 13) / (step + 1 + number / 1000), "acc": 1 - 1 / (step + 2 + number % 7)}
        for step in range(STEPS)
    )
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def patrol(file: Path) -> None:
    """Writes the lines of two hours."""
    lines = []
    for minute in range(PATROLS):
        at = datetime.now(UTC) - timedelta(minutes=PATROLS - minute)
        gpu = {
            "index": 0,
            "util": 90 + minute % 7,
            "memory_used": 40,
            "memory_total": 80,
            "temperature": 60 + minute % 9,
        }
        line = {"time": at.isoformat(), "running": [], "memory": {"used": 30 + minute % 20, "limit": 64}, "gpus": [gpu]}
        disk = {"free": 500 - minute, "total": 1000, "inodes_free": 9000 - minute, "inodes_total": 10000}
        lines.append(json.dumps(line | {"disk": disk}) + "\n")
    file.write_text("".join(lines))


def make(world: World, file: Path) -> tuple[float, float]:
    """Seconds of one such command, of the clock and of the CPU. Raises RuntimeError when it saw another sweep."""
    words = ["results", "--as", "html", "-o", str(file), "--json", "--stack", STACK]
    command = [sys.executable, "-c", RUN, str(world.engine / "pulumi"), *words]
    environment = os.environ | {"XDG_DATA_HOME": str(world.folder / "data")}  # of two worlds, each its own boxes
    began, before = perf_counter(), _cpu()
    done = subprocess.run(command, cwd=world.root, capture_output=True, text=True, env=environment)
    took = perf_counter() - began, _cpu() - before
    told = json.loads(done.stdout) if done.returncode == 0 else {}
    if told.get("verified") != len(world.up_roster.cells):
        raise RuntimeError(f"the report ended with {done.returncode}:\n{done.stdout[:500]}{done.stderr[:500]}")
    return took


def _cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def show(context: BrowserContext, folder: Path, file: Path) -> dict[str, float]:
    """Seconds until a reader can use the page (`opened`), and until all its plots are drawn (`drawn`); `…_cpu`: of all
    processes of the browser."""
    page = context.new_page()
    before, began = cpu_of(folder), perf_counter()
    page.goto(file.as_uri())
    is_open(page)
    found = {"opened": perf_counter() - began, "opened_cpu": cpu_of(folder) - before}
    page.wait_for_selector("html[data-waiting='0']", state="attached")
    found |= {"drawn": perf_counter() - began, "drawn_cpu": cpu_of(folder) - before}
    page.close()
    return found


def measure(cells: int = 1000, boxes: int = 50, rounds: int = 5) -> dict[str, Any]:
    """Medians and maxima in seconds of `made`, `opened` and `drawn`, each with `…_few` and the ratio of the two."""
    base = Path(os.environ.get("SWEEPSTACK_BENCH_DIR") or ROOT / ".cache")
    base.mkdir(parents=True, exist_ok=True)
    took: dict[str, list[float]] = {}
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="report-bench-", dir=base) as name,
        chromium(Path(name)) as context,
    ):
        folder, here = Path(name), Path.cwd()
        worlds = {"_few": build(folder / "few", 4, 2, patch), "": build(folder / "many", cells, boxes, patch)}
        files = {which: folder / f"page{which}.html" for which in worlds}
        try:
            for turn in range(rounds + 1):  # in the first, byte code and the page cache get warm
                for which, world in worlds.items():
                    clock, cpu = make(world, files[which])
                    found = {"made": clock, "made_cpu": cpu, **show(context, folder, files[which])}
                    for what, seconds in found.items() if turn else ():
                        took.setdefault(f"{what}{which}", []).append(seconds)
        finally:
            os.chdir(here)
        size = files[""].stat().st_size

    def of(what: str) -> dict[str, Any]:
        ways = (what, f"{what}_cpu", f"{what}_few", f"{what}_cpu_few")
        return compared({way: took[way] for way in ways}, what, f"{what}_few")

    return {
        "cells": cells,
        "boxes": boxes,
        "rounds": rounds,
        "bytes": size,
        "made": {**of("made"), "limit": MADE},
        "opened": {**of("opened"), "limit": OPENED},
        "drawn": of("drawn"),
    }


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
