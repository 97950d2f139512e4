"""Cells that begin from another one, as the runner sees them.

The work is done by the extension `longer`, which is shipped as `sweepstack.onbox.longer` where it is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.longer import FROM, MARK
from sweepstack.onbox.runner.records import Entry

PACKAGE = Path(__file__).parents[1] / "longer"


def beginnings(cells: Path, checkpoints: Path, wake: Callable[[], None]) -> Any:
    """The extension's `Beginnings`; None where it was not shipped."""
    found = importlib.import_module("sweepstack.onbox.longer.begin") if PACKAGE.is_dir() else None
    return found.Beginnings(cells, checkpoints, wake) if found else None


def begun_from(entry: Entry, checkpoint: Path) -> dict[str, Any]:
    """Which sealed copy a cell began from, for records: as its folder of checkpoints says, else as its line does. Empty
    for a cell that begins from none."""
    if not entry.source[0]:
        return {}
    said = dict(zip(("cell", "manifest"), entry.source))
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        mark = json.loads((checkpoint / MARK).read_bytes())
        said = {"cell": str(mark["cell"]), "manifest": str(mark["manifest"])}
    return {FROM: said}
