"""What a look at a small sweep costs: `python -m bench.small_bench [rounds]`.

`sweepctl status` of a finished sweep of four cells on two boxes of this machine, against `pulumi stack export` of the
same stack, which is a part of it. Both as a person types them; interleaved rounds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.compared import compared
from tests.engine.commands import ok
from tests.engine.harness import Stack

LIMIT = 2.0


def measure(rounds: int = 20) -> dict[str, Any]:
    """Medians and maxima in seconds, and the ratio of the medians."""
    took: dict[str, list[float]] = {"status": [], "export": []}
    with tempfile.TemporaryDirectory(prefix="small-bench-") as folder:
        stack = Stack(Path(folder) / "small")
        try:
            stack.write_config()
            stack.init()
            ok(stack.up())
            stack.wait_done()
            stack.wait_idle()
            ok(stack.sweepctl("status"))  # byte code and the page cache are warm
            for _ in range(rounds):
                took["export"].append(ok(stack.run("pulumi", "stack", "export", "--stack", stack.name)).seconds)
                took["status"].append(ok(stack.sweepctl("status")).seconds)
        finally:
            stack.close()
    return {
        "cells": len(stack.cells),
        "rounds": rounds,
        **compared(took, "status", "export"),
        "limit": LIMIT,
    }


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
