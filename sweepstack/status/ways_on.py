"""The ways on for single cells and boxes, as commands.

The table of next commands names them, and so does a command that meets such a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sweepstack.core.records import ENDED
from sweepstack.onbox.common.files_hold import FILES
from sweepstack.onbox.host.platform import Told
from sweepstack.status.engine.state import STOP, BoxEntry
from sweepstack.status.model import has_set_before
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.refusal import accept

MOST_NAMED = 20
"""Cells that one command names."""


def out_of_refused(stack: str, cells: Mapping[str, str]) -> list[str]:
    """The ways on for copies that the last `verify` refused (cell → state): a `finish` would refuse them again."""
    again = [name for name, state in cells.items() if state != "unsupported"]
    return [
        f"sweepctl pull --stack {stack} --verify    (copies again what differs, and says what else helps)",
        *([run_again(stack, again)] if again else []),
        accept(stack, cells, "takes them as they are"),
    ]


def out_of_files(stack: str, cells: Sequence[str]) -> list[str]:
    """The ways on for cells that ended well and left the wrong files; the cheapest first."""
    first, up = cells[0], f"pulumi up --stack {stack}"
    return [
        f"{up}    (after artifacts names what {first} left: seals it, and trains nothing)",
        run_again(stack, cells),
        accept(stack, cells, "to do without"),
    ]


def by_files(snapshot: Snapshot, cells: Iterable[str]) -> list[str]:
    """Those of these cells that ended well and left the wrong files, by the journals of their boxes."""
    found = {name: holder.progress(name) for name in cells if (holder := snapshot.holder_of(name)) is not None}
    return [name for name, one in found.items() if one is not None and one.final and one.failure_class == FILES]


def out_of_hung(stack: str, cell: str) -> list[str]:
    """The ways out for a cell that hangs; both are done by the `pulumi up` that follows."""
    return [
        f"sweepctl retry --stack {stack} {cell} && pulumi up --stack {stack}    (ends it, and starts it again)",
        f'sweepctl drop --stack {stack} {cell} --reason "…" && pulumi up --stack {stack}    (ends it, gives it up)',
    ]


def by_checkpoint(snapshot: Snapshot, cells: Iterable[str]) -> dict[str, str]:
    """Those of these failed cells that may have failed at a checkpoint which a kill cut, and its path."""
    found = {name: holder.progress(name) for name in cells if (holder := snapshot.holder_of(name)) is not None}
    return {name: one.checkpoint for name, one in found.items() if one is not None and one.checkpoint}


def out_of_checkpoint(snapshot: Snapshot, found: Mapping[str, str]) -> list[str]:
    """The ways on for what `by_checkpoint` found; none where that is nothing."""
    if not found:
        return []
    stack, names = snapshot.state.stack, " ".join(list(found)[:MOST_NAMED])
    first = next(iter(found.values()))
    retry, up = f"sweepctl retry --stack {stack} {names}", f"pulumi up --stack {stack}"
    bucket = all((holder := snapshot.holder_of(name)) is not None and has_set_before(holder, name) for name in found)
    before = [f"{retry} --from set && {up}    (from the set of checkpoints before the newest)"] if bucket else []
    return [*before, f"{retry} --from start && {up}    (begins at 0: {first} may be cut, and is kept)"]


def run_again(stack: str, cells: Sequence[str]) -> str:
    """The command that trains these cells again, of which a sealed copy is not what it should be."""
    named = cells[:MOST_NAMED]
    what = "it" if len(cells) == 1 else "them" if len(cells) == len(named) else f"{len(named)} of {len(cells)}"
    return f"sweepctl retry --stack {stack} {' '.join(named)} && pulumi up --stack {stack}    (trains {what} again)"


def first_hung(stack: str, box_snapshots: Sequence[BoxSnapshot]) -> list[str]:
    """The ways out for the first cell that hangs on these boxes; empty where none does."""
    name = next((name for box_snapshot in box_snapshots for name in box_snapshot.hung), None)
    return out_of_hung(stack, name) if name is not None else []


def to_begin(stack: str, boxes: Iterable[BoxSnapshot], states: Mapping[str, str], tended: bool) -> list[str]:
    """The way on where all that is left to run begins from a cell that ended well; else nothing. `states`: of all
    cells; `tended`: whether a `tend` is at work."""
    begin = {name: source for one in boxes for name, source in one.unsourced.items()}
    # Of a chain the first one counts: the others begin later.
    firsts = {begin.get(name, "") for name, state in states.items() if state not in ENDED} - begin.keys()
    sources = {states.get(name, "") for name in firsts}
    if not sources or not sources <= {"verified", "sealed", "missing"}:
        return []
    if tended or sources != {"verified"}:
        return [tends(stack, tended)]
    return [f"pulumi up --stack {stack}    (starts what begins from a verified cell)", tends(stack, tended)]


def tends(stack: str, tended: bool) -> str:
    """The command that leads on where cells come to the queues only later. `tended`: as in `to_begin`."""
    if tended:
        return f"sweepctl wait --stack {stack} verified    (the tend at work brings the cells that are still to come)"
    return f"sweepctl tend --stack {stack}    (pulls, verifies, and brings the cells that are still to come)"


def adopt_renamed(host: str) -> list[str]:
    """The command for a computer that was renamed, if the evidence names another `host`; none for ""."""
    if not host:
        return []
    return [f"sweepctl adopt --renamed-from {host}    (if this computer was that, and was renamed)"]


def wakes(stack: str, boxes: Sequence[tuple[BoxEntry, Told | None]]) -> str:
    """The command that starts boxes which stand still, each with what its platform tells, and what it needs before."""
    names = ", ".join(box.name for box, _ in boxes)
    kept = ", ".join(f"boxes.{box.name}.want" for box, _ in boxes if box.want == "stopped")
    first = f"after {kept} is set to running: " if kept else ""
    taken = any(told is not None and box.want == "running" for box, told in boxes)
    more = "; where another customer has its place, a higher `bid` may help" if taken else ""
    if any(box.when_done == STOP and box.want == "running" for box, _ in boxes):
        more += "; one that was stopped with nothing left to run: after `when_done: keep`"
    return f"pulumi up --stack {stack}    ({first}starts {names}, with which cells wait{more})"
