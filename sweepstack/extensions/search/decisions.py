"""What a round decides of a search: which cells have ended, and how; which are drawn next.

`decisions` gathers, `decided` decides, and is pure: it gets the file, the log and what was found, and reads no clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sweepstack.config.search import SearchConfig
from sweepstack.core.metrics import series
from sweepstack.core.search_log import SearchLog, Step
from sweepstack.extensions.search.rules import judged, reached
from sweepstack.extensions.search.space import first, suggest
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations.sweep.cell_results import files_of, read_curve
from sweepstack.operations.sweep.sources import Sources
from sweepstack.status.compose import SweepView
from sweepstack.status.snapshot import Snapshot

SURE = ("verified", "waived", "damaged", "suspect", "unsupported")
"""States in which a cell has ended and what can be read of it is in the evidence."""


@dataclass(frozen=True)
class Ended:
    """How a cell ended, and its metric then; None where it has none that is a number."""

    state: str
    value: float | None = None


@dataclass(frozen=True)
class Found:
    """What a round found. `ended`: cell → how; `curves`: cell → x and metric of each row that has both; `running`:
    cells that run now; `sealed`: cells that were stopped by the log, and had sealed their results before. `usd`: what
    the sweep cost so far, None where that is not known; `usd_of_a_cell`: what one more cell is expected to cost."""

    ended: Mapping[str, Ended] = field(default_factory=dict)
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    running: Collection[str] = ()
    sealed: Collection[str] = ()
    usd: float | None = 0.0
    usd_of_a_cell: float = 0.0


def decisions(
    sources: Sources, snapshot: Snapshot, view: SweepView, search: SearchConfig, log: SearchLog, *, draws: bool = True
) -> list[Step]:
    """The lines to add. `draws`: whether cells are drawn, too. Reads the metrics of cells that ended since the last
    one: from their box, or their copy."""
    if not log.suggested:
        log = log.with_steps(beginning(search))
        return [*log.steps, *decided(search, log, _found(sources, snapshot, view, search, log), draws=draws)]
    return decided(search, log, _found(sources, snapshot, view, search, log), draws=draws)


def beginning(search: SearchConfig) -> list[Step]:
    """The first cells, which the file alone draws."""
    return [
        Step(kind="suggested", cell=f"s{number}", number=number, params=params)
        for number, params in enumerate(first(search))
    ]


def decided(search: SearchConfig, log: SearchLog, found: Found, *, draws: bool = True) -> list[Step]:
    """First which rungs were reached, and what has ended, in the order of the cells; then which of those that run the
    rule stops, at rungs that they have reached since the last look; then what is drawn next: as many as are to be open
    at a time, within the bounds. Pure."""
    steps: list[Step] = []

    def add(step: Step) -> None:
        nonlocal log
        steps.append(step)
        log = log.with_steps([step])

    for cell in [name for name in log.pruned if name in found.sealed]:
        add(Step(kind="kept", cell=cell, by="tend", reason="it had ended before it was stopped"))
    new = [step for cell in log.open for step in reached(search, log, cell, found.curves.get(cell, ()))]
    for step in new:
        add(step)
    for cell in log.open:
        ended = found.ended.get(cell)
        if ended is not None:
            add(Step(kind="scored", cell=cell, state=ended.state, value=ended.value, metric=search.metric or ""))
    for step in new:
        if step.rung is not None and step.cell in log.open and step.cell in found.running:
            stopped = judged(search, log, step.cell, step.rung)
            if stopped is not None:
                add(stopped)
    while (
        draws
        and len(log.open) < search.at_once
        and len(log.suggested) < search.at_most.cells
        and _affords(search, log, found)
    ):
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
    curves: dict[str, list[tuple[float, float]]] = {}
    running: list[str] = []
    states = {cell.name: cell for cell in view.cells}
    for name in log.open:
        cell = states.get(name)
        if cell is None:
            continue
        holder = snapshot.holder_of(name)
        progress = holder.progress(name) if holder is not None else None
        failed = cell.state == "failed" and progress is not None and progress.final
        over = cell.state in (*SURE, "sealed") or failed
        runs = cell.state == "running" and holder is not None and holder.reachable and bool(holder.seen.runner_alive)
        if not over and not (runs and search.stop is not None):
            continue
        try:
            curves[name] = curve_of(sources, snapshot, search, log.suggested[name])
        except (SweepstackError, OSError):
            if cell.state not in SURE and not failed:  # its box did not answer: the next round asks again
                continue
        if runs:
            running.append(name)
            continue
        value = curves[name][-1][1] if curves.get(name) else None
        ended[name] = Ended(
            "failed" if failed else "ended" if cell.state in ("sealed", "verified") else cell.state, value
        )
    spent = snapshot.spent
    seconds = view.median_seconds or 0.0
    slots = sum(max(box.slots, 1) for box in snapshot.box_snapshots if box.phase == "running")
    per_hour = sum(box.price_per_hour or 0.0 for box in snapshot.box_snapshots if box.phase == "running")
    return Found(
        ended=ended,
        curves=curves,
        running=running,
        sealed=[name for name in log.pruned if _is_sealed(snapshot, name)],
        usd=spent.usd if spent is not None and spent.complete else None,
        usd_of_a_cell=per_hour / slots * seconds / 3600 if slots else 0.0,
    )


def _is_sealed(snapshot: Snapshot, cell: str) -> bool:
    holder = snapshot.holder_of(cell)
    progress = holder.progress(cell) if holder is not None and holder.reachable else None
    return progress is not None and progress.state == "sealed"


def curve_of(sources: Sources, snapshot: Snapshot, search: SearchConfig, drawn: Step) -> list[tuple[float, float]]:
    """x and the search's metric of each row of a cell's curve, as `results` shows it, that has both as finite numbers;
    empty where there are none. Raises SweepstackError, OSError where its file can't be read now, or there is none."""
    metrics = files_of(sources.target, snapshot)[1]
    if search.metric is None or metrics is None:
        return []
    params = {**drawn.params, **_params(snapshot, drawn.cell)}
    rows = read_curve(sources, snapshot, drawn.cell, params, metrics).rows
    points = series(rows, drawn.cell, metrics.x, search.metric).points
    return [(x, y) for x, y in points if math.isfinite(y)]


def _params(snapshot: Snapshot, cell: str) -> Mapping[str, Any]:
    return next((one.params for one in snapshot.roster if one.name == cell), {})
