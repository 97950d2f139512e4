"""`sweepctl drop`: writes cells into `cells.drop`, so that the next `pulumi up` stops them."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import YES, Out
from sweepstack.cli.prompt import own_words
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.operations.sweep.roster_diff import file_roster
from sweepstack.operations.sweep.target import Target


def command(
    cells: Annotated[list[str], typer.Argument(metavar="CELL", help="Cells by name.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the stack file.")] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Take cells out of the sweep, at the next `pulumi up`. Writes them into `cells.drop` of the stack file."""
    target, out = Target.find_sweep(stack), Out(as_json=json)
    reason, names = own_words("--reason", reason), tuple(dict.fromkeys(cells))
    if not reason:
        raise Unsure(f'why? It is kept with each cell: sweepctl drop {" ".join(names)} --reason "…"')
    _may_drop(target, names, reason)
    changed = [target.file.write_drop(name, reason) for name in names]
    following = [f"pulumi up --stack {target.stack}    (stops what of it runs)"]
    out.document(
        {
            "stack": target.stack,
            "cells": list(names),
            "reason": reason,
            "file": target.file.shown,
            "changed": any(changed),
            "next": [f"pulumi up --stack {target.stack}"],
        }
    )
    are, it = ("is", "it stays listed and needs") if len(names) == 1 else ("are", "they stay listed and need")
    out.line(f"{', '.join(names)} {are} dropped in {target.file.shown}: {it} no waiver")
    out.line("what was sealed before stays where it is; taking a line out brings its cell back")
    out.next(following)
    return YES


def _may_drop(target: Target, names: tuple[str, ...], reason: str) -> None:
    """Raises No where one of these cells can't be dropped: nothing was written then."""
    roster, problem = file_roster(target.file, target.root)
    if roster is None:
        raise No(problem or f"{target.file.shown} is not there", [f"sweepctl status --stack {target.stack}"])
    for name in names:
        if name not in roster.names and name not in roster.dropped:
            raise target.no_cell(name, roster.names)
        if roster.dropped.get(name, reason) != reason:
            raise No(
                f"{name} is dropped already: {roster.dropped[name]}. "
                f"Another reason is written into {target.file.shown}",
                [f"pulumi up --stack {target.stack}"],
            )
    if set(roster.names) <= set(names):
        last = f"{names[0]} is the last cell" if len(names) == 1 else "these are the last cells"
        raise No(
            f"{last} of the sweep, and a sweep without cells can't be verified",
            [f"sweepctl finish --stack {target.stack}"],
        )
