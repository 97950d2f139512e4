"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Patch:
    """`old` occurs exactly once in `path` and becomes `new`."""

    path: str
    old: str
    new: str

    def text(self, root: Path) -> str:
        """What the file has there now. Raises ValueError where `old` is not in it once."""
        text = (root / self.path).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.path} holds {self.old!r} {text.count(self.old)} times, not once")
        return text

    def apply(self, root: Path) -> None:
        """Changes the file there. Raises ValueError as `text` does."""
        (root / self.path).write_text(self.text(root).replace(self.old, self.new))


@dataclass(frozen=True)
class Mutant:
    """A broken promise. Every one of `caught_by` must fail on it."""

    name: str
    patches: tuple[Patch, ...]
    caught_by: tuple[str, ...]
