"""`python -m tests.in_memory`: the folder in which `make test` keeps the files of its tests, for TMPDIR.

The product syncs each record that it writes, which a disk answers in milliseconds and memory at once. So it is a folder
in memory where there is one that holds all that the tests write, can run programs, and takes extended attributes.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

SHARED = Path("/dev/shm")
NEEDED = 8 * 2**30
"""Bytes. At one moment the engine's tests have 0.35 GB there, with three workers: the rest is for what they start."""


def folder(shared: Path = SHARED, needed: int = NEEDED) -> str:
    """`shared`, where it will do; else what Python takes, which is also what a person has named as TMPDIR."""
    usual = tempfile.gettempdir()
    return usual if os.environ.get("TMPDIR") or not will_do(shared, needed) else str(shared)


def will_do(shared: Path, needed: int) -> bool:
    """Whether the tests' files may lie there. Nothing is left of the look."""
    try:
        found = os.statvfs(shared)
        memory = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
        free = min(found.f_bavail * found.f_frsize, int(memory[1]) * 1024 if memory else 0)
        if free < needed or found.f_flag & os.ST_NOEXEC:
            return False
        with tempfile.NamedTemporaryFile(dir=shared) as file:
            os.setxattr(file.name, "user.sweepstack", b"1")
    except (OSError, AttributeError):  # macOS has neither the folder nor these attributes
        return False
    return True


if __name__ == "__main__":
    sys.stdout.write(f"{folder()}\n")
