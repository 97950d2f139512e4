"""What Slurm itself wrote into the log of a task, which stays when Slurm has forgotten the task."""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDER = "jobs"
"""Of the logs, below the home of the box's runner."""
SCRIPT = "batch.sh"
"""Beside them: what the tasks of the last array that was submitted run."""
LOG_BYTES = 1 << 20
_FOR_MEMORY = re.compile(rb"slurmstepd[^:\n]*: error: .*(?:exceeded (?:\w+ )?memory limit|oom[-_ ]kill)", re.IGNORECASE)
"""What it writes by polling (the first) or where the kernel watches."""


def killed_for_memory(home: Path, task: str, tries: int | None = None) -> bool:
    """Whether Slurm killed this try of a task for want of memory, or a process of it; None: its last try. False where
    the log can't be read. Never raises."""
    try:
        with open(home / FOLDER / f"{task}.log", "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
            text = log.read()
    except OSError:
        return False
    if tries is None:
        begun, mine = True, re.split(rf" {re.escape(task)}\.\d+ begins on ".encode(), text)[-1]
    else:
        _, word, after = text.rpartition(f" {task}.{tries} begins on ".encode())
        begun, mine = bool(word), after.partition(f" {task}.{tries + 1} begins on ".encode())[0]
    return begun and _FOR_MEMORY.search(mine) is not None
