"""The rules that stop cells early. Pure: each goes by the file and by numbers that stand in the log.

A cell is judged when it has come to a rung, once, by what the log says of all cells that came there. What it did since,
and what others do later, changes nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from sweepstack.config.search import SearchConfig, StopConfig
from sweepstack.core.search_log import SearchLog, Step


def reached(search: SearchConfig, log: SearchLog, cell: str, curve: Sequence[tuple[float, float]]) -> list[Step]:
    """The lines for the rungs that a cell has come to and that the log does not have, in their order. `curve`: x and
    metric of each row, as they stand in its file."""
    steps = []
    for rung in search.stop.rungs if search.stop is not None else ():
        at = next(((x, y) for x, y in curve if x >= rung), None)
        if at is not None and cell not in log.reached.get(rung, {}):
            steps.append(Step(kind="reached", cell=cell, rung=rung, x=at[0], value=at[1], metric=search.metric or ""))
    return steps


def judged(search: SearchConfig, log: SearchLog, cell: str, rung: float) -> Step | None:
    """The line that stops a cell at this rung by the rule of the file; None where it goes on, and for one that a person
    brought back."""
    there = log.reached.get(rung, {})
    mine = there.get(cell)
    if search.stop is None or mine is None or mine.value is None or cell in log.kept:
        return None
    sign = 1 if search.goal == "minimize" else -1
    values = {name: sign * step.value for name, step in there.items() if step.value is not None}
    bound, among = _needed(search.stop, log, cell, rung, values, sign)
    if bound is None or values[cell] <= bound:
        return None
    return Step(
        kind="pruned",
        cell=cell,
        rule=search.stop.rule,
        rung=rung,
        x=mine.x,
        value=mine.value,
        metric=search.metric or "",
        bound=sign * bound,
        among=among,
    )


def _needed(
    stop: StopConfig, log: SearchLog, cell: str, rung: float, values: dict[str, float], sign: int
) -> tuple[float | None, int]:
    """What the cell needs to go on, less being better, and by how many cells' numbers; None where it goes on."""
    if stop.rule == "patience":
        earlier = [one for one in stop.rungs if one <= rung and cell in log.reached.get(one, {})]
        own = [sign * (log.reached[one][cell].value or 0.0) for one in earlier]
        if len(own) <= stop.patience:
            return None, 0
        best = min(own[: -stop.patience])
        return (best, 0) if min(own[-stop.patience :]) > best else (None, 0)
    if len(values) < stop.least:
        return None, 0
    if stop.rule == "median":
        others = [value for name, value in values.items() if name != cell]
        return (statistics.median(others), len(values)) if others else (None, 0)
    best = max(len(values) // stop.factor, 1)
    return (sorted(values.values())[best - 1], len(values)) if len(values) >= stop.factor else (None, 0)
