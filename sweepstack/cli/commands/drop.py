"""`sweepctl drop`: writes a cell into `cells.drop`, so that the next `pulumi up` stops it."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import YES, No, Out, Unsure
from sweepstack.cli.own_words import own_words
from sweepstack.cli.roster_diff import file_roster
from sweepstack.cli.target import Target


def command(
    cell: Annotated[str, typer.Argument(help="A cell's name.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the stack file.")] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Take a cell out of the sweep: writes it into `cells.drop` of the stack file; the next `pulumi up` stops it."""
    target, out = Target.find_sweep(stack), Out(as_json=json)
    reason = own_words("--reason", reason)
    if not reason:
        raise Unsure(f'why? It is kept with the cell: sweepctl drop {cell} --reason "…"')
    roster, problem = file_roster(target.file)
    if roster is None:
        raise No(problem or f"{target.file.shown} is not there", [f"sweepctl status --stack {target.stack}"])
    if cell not in roster.names and cell not in roster.dropped:
        raise target.no_cell(cell, roster.names)
    if cell in roster.names and len(roster.names) == 1:
        raise No(
            f"{cell} is the last cell of the sweep, and a sweep without cells can't be verified",
            [f"sweepctl finish --stack {target.stack}"],
        )
    if roster.dropped.get(cell, reason) != reason:
        raise No(
            f"{cell} is dropped already: {roster.dropped[cell]}. Another reason is written into {target.file.shown}",
            [f"pulumi up --stack {target.stack}"],
        )
    changed = target.file.write_drop(cell, reason)
    following = [f"pulumi up --stack {target.stack}    (stops it, if it runs)"]
    out.document(
        {
            "stack": target.stack,
            "cell": cell,
            "reason": reason,
            "file": target.file.shown,
            "changed": changed,
            "next": [f"pulumi up --stack {target.stack}"],
        }
    )
    out.line(f"{cell} is dropped in {target.file.shown}: it stays listed and needs no waiver")
    out.line("what it sealed before stays where it is; taking the line out brings the cell back")
    out.next(following)
    return YES
