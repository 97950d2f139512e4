"""Comparing version numbers, as far as set-up needs it."""

from __future__ import annotations

import re


def parse(text: str) -> tuple[int, int, int]:
    """The first version number in `text` (`v3.259.0`, `uv 0.13.8 (…)`, `go1.26.8`); a missing part counts as 0.

    Raises:
        ValueError: there is none.
    """
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        raise ValueError(f"no version number in {text!r}")
    major, minor, patch = found.groups()
    return int(major), int(minor), int(patch or 0)


def show(version: tuple[int, int, int]) -> str:
    return ".".join(str(part) for part in version)
