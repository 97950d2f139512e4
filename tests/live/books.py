"""What a real platform itself says that an account rents: asked by plain HTTP, past the adapter that is under test."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

SECONDS = 30.0
MOST_PER_HOUR = 0.60
"""USD of any box of a live run, unless the platform has none so cheap."""
PAGES = 100


@dataclass(frozen=True)
class Entry:
    """One thing that may bill. `kind`: box or volume."""

    kind: str
    id: str
    tag: str


@dataclass(frozen=True)
class Books:
    """One platform's. `key` names the variable that holds the key, `console` where a person can look."""

    platform: str
    key: str
    url: str
    base: str
    console: str
    boxes: Callable[[Books], list[Entry]]
    volumes: Callable[[Books], list[Entry]]
    end: Callable[[Books, str], None]
    stops: bool = True
    """Whether the platform can stop a box and tells a balance: the whole loop (`tests.live.loop`) needs both."""
    most_per_hour: float = MOST_PER_HOUR

    def client(self) -> httpx.Client:
        """A client of the platform, with the key in its header."""
        base = os.environ.get(self.url, "").strip().rstrip("/") or self.base
        headers = {"Authorization": f"Bearer {os.environ[self.key].strip()}", "User-Agent": "sweepstack-live"}
        return httpx.Client(base_url=base, headers=headers, timeout=SECONDS)

    def held(self, prefix: str) -> list[Entry]:
        """All boxes and volumes whose tag begins with `prefix`. Raises httpx.HTTPError when that can't be said."""
        found = [*self.boxes(self), *self.volumes(self)]
        return [entry for entry in found if entry.tag.startswith((prefix, prefix.replace("-", "_")))]


def loop_books() -> dict[str, Books]:
    """Those of the platforms on which the whole loop can be played."""
    return {name: books for name, books in all_books().items() if books.stops}


def all_books() -> dict[str, Books]:
    """Those of each platform that has a `books_<adapter>.py` beside this file."""
    found = sorted(path.stem for path in Path(__file__).parent.glob("books_*.py"))
    return {name.removeprefix("books_"): importlib.import_module(f"tests.live.{name}").BOOKS for name in found}
