"""Asks the provider, before a box is declared, which box is to run which cell (`launch.cell_shares`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pulumi

from sweepstack.launch.cell_shares import FUNCTION, Asked, AskedBox, Shares, by_names_alone
from sweepstack.profiles.plan import Plan


def shared(plan: Plan) -> tuple[Plan, Shares]:
    """The plan with its cells as the provider splits them, and that answer. Blocks while boxes are asked, 20 s at most.

    All boxes of the stack file stay in the plan; those that `Shares.cells` does not name are not to be declared.
    """
    asked = Asked(
        project=pulumi.get_project(),
        stack=pulumi.get_stack(),
        pull_to=plan.pull_to,
        cells=plan.roster.cells,
        boxes={box.name: AskedBox(want=box.want, slots=box.slots) for box in plan.boxes},
    )
    found = pulumi.runtime.invoke(FUNCTION, {"asked": asked.model_dump_json()}).value
    text = found.get("shares") if isinstance(found, Mapping) else None
    shares = Shares.model_validate_json(text) if text else by_names_alone(asked, "the provider did not say")
    cells = {cell.name: cell for cell in plan.roster.cells}
    boxes = tuple(
        replace(box, cells=tuple(cells[name] for name in shares.cells.get(box.name, ()))) for box in plan.boxes
    )
    return replace(plan, boxes=boxes), shares


def words(plan: Plan, shares: Shares) -> list[str]:
    """What to say of it: the cells of each box, boxes that are not rented, and what to type where nothing is left."""
    each = [f"{box} {_count(len(shares.cells.get(box, ())), left)}" for box, left in shares.left.items()]
    lines = [f"cells of each box: {', '.join(each)}"] if each else []
    idle = [box.name for box in plan.boxes if box.name not in shares.cells]
    if shares.cells:
        lines += [f"box {name}: not rented: no cell" for name in idle]
    elif idle:
        count = len(plan.roster.cells)
        lines.append(
            f"nothing is left to train: {'the one cell is' if count == 1 else f'all {count} cells are'} verified, and "
            f"no box is rented. Next: sweepctl results --stack {pulumi.get_stack()}"
        )
    return lines


def _count(cells: int, left: int) -> str:
    """`3`, or `3 (1 left to train)`."""
    return str(cells) if cells == left else f"{cells} ({left} left to train)"
