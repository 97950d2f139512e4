"""What a cell costs a preview: `python -m bench.cells_bench [cells] [rounds]`.

`pulumi preview` of a sweep whose boxes are still to be rented, with many cells, against the same sweep with four: the
same program, engine, launcher, venv and kind of backend. Interleaved rounds; nothing is created.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.compared import compared
from tests.engine.commands import ok
from tests.engine.harness import Stack

FEW = 4
LIMIT = 10.0
"""Seconds."""


def planned(folder: Path, cells: int) -> Stack:
    """A stack of so many cells on two boxes, which no `up` has made yet."""
    stack = Stack(folder, name=f"n{cells}")
    stack.write_config()
    stack.edit_config(lambda sweep: sweep["cells"].update({"grid": {"seed": list(range(cells))}}))
    stack.init()
    return stack


def preview(stack: Stack) -> float:
    """Seconds of one preview. Raises RuntimeError when it did not plan the boxes."""
    done = ok(stack.pulumi("preview"))
    if not all(box in done.text for box in stack.boxes) or "to create" not in done.text:
        raise RuntimeError(f"the preview did not plan {' and '.join(stack.boxes)}:\n{done.text[:1000]}")
    return done.seconds


def measure(cells: int = 10_000, rounds: int = 5) -> dict[str, Any]:
    """Medians and maxima in seconds, and the ratio of the medians."""
    took: dict[str, list[float]] = {"many": [], "few": []}
    # Outside of the checkout: git ignores its .cache, so that a job there would ship no file.
    with tempfile.TemporaryDirectory(prefix="cells-bench-", dir=os.environ.get("SWEEPSTACK_BENCH_DIR")) as folder:
        stacks: dict[str, Stack] = {}
        try:
            for way, count in (("few", FEW), ("many", cells)):
                stacks[way] = planned(Path(folder) / way, count)
                preview(stacks[way])  # byte code and the page cache are warm for both
            for _ in range(rounds):
                for way, stack in stacks.items():
                    took[way].append(preview(stack))
        finally:
            for stack in stacks.values():
                stack.close()
    return {
        "cells": cells,
        "few": FEW,
        "rounds": rounds,
        **compared(took, "many", "few"),
        "limit": LIMIT,
    }


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
