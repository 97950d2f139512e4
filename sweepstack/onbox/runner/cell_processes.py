"""Which processes are of cells, also those that outlived the runner that started them.

A process is a cell's when its environment carries the box's id and the cell's name (or a setup's, which is ended with
all of them), or when its process group is the one that the cell's attempt was started in (programs may overwrite their
own environment).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, Process, end_all, scan, signal_group

CELL, SETUP = "SWEEPSTACK_CELL", "SWEEPSTACK_SETUP"


def end_cells(box: str, cells: Collection[str] | None, leaders: Mapping[int, str], grace: float) -> list[int]:
    """Ends the live processes of the box's cells: of the named, or of all and of setups. Returns what is alive even
    then; see `end_all`. `leaders`: pid → start of their groups' leaders."""
    return _pids(end_all(lambda: of_cells(box, cells, leaders), grace))


def end_group(group: int, grace: float) -> list[int]:
    """The same for what a group's leader left behind when it ended."""
    if not signal_group(group, 0):
        return []
    return _pids(end_all(lambda: [process for process in scan() if process.group == group], grace))


def of_cells(box: str, cells: Collection[str] | None, leaders: Mapping[int, str]) -> list[Process]:
    """Live processes of the box's cells, without this one. See `end_cells`."""
    seen = [process for process in scan() if process.pid != os.getpid()]
    groups = {process.pid for process in seen if process.start and leaders.get(process.pid) == process.start}
    mark, keys = f"{BOX_ID_VARIABLE}={box}".encode(), (f"{CELL}=".encode(), f"{SETUP}=".encode())
    named = None if cells is None else {keys[0] + cell.encode() for cell in cells}

    def carries(environ: frozenset[bytes]) -> bool:
        if mark not in environ:
            return False
        return any(word.startswith(keys) for word in environ) if named is None else bool(named & environ)

    return [process for process in seen if process.group in groups or carries(process.environ)]


def _pids(processes: list[Process]) -> list[int]:
    return [process.pid for process in processes]
