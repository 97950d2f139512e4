"""Cells over several nodes, as the runner sees them.

The work is done by the extension `nodes`, which is shipped as `sweepstack.onbox.nodes` where it is installed.
How many nodes a cell has is a variable of its version (`SWEEPSTACK_NODES`): a cell that has started keeps it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.nodes import NODES
from sweepstack.onbox.runner.records import Entry
from sweepstack.onbox.runner.remains import Remains

LOST_UNTIL = "lost-until"
"""A file in an attempt's folder: until when (unix seconds) a lost node of an allocation may still run a part of it."""
REMAINS = "remains.json"
"""A file in an attempt's folder: what its parts on peers left running, and why its results may not be whole."""
PACKAGE = Path(__file__).parents[1] / "nodes"
LACKING = (
    "cells over several nodes need the extension `nodes`, which was not installed where this runner came from "
    "(sweepstack/extensions/nodes)"
)


def count_of(entry: Entry) -> int:
    """On how many nodes a cell of this version runs."""
    text = entry.env.get(NODES, "1")
    return int(text) if text.isdigit() else 1


def several() -> Any:
    """The extension's `cells`; None where it was not shipped."""
    return importlib.import_module("sweepstack.onbox.nodes.cells") if PACKAGE.is_dir() else None


def left_on_peers(folder: Path) -> Remains:
    """What the parts of an attempt on peers left running, which was ended there. `folder`: the attempt's."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        said = json.loads((folder / REMAINS).read_bytes())
        return Remains(tuple(map(str, said["running"])), tuple(map(str, said["doubts"])))
    return Remains()
