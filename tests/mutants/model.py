"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patch:
    """`old` occurs exactly once in `path` and becomes `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A broken promise. Every one of `caught_by` must fail on it."""

    name: str
    patches: tuple[Patch, ...]
    caught_by: tuple[str, ...]
