"""`sweepctl confirm-gone BOX`: a person confirms that a box has ended, or was never rented."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.commands.confirm_gone.ended import Statement, confirm_gone
from sweepstack.cli.commands.confirm_gone.never_rented import never_rented as none_was
from sweepstack.cli.commands.confirm_gone.peer import peer_gone
from sweepstack.cli.options import AsJson, Box, Stack
from sweepstack.cli.output import Out
from sweepstack.cli.target import Target


def command(
    box: Box,
    saw: Annotated[
        str,
        typer.Option("--saw", metavar="TEXT", help="What the provider's console shows of it; where no API proves it."),
    ] = "",
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="The person who saw it; you, by default.")] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="When, as 2026-11-21T14:05+08:00; now, by default.")
    ] = "",
    another: Annotated[
        str,
        typer.Option("--another", metavar="SHA256:…", help="The host key of another machine that has its address now."),
    ] = "",
    never_rented: Annotated[
        bool,
        typer.Option("--never-rented", help="Confirm that a create whose answer was lost rented nothing."),
    ] = False,
    power_off: Annotated[
        bool,
        typer.Option("--power-off", help="First turn its host off, where the platform's API shows it and it runs."),
    ] = False,
    peer: Annotated[
        str,
        typer.Option(
            "--peer", metavar="NAME", help="Confirm it of another node of the box (boxes.<name>.peers) alone."
        ),
    ] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Confirm that a box has ended, or was never rented; or close the record of one that its API proves gone."""
    if peer:
        return peer_gone(Target.find_sweep(stack), box, peer, saw, by, Out(as_json=json))
    statement = Statement(box, saw, by, at, another.strip(), power_off)
    return (none_was if never_rented else confirm_gone)(Target.find_sweep(stack), statement, Out(as_json=json))
