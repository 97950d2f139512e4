"""`pulumi preview` of sweep-a against a bare Pulumi program with one plugin resource; and the second `make up`.

Both previews run on the same engine, launcher, venv and kind of backend, both with `refresh: always`, turn by turn.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from bench.clone import ROOT, Clone, interleaved, spread

LIMIT = 1.25
STACK = "sweep-a"


def measure(n: int = 20, ups: int = 5) -> dict[str, Any]:
    """Sets a fresh clone up, waits until its cells are done (a training would blur both sides), measures. Minutes."""
    with Clone() as clone:
        first_up = clone.run("make", "up")
        clone.run(str(clone.root / ".venv" / "bin" / "sweepctl"), "wait", "--stack", STACK, "done")
        bare = clone.base / "bare"
        shutil.copytree(ROOT / "bench" / "bare", bare)
        clone.run(clone.pulumi, "stack", "select", "--create", "--stack", "bare", "--non-interactive", cwd=bare)
        clone.run(clone.pulumi, "up", "--yes", "--stack", "bare", "--non-interactive", cwd=bare)
        found = interleaved(
            {
                "sweep-a": (clone.pulumi, "preview", "--stack", STACK, "--non-interactive"),
                "bare": (clone.pulumi, "preview", "--stack", "bare", "--non-interactive"),
            },
            clone,
            {"sweep-a": clone.root, "bare": bare},
            n,
        )
        second_up = [clone.run("make", "up") for _ in range(ups)]
        setup = [clone.run("python3", "scripts/setup") for _ in range(ups)]
    ratio = found["sweep-a"]["median"] / found["bare"]["median"]
    return {
        "preview": found["sweep-a"],
        "baseline": found["bare"],
        "ratio": round(ratio, 3),
        "limit": LIMIT,
        "ok": ratio <= LIMIT,
        "first_make_up_with_warm_caches": round(first_up, 1),
        "second_make_up": spread(second_up),
        "second_setup": spread(setup),
    }


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:])), indent=2))
