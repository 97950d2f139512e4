"""What a round decides of a search: which cells have ended, and how; which are drawn next.

`decisions` gathers, `decided` decides, and is pure: it gets the file, the log and what was found, and reads no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sweepstack.config.search import SearchConfig
from sweepstack.core.metrics import column, parse_rows
from sweepstack.core.search_log import SearchLog, Step
from sweepstack.extensions.search.space import first, suggest
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.operations.sweep.cell_file import find_file
from sweepstack.operations.sweep.cell_results import files_of
from sweepstack.operations.sweep.sources import Sources
from sweepstack.status.compose import SweepView
from sweepstack.status.snapshot import Snapshot

MOST_BYTES = 64 << 20
SURE = ("verified", "waived", "damaged", "suspect", "unsupported")
"""States in which a cell has ended and what can be read of it is in the evidence."""


@dataclass(frozen=True)
class Ended:
    """How a cell ended, and its metric then; None where it has none that is a number."""

    state: str
    value: float | None = None


@dataclass(frozen=True)
class Found:
    """What a round found. `ended`: cell → how; `usd`: what the sweep cost so far, None where that is not known;
    `usd_of_a_cell`: what one more cell is expected to cost."""

    ended: Mapping[str, Ended] = field(default_factory=dict)
    usd: float | None = 0.0
    usd_of_a_cell: float = 0.0


def decisions(
    sources: Sources, snapshot: Snapshot, view: SweepView, search: SearchConfig, log: SearchLog
) -> list[Step]:
    """The lines to add. Reads the metrics of cells that ended since the last one: from their box, or their copy."""
    if not log.suggested:
        log = log.with_steps(beginning(search))
        return [*log.steps, *decided(search, log, _found(sources, snapshot, view, search, log))]
    return decided(search, log, _found(sources, snapshot, view, search, log))


def beginning(search: SearchConfig) -> list[Step]:
    """The first cells, which the file alone draws."""
    return [
        Step(kind="suggested", cell=f"s{number}", number=number, params=params)
        for number, params in enumerate(first(search))
    ]


def decided(search: SearchConfig, log: SearchLog, found: Found) -> list[Step]:
    """First what has ended, in the order of the cells, then what is drawn next: as many as are to be open at a time,
    within the bounds. Pure."""
    steps: list[Step] = []

    def add(step: Step) -> None:
        nonlocal log
        steps.append(step)
        log = log.with_steps([step])

    for cell in log.open:
        ended = found.ended.get(cell)
        if ended is not None:
            add(Step(kind="scored", cell=cell, state=ended.state, value=ended.value, metric=search.metric or ""))
    while len(log.open) < search.at_once and len(log.suggested) < search.at_most.cells and _affords(search, log, found):
        add(suggest(search, log))
    return steps


def _affords(search: SearchConfig, log: SearchLog, found: Found) -> bool:
    """Whether one more cell keeps the sweep within its dollars, with what open ones are expected to take. Where the
    cost is not known, it does not."""
    most = search.at_most.dollars
    if most is None:
        return True
    return found.usd is not None and found.usd + (len(log.open) + 1) * found.usd_of_a_cell <= most


def _found(sources: Sources, snapshot: Snapshot, view: SweepView, search: SearchConfig, log: SearchLog) -> Found:
    ended: dict[str, Ended] = {}
    states = {cell.name: cell for cell in view.cells}
    for name in log.open:
        cell = states.get(name)
        if cell is None:
            continue
        holder = snapshot.holder_of(name)
        progress = holder.progress(name) if holder is not None else None
        failed = cell.state == "failed" and progress is not None and progress.final
        if cell.state not in (*SURE, "sealed") and not failed:
            continue
        try:
            value = metric_of(sources, snapshot, search, log.suggested[name])
        except (SweepstackError, OSError):
            if cell.state == "sealed":  # its box did not answer: the next round asks again, or finds the copy
                continue
            value = None
        ended[name] = Ended(
            "failed" if failed else "ended" if cell.state in ("sealed", "verified") else cell.state, value
        )
    spent = snapshot.spent
    seconds = view.median_seconds or 0.0
    slots = sum(max(box.slots, 1) for box in snapshot.box_snapshots if box.phase == "running")
    per_hour = sum(box.price_per_hour or 0.0 for box in snapshot.box_snapshots if box.phase == "running")
    return Found(
        ended=ended,
        usd=spent.usd if spent is not None and spent.complete else None,
        usd_of_a_cell=per_hour / slots * seconds / 3600 if slots else 0.0,
    )


def metric_of(sources: Sources, snapshot: Snapshot, search: SearchConfig, drawn: Step) -> float | None:
    """The last finite value of the search's metric in a cell's metrics file; None where it has none. Raises
    SweepstackError, OSError where the file can't be read now, or there is none."""
    if search.metric is None:
        return None
    metrics = files_of(sources.target, snapshot)[1]
    if metrics is None:
        return None
    cell = next((one for one in snapshot.roster if one.name == drawn.cell), None)
    file = own_file(metrics.file, drawn.cell, cell.params if cell is not None else drawn.params)
    rows = parse_rows(find_file(sources, snapshot, drawn.cell, None, file).whole(MOST_BYTES), file)
    values = [value for value in column(rows, search.metric) if value is not None and math.isfinite(value)]
    return values[-1] if values else None
