"""Compares the cells of the state's queues with those of the stack file."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.project import stack_name
from sweepstack.config.searched import with_search
from sweepstack.core.cells import CellsConfig
from sweepstack.core.records import Cell
from sweepstack.core.roster import Roster, expand, in_order
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.target import Target
from sweepstack.status.engine.state import StackState


@dataclass(frozen=True)
class Rosters:
    """`cells` and `dropped` of the state, or of the file if the state's queues do not make a whole roster.

    `complete`: the boxes were rented for the roster with this `digest`, so a receipt over these cells can clear them.
    """

    cells: tuple[Cell, ...]
    dropped: dict[str, str]
    complete: bool
    differs: bool = False
    """The stack file names other cells than the state: the next `up` changes the roster."""
    notes: tuple[str, ...] = field(default_factory=tuple)
    ahead: tuple[str, ...] = ()
    """Cells that are in the stack file and that no `up` has brought into the state yet."""
    unreadable: str = ""
    """Why the stack file's roster can't be read; "" if it can."""

    @property
    def roster(self) -> Roster:
        """The roster for `verify`."""
        return Roster(self.cells, dict(self.dropped))


def rosters(target: Target, state: StackState) -> Rosters:
    """Reads the state and the stack file. Never raises for the file: a broken one becomes a note."""
    cells: dict[str, Cell] = {}
    dropped: dict[str, str] = {}
    for queue in state.queues:
        cells |= {cell.name: cell for cell in queue.cells}
        dropped |= queue.dropped
    for name in set(cells) & set(dropped):
        del cells[name]
    given = Roster(tuple(cells[name] for name in sorted(cells)), dropped)
    wanted = {box.roster_digest for box in state.boxes if not box.to_delete}
    notes = []
    written, problem = file_roster(target.file, target.root) if not target.is_store else (None, "")
    if problem:
        notes.append(problem)
    if len(wanted) > 1:
        notes.append("the boxes were rented for different lists of cells: `pulumi up` did not finish")
    fits = written is not None and wanted == {written.digest}  # first: the state's own digest takes longer to compute
    if written is not None and (fits or not state.boxes or written.digest == given.digest):
        # The file has the order that the person wrote, and cells whose queue was never made.
        return Rosters(written.cells, written.dropped, fits, notes=tuple(notes))
    if written is not None:
        notes.append(f"{target.file.shown} {_difference(written, given)}: `pulumi up` brings it in")
    whole = bool(cells) and wanted == {given.digest}
    ahead = tuple(sorted(set(written.names) - set(given.names))) if written is not None else ()
    return Rosters(given.cells, dropped, whole, written is not None, tuple(notes), ahead, problem)


def file_roster(file: StackFile, project_root: Path) -> tuple[Roster | None, str]:
    """The roster of the stack file, with what was drawn by its search; or None and why."""
    if not file.path.exists():
        return None, ""
    try:
        raw = with_search(file.sweep(), project_root, stack_name(file.path)).get("cells")
        return expand(CellsConfig.model_validate(raw or {})), ""
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["cells", *(str(part) for part in first["loc"])])
        return None, f"{file.shown}: {where}: {first['msg']}"
    except ConfigError as error:
        problem = error.problems[0] if error.problems else str(error)
        return None, problem if problem.startswith(file.shown) else f"{file.shown}: {problem}"


def _difference(written: Roster, given: Roster) -> str:
    here = {cell.name: cell.config_digest for cell in written.cells}
    there = {cell.name: cell.config_digest for cell in given.cells}
    added, gone = set(here) - set(there), set(there) - set(here)
    changed = [name for name in set(here) & set(there) if here[name] != there[name]]
    parts = []
    for names, what in ((added, "more"), (gone, "fewer"), (changed, "changed")):
        first = ", ".join(sorted(names, key=in_order)[:3])
        parts += [f"{count(len(names), 'cell')} {what} ({first}{', …' if len(names) > 3 else ''})"] if names else []
    return "has " + " and ".join(parts) if parts else "drops other cells"
