"""`sweepctl give-up`: an approval that loses something, each by name and with a reason that is kept."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.commands.approve import approve, chosen
from sweepstack.cli.commands.approve.options import InOrder, facts_and_receipt
from sweepstack.cli.options import AsJson, Boxes, Expires, Sign, Stack, Verb
from sweepstack.cli.output import Out
from sweepstack.operations.sweep.target import Target

Command = InOrder


def command(
    ctx: typer.Context,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT…",
            help="cell/CELL: its copy. data/BOX: all that is on the box, or the volume. unclaimed/BOX: its files of no "
            "cell. fact/NAME: the caution about an old fact that `profile check --old` shows. sha256:…: the receipt's "
            "whole digest, which is your approval.",
            autocompletion=completion.given_up,
        ),
    ],
    reason: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Why; belongs to all before it, back to the last one.")
    ] = None,
    box: Boxes = None,
    verb: Verb = "destroy",
    expires: Expires = "72h",
    sign: Sign = False,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Approve ending boxes or volumes although something is lost. Cells, files, or all that is on them."""
    facts, receipt = facts_and_receipt(what)
    target = Target.find(stack)
    return approve(target, chosen(ctx, target, receipt, box, verb, expires, sign, facts), Out(as_json=json))
