"""`sweepctl place`: shows the candidates' offers, and writes the chosen ones into the stack file."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.commands.place.placing import place
from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import Out, Unsure
from sweepstack.cli.target import Target, parse_duration


def command(
    next_one: Annotated[bool, typer.Option("--next", help="Take the next offer after the present placement.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show the offers; write nothing.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the placement from the stack file.")] = False,
    wait: Annotated[
        str | None, typer.Option(metavar="6h", help="Where nothing fits now, look again until then. Rents nothing.")
    ] = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show the candidates' offers, and write the cheapest that fits into the stack file. Exit 1: nothing fits."""
    if wait is not None and (show or clear):
        raise Unsure(f"--wait is for an offer that is to be written: leave {'--show' if show else '--clear'} out")
    limit = parse_duration(wait) if wait is not None else None
    out = Out(as_json=json)
    return place(Target.find_sweep(stack), out, next_one=next_one, show=show, clear=clear, wait=limit)
