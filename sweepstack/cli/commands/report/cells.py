"""What the cells left behind: results of those that are verified, and curves of all that began.

Each cell's files are looked for and read once, and its curves are thinned out at once: of a thousand cells there are a
million rows, which would take half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from sweepstack.cli.artifact_specs import files_of
from sweepstack.cli.cell_results import CellFiles, find_own, result_of
from sweepstack.cli.joined_curve import joined
from sweepstack.cli.sources import Sources
from sweepstack.core.metrics import Row, Series, column, number, paired, parse_rows
from sweepstack.core.pieces import WHOLE_BYTES, is_sampled, pieces
from sweepstack.core.records import Cell
from sweepstack.core.results import CellResult
from sweepstack.evidence.cell_store import each
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.report.curves import most_of, thinned
from sweepstack.status.engine.state import MetricsEntry
from sweepstack.status.model import CellView
from sweepstack.status.snapshot import Snapshot

MOST_FROM_BOXES = 60
"""Of cells that are not verified, so many files are fetched from boxes; of all others, copies are read."""
MOST_METRICS = 16
NOT_BEGUN = ("pending", "blocked_disk")


@dataclass(frozen=True)
class Curves:
    """Those of one cell, metric → curve; empty where its file could not be read. `sampled`: only pieces of it were
    read. `longest`: the points of its longest curve, before they were thinned out. `joined`: they begin with rows of
    earlier tries."""

    made: Mapping[str, Series] = field(default_factory=dict)
    sampled: bool = False
    longest: int = 0
    joined: bool = False


@dataclass(frozen=True)
class OfCells:
    """See SweepFacts."""

    results: tuple[CellResult, ...]
    x: str
    curves: Mapping[str, tuple[Series, ...]]
    thinned: int
    joined: int
    sampled: int
    not_read: int


def of_cells(sources: Sources, snapshot: Snapshot, states: Mapping[str, CellView]) -> OfCells:
    """Blocks for reads of the evidence, and of at most `MOST_FROM_BOXES` files on boxes. What can't be read is left
    out."""
    _, metrics = files_of(sources.target, snapshot)
    begun = [cell.name for cell in snapshot.roster if states[cell.name].state not in NOT_BEGUN]
    from_boxes = set([name for name in begun if states[name].state != "verified"][:MOST_FROM_BOXES])
    most, wanted = most_of(len(begun)), frozenset(begun)

    def ask(cell: Cell) -> tuple[CellResult | None, Curves | None]:
        state = states[cell.name].state
        hold = WHOLE_BYTES if metrics is not None else 0
        there = CellFiles(sources, snapshot, cell.name, state, hold=hold, asks_box=cell.name in from_boxes)
        own = files_of(sources.target, snapshot, cell.name)
        earlier = states[cell.name].earlier  # whose curves are those of the run since
        copy = CellFiles(sources, snapshot, cell.name, state, earlier=True) if earlier else there
        result = result_of(cell, copy, *own) if states[cell.name].has_result else None
        return result, _curves(there, cell, metrics, most) if metrics is not None and cell.name in wanted else None

    cells = snapshot.roster
    found = list(each(sources.store.copies, ask, cells) if sources.store is not None else map(ask, cells))
    read = [curves for _, curves in found if curves is not None]
    by_metric: dict[str, list[Series]] = {metric: [] for metric in (metrics.y if metrics is not None else ())}
    for curves in read:
        for metric, one in curves.made.items():
            if one.points:
                by_metric.setdefault(metric, []).append(one)
    shown = {metric: tuple(lines) for metric, lines in list(by_metric.items())[:MOST_METRICS] if lines}
    return OfCells(
        results=tuple(result for result, _ in found if result is not None),
        x=metrics.x if metrics is not None else "",
        curves=shown,
        thinned=most if any(curves.longest > most for curves in read) else 0,
        joined=sum(curves.joined for curves in read),
        sampled=sum(curves.sampled for curves in read),
        not_read=sum(
            curves is not None and not curves.made and states[cell.name].state != "verified"
            for cell, (_, curves) in zip(cells, found, strict=True)
        ),
    )


def _curves(there: CellFiles, cell: Cell, entry: MetricsEntry, most: int) -> Curves:
    """The curves of one cell, with about `most` points each."""
    file = find_own(there, cell, entry.file)
    if file is None:
        return Curves()
    try:
        size = file.size()
        found = pieces(file.read, size)
    except (SweepstackError, OSError):
        return Curves()
    header = found[0].partition(b"\n")[0] + b"\n"
    rows = parse_rows(found[0], entry.file)
    for data in found[1:]:
        rows += parse_rows(data, entry.file, header=header)
    if not rows:
        return Curves(sampled=is_sampled(size))
    own = own_file(entry.file, cell.name, cell.params)
    parts = joined(rows, file.attempt, entry.x, lambda attempt: there.earlier_rows(attempt, own))
    rows = [*chain.from_iterable(part.rows for part in parts), *rows]
    across, made, longest = column(rows, entry.x), {}, 0
    for metric in _metrics(entry.y, entry.x, rows):
        xs, ys = paired(across, column(rows, metric))
        made[metric] = Series(there.cell, metric, tuple(thinned(xs, ys, most)))
        longest = max(longest, len(ys))
    return Curves(made, is_sampled(size), longest, bool(parts))


def _metrics(first: Iterable[str], x: str, rows: Sequence[Row]) -> list[str]:
    """The metrics that the stack file names, and every other number in the first or the last row."""
    others = (key for row in (*rows[:1], *rows[-1:]) for key, value in row.items() if number(value) is not None)
    return [key for key in dict.fromkeys([*first, *others]) if key != x][:MOST_METRICS]
