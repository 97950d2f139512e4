"""Asks the provider, before a box is declared, which box is to run which cell (`launch.cell_shares`)."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

from sweepstack.launch.cell_shares import FUNCTION, Asked, AskedBox, Shares, by_names_alone
from sweepstack.profiles.fleet import Fleet


def shared(fleet: Fleet) -> tuple[Fleet, Shares]:
    """The plans with their cells as the provider splits them, over the boxes of all platforms, and that answer. Blocks
    while boxes are asked, 20 s at most.

    All boxes of the stack file stay in the plans; those that `Shares.cells` does not name are not to be declared.
    """
    roster = fleet.main.roster
    asked = Asked(
        project=pulumi.get_project(),
        stack=pulumi.get_stack(),
        pull_to=fleet.main.pull_to,
        cells=roster.cells,
        boxes={box.name: AskedBox(want=box.want, slots=box.at_once) for box in fleet.boxes},
        up=not pulumi.runtime.is_dry_run(),
        retry=roster.retry,
    )
    found = pulumi.runtime.invoke(FUNCTION, {"asked": asked.model_dump_json()}).value
    text = found.get("shares") if isinstance(found, Mapping) else None
    shares = Shares.model_validate_json(text) if text else by_names_alone(asked, "the provider did not say")
    cells = {cell.name: cell for cell in roster.cells}
    fleet = fleet.with_cells({box: [cells[name] for name in names] for box, names in shares.cells.items()})
    return fleet.with_retries(shares.retries), shares


def words(fleet: Fleet, shares: Shares) -> list[str]:
    """What to say of it: the cells of each box, boxes that are not rented, and what to type where nothing is left."""
    each = [f"{box} {_count(len(shares.cells.get(box, ())), left)}" for box, left in shares.left.items()]
    lines = [f"cells of each box: {', '.join(each)}"] if each else []
    idle = [box.name for box in fleet.boxes if box.name not in shares.cells]
    if shares.cells:
        lines += [f"box {name}: not rented: no cell" for name in idle]
    elif idle:
        count = len(fleet.main.roster.cells)
        lines.append(
            f"nothing is left to train: {'the one cell is' if count == 1 else f'all {count} cells are'} verified, and "
            f"no box is rented. Next: sweepctl results --stack {pulumi.get_stack()}"
        )
    return lines


def _count(cells: int, left: int) -> str:
    """`3`, or `3 (1 left to train)`."""
    return str(cells) if cells == left else f"{cells} ({left} left to train)"
