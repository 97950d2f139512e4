"""What is not shown in a golden output, by kind: what is another on each machine or with each change of the code, and
says nothing by itself. Numbers of money, cells and bytes are never masked, nor are times: the clock stands still."""

from __future__ import annotations

import re

MASKS: tuple[tuple[str, str], ...] = (
    (r"/tmp/golden-\w{8}", "/tmp/golden-########"),  # path: the folder that a sweep was made in, or was put back into
    (r"\bsha256:(?!0{64})[0-9a-f]{64}", "sha256:####"),  # digest: of content with paths or versions of packages in it
    (r'(?m)^(  "(records|folders|read|receipt|worker\.\w+)"): \d+\.\d+', r"\1: #"),  # duration: of a stage of `verify`
    (r'(?m)^(  "network"): "(none|reachable)"', r'\1: "#"'),  # machine: whether readers of files can be cut off from it
    (r"note +the processes that read the files had network access:[\s\w']+\n", ""),  # machine: the same
)
"""Pattern and what stands for it."""


def masked(text: str) -> str:
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    return text
