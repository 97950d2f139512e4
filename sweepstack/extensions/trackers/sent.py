"""What was sent to trackers from this computer, so that a pull sends each try once.

What is lost here is sent again. No key stands here.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.xdg import data_folder

FIRST_SECONDS = 15.0
"""For the first answer of a server: whether there is one at all."""


class NotSent(SweepstackError):
    """A tracker did not take what was sent, in words that hold no key."""


class Sent:
    """The tries of one sweep that a tracker has, and the address of each cell's run."""

    def __init__(self, identity: str) -> None:
        self._path: Path = data_folder() / "trackers" / f"{identity}.json"
        self.links: dict[str, dict[str, str]] = {}
        """Tracker → cell → address"""
        self._tries: dict[str, None] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            known: dict[str, Any] = json.loads(self._path.read_bytes())
            self.links = {str(name): dict(cells) for name, cells in known["links"].items()}
            self._tries = dict.fromkeys(map(str, known["tries"]))

    def has(self, tracker: str, key: str) -> bool:
        """Whether this try was sent there."""
        return f"{tracker}:{key}" in self._tries

    def add(self, tracker: str, key: str, cell: str, link: str) -> None:
        """Remembers it, until `save` for this process alone."""
        self._tries[f"{tracker}:{key}"] = None
        if link:
            self.links.setdefault(tracker, {})[cell] = link

    def save(self) -> None:
        """Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomically(self._path, {"links": self.links, "tries": list(self._tries)})
