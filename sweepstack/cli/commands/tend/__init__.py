"""`sweepctl tend`: runs unattended: pulls, verifies and stops finished boxes. Never deletes."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.commands.tend.loop import tend
from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import Out
from sweepstack.cli.target import Target, parse_duration


def command(
    interval: Annotated[str, typer.Option(metavar="60s", help="Time from the start of one round to the next.")] = "60s",
    once: Annotated[bool, typer.Option("--once", help="One round: for cron and CI.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Let `pulumi up` rent again the boxes that are proved gone. Costs money.")
    ] = False,
    timeout: Annotated[str, typer.Option(metavar="72h", help="When to end.")] = "72h",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Pull, verify and stop finished boxes, round after round. Never deletes. Exit 0: nothing is left to do."""
    target, out = Target.find_sweep(stack), Out(as_json=json)
    return tend(target, parse_duration(interval), once, replace, parse_duration(timeout), out)
