"""What a review costs beside its preview: `python -m bench.review_bench [cells] [boxes] [rounds]`.

`sweepctl review --destroy` over boxes of the local platform with real journals, sealed copies and evidence (half of the
cells verified); the engine's part is a `cat` of the documents that it would print, so all that is left is the review's
own. Against a real `pulumi preview` of as many cells on as many boxes, which have still to be rented. Rounds by turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bench.cells_bench import preview
from bench.clone import ROOT
from bench.compared import compared
from bench.status_bench import RUN, SEEDS, Quiet
from tests.engine.harness import Stack
from tests.unit.cli.support import STACK, World
from tests.unit.review.plans import document, step

LIMIT = 3.0
"""Seconds beside the preview."""


def build(folder: Path, cells: int, boxes: int, patch: pytest.MonkeyPatch) -> World:
    """A sweep of sealed cells; those of the first half of the boxes are verified. The engine would destroy all."""
    lrs = [round(0.001 * number, 3) for number in range(1, cells // SEEDS + 1)]
    world = World(folder, patch, Quiet(), lrs=f"{lrs}, seed: {list(range(SEEDS))}")  # type: ignore[arg-type]
    rented = [world.add(f"box-{number}") for number in range(boxes)]
    world.up_roster = world.file_roster()
    by_name = {cell.name: cell for cell in world.up_roster.cells}
    world.cell = by_name.__getitem__  # type: ignore[method-assign]
    names = list(by_name)
    for number, box in enumerate(rented):
        mine = names[number::boxes]
        box.launch(*mine)
        for name in mine if number < boxes // 2 else ():
            box.seal(name)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for command in ("pull", "verify"):
            world.run(command)  # exit code 1: the other half is not there yet
    for box in rented[boxes // 2 :]:
        for name in list(box.cells):
            box.seal(name)
    world.save()
    ends = [
        step("delete", kind, box.name, old={"native_id": box.native_id, "name": box.name, "cells": list(box.cells)})
        for box in rented
        for kind in ("Gate", "Queue", "Box")
    ]
    (world.engine / "preview.json").write_text(json.dumps(document(*ends)))
    world.on("destroy", 'cat "$home/preview.json"')
    return world


def planned(folder: Path, cells: int, boxes: int) -> Stack:
    """A stack of as many cells on as many boxes, which no `up` has made."""
    stack = Stack(folder, name="planned", boxes=tuple(f"box-{number}" for number in range(boxes)))
    stack.write_config()
    stack.edit_config(lambda sweep: sweep["cells"].update({"grid": {"seed": list(range(cells))}}))
    stack.init()
    return stack


def review(world: World, cells: int, boxes: int) -> float:
    """Seconds of one review. Raises RuntimeError when it saw another sweep."""
    words = ["review", "--destroy", "--json", "--stack", STACK]
    began = perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(world.engine / "pulumi"), *words],
        cwd=world.root,
        capture_output=True,
        text=True,
    )
    took = perf_counter() - began
    told = json.loads(done.stdout) if done.returncode == 1 else {}
    if told.get("destroys") != boxes or told["cells"]["total"] != cells or told["cells"]["verified"] != cells // 2:
        raise RuntimeError(f"the review ended with {done.returncode}:\n{done.stdout[:500]}{done.stderr[:500]}")
    return took


def measure(cells: int = 1000, boxes: int = 50, rounds: int = 5) -> dict[str, Any]:
    """Medians and maxima in seconds, and the ratio of the medians."""
    base = Path(os.environ.get("SWEEPSTACK_BENCH_DIR") or ROOT / ".cache")
    base.mkdir(parents=True, exist_ok=True)
    took: dict[str, list[float]] = {"review": [], "preview": []}
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="review-bench-", dir=base) as folder,
        # Outside of the checkout: git ignores its .cache, so that a job there would ship no file.
        tempfile.TemporaryDirectory(prefix="review-bench-", dir=os.environ.get("SWEEPSTACK_BENCH_DIR")) as other,
    ):
        here = Path.cwd()
        world = build(Path(folder), cells, boxes, patch)
        stack = planned(Path(other) / "planned", cells, boxes)
        try:
            review(world, cells, boxes)  # byte code and the page cache are warm for both
            preview(stack)
            for _ in range(rounds):
                took["preview"].append(preview(stack))
                took["review"].append(review(world, cells, boxes))
        finally:
            stack.close()
            os.chdir(here)
    return {"cells": cells, "boxes": boxes, "rounds": rounds, **compared(took, "review", "preview"), "limit": LIMIT}


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
