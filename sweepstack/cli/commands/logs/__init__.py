"""`sweepctl logs`: prints the log of a cell, from its box or a copy, or the log of set-up or runner."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.commands.logs.show import logs, runner_log, setup_log
from sweepstack.cli.options import AsJson, Evidence, Stack
from sweepstack.cli.output import Out, Unsure
from sweepstack.cli.target import Target, parse_duration


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CELL",
            help="A cell's name; with --setup or --runner a box's.",
            autocompletion=completion.cells_or_boxes,
        ),
    ] = None,
    setup: Annotated[bool, typer.Option("--setup", help="The log of a box's set-up step.")] = False,
    runner: Annotated[bool, typer.Option("--runner", help="The log of a box's runner, or of its last worker.")] = False,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print more as the log grows.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Another attempt than the last.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, metavar="N", help="Only the last N lines.")] = None,
    timeout: Annotated[str, typer.Option(metavar="12h", help="When to stop following.")] = "24h",
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> int:
    """Print the log of a cell; -f goes on through restarts, outages and new attempts. Exit 0: printed, or sealed."""
    if follow and json:
        raise Unsure("--json prints one document, and -f never ends: use one of them")
    if setup and runner:
        raise Unsure("--setup and --runner are two logs: use one of them")
    if attempt and (setup or runner):
        raise Unsure("--attempt is for the log of a cell")
    until = parse_duration(timeout) if follow else None
    target, out = Target.find_to_read(stack, evidence), Out(as_json=json)
    if setup or runner:
        return (setup_log if setup else runner_log)(target, name, tail, until, out)
    if name is None:
        raise Unsure("whose log? Name a cell, or use --setup or --runner")
    return logs(target, name, attempt, tail, until, out)
