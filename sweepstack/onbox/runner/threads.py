"""How many threads the math libraries of a cell start: its share of the CPUs that this box may use.

OpenMP and MKL start one thread for each core that they see. In a container that is the whole host, of which the box
has a slice; and every slot does it. The threads then wait for each other, and each cell is many times slower.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.cgroup import cpus

NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LAUNCHER = re.compile(
    r"\btorchrun\b|\btorch\.distributed\.|\baccelerate\s+launch\b|\bdeepspeed\b|\bmpirun\b|\bhorovodrun\b"
)
"""They start several processes, and choose a number for each where none is set."""


def share_of_cpus(spec: Mapping[str, Any], cards: int = 1) -> int:
    """How many threads a cell's libraries should start here; 0 where their own choice is right, since the cell has all
    CPUs that it sees. `cards`: the cell's; of several, each may have a process of its own."""
    allowed, seen = cpus(), os.cpu_count()
    if allowed is None or seen is None:
        return 0
    share = max(1, math.floor(allowed / max(1, int(spec.get("slots") or 1))))
    return max(1, share // max(1, cards)) if share < seen else 0


def thread_limits(threads: int, run: str, env: Mapping[str, str]) -> dict[str, str]:
    """The variables to set; none for 0, where the person set one of them, or where a launcher starts the processes."""
    if not threads or any(name in env for name in NAMES) or LAUNCHER.search(run):
        return {}
    return dict.fromkeys(NAMES, str(threads))
