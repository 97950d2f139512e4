"""Suggests a new box beside the old one, instead of a change that would replace the box."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sweepstack.core.journal import CellProgress, Journal, started
from sweepstack.core.resources import BoxInputs
from sweepstack.evidence.lazy import Evidence
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.onbox.common.units import spell_rate
from sweepstack.provider.resources.teardown import Judgement


def recipe(judgement: Judgement, old: BoxInputs, new: BoxInputs, changed: Sequence[str], *, stack: str) -> str:
    """The commands by which the cells move, as lines of text, with the costs as far as they were measured."""
    if set(changed) - {"resources"}:
        return (
            f"To move: undo it and end this sweep here (sweepctl finish --stack {stack}), or begin beside it there "
            "(sweepctl init NAME): in this version all boxes of a sweep are on one platform and mount the same volume"
        )
    name = free_name(old, judgement.box.evidence)
    wanted = _flow({"want": "running", "resources": new.resources})
    cells = judgement.seen.journal.cells if judgement.seen.journal else {}
    lines = [line.name for line in judgement.verdict.cells]
    waiting = [cell for cell in lines if not started(cells.get(cell))]
    staying = [cell for cell in lines if started(cells.get(cell)) and not _ended(cells[cell])]
    count = f"{len(waiting)} cell{'' if len(waiting) == 1 else 's'}"
    rows = [
        "To move instead:",
        f"  1. undo the change, and add below boxes:   {name}: {wanted}",
        f"  2. pulumi up --stack {stack}    (of {count} not started, {name}'s share moves; what started stays)",
        f"  3. sweepctl wait --stack {stack} --for done && sweepctl finish --stack {stack} --box {old.name}",
        f"  costs     {_cost(judgement, staying)}",
        "  again     nothing that is sealed is trained or copied again; code and set-up are shipped to the new box",
    ]
    return "\n".join(rows)


def free_name(old: BoxInputs, evidence: Evidence) -> str:
    """A name that no box of this sweep ever had."""
    try:
        taken = {birth.box for birth in evidence.store.births()}
    except EvidenceError:
        taken = {old.name}
    stem = old.name[:36].rstrip("-")
    return next(name for number in range(2, 10_000) if (name := f"{stem}-{number}") not in taken)


def _cost(judgement: Judgement, staying: Sequence[str]) -> str:
    """What the old box costs until its own cells are done. If something is not known, it says so."""
    price, box = judgement.facts.price_per_hour, judgement.facts.name
    if not staying:
        return f"{box} has no cell at work, so it can end at once"
    cells = "its started cell is" if len(staying) == 1 else f"its {len(staying)} started cells are"
    what = f"{box} bills on until {cells} done"
    hours = _hours_left(judgement.seen.journal, staying, judgement.seen.skew)
    rate = "at a price that is not on record" if price is None else f"at ${spell_rate(price)}/h"
    if hours is None:
        return f"{what}, {rate}; how long is not known: no cell was sealed here yet"
    total = "" if price is None else f", ${hours * price:.2f} in all"
    return f"{what}, {rate}, about {hours:.2f} h by the median of its sealed cells{total}"


def _hours_left(journal: Journal | None, staying: Sequence[str], skew: float) -> float | None:
    """Hours until the last of the started cells is done, as if they ran side by side; None if no cell was sealed to
    measure by."""
    if journal is None:
        return None
    took = [
        (cell.ended_at - cell.started_at).total_seconds()
        for cell in journal.cells.values()
        if cell.state == "sealed" and cell.ended_at is not None and cell.started_at is not None
    ]
    if not took:
        return None
    now, median = datetime.now(UTC) + timedelta(seconds=skew), statistics.median(took)
    begun = [journal.cells[name].started_at for name in staying]
    left = [median - (now - at).total_seconds() for at in begun if at is not None]
    return max([0.0, *left]) / 3600


def _ended(progress: CellProgress) -> bool:
    return progress.state in ("sealed", "dropped") or progress.final


def _flow(value: Any) -> str:
    """The value as one line of YAML that a person can paste."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) and value.replace("-", "").isalnum() else json.dumps(value)
