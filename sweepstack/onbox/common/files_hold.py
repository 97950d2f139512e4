"""Whether cells that have not begun must wait, since one that ended well left the wrong files.

Each would be trained and come to the same end. They wait as long as no cell of the box was sealed, until one is, or a
person asks for something else: the cell in another version, a retry of it, or its drop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.box_layout import SEALED

FILES = "files"
"""The class of such a failure: see `sweepstack.onbox.runner.ending`."""


class FilesHold:
    """Follows a journal. `cells`: those that their files failed, for which the others wait; `sealed`: whether one was
    sealed, after which none ever waits."""

    def __init__(self) -> None:
        self.cells: dict[str, None] = {}
        self.sealed = False

    def follow(self, entry: Mapping[str, Any], *, begun: bool) -> None:
        """Takes the next line. `begun`: whether its cell had begun before it."""
        if self.sealed:
            return
        event, cell = entry["event"], str(entry.get("cell", ""))
        if event in SEALED:
            self.sealed = True
            self.cells.clear()
        elif event == "cell-failed" and entry.get("class") == FILES:
            self.cells[cell] = None
        elif event == "cell-dropped":
            self.cells.pop(cell, None)
        elif event == "cell-started" and (cell in self.cells or not begun):  # a person asked for it
            self.cells.clear()
