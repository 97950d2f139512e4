"""What is not shown in a golden output, by kind: what is another at each run or on each machine, and says nothing by
itself. No number of money, cells or bytes is ever masked; no time is, since the clock stands still; no id and no digest
is, since they are those of the golden sweep, and never change."""

from __future__ import annotations

import re

MASKS: tuple[tuple[str, str], ...] = (
    (
        r"/(tmp/golden|dev/shm/go)-\w{8}",
        "/tmp/golden-########",
    ),  # path: the folder that a sweep was made in, or is in now
    (r'(?m)^(  "(records|folders|read|receipt|worker\.\w+)"): \d+\.\d+', r"\1: #"),  # duration: of a stage of `verify`
    (r'(?m)^(  "network"): "(none|reachable)"', r'\1: "#"'),  # machine: whether readers of files can be cut off from it
    (r"note +the processes that read the files had network access:[\s\w']+\n", ""),  # machine: the same
)
"""Pattern and what stands for it."""


def masked(text: str) -> str:
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    return text
