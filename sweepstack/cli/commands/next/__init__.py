"""`sweepctl next`: the phase of a stack, what is proved and what is not, the one next command."""

from __future__ import annotations

import typer

from sweepstack.cli.early import AsksState
from sweepstack.cli.options import AsJson, Stack

Command = AsksState


def command(context: typer.Context, stack: Stack = None, json: AsJson = False) -> int:
    """Show the phase of a stack, what is proved and what is not, and the one next command. Exit codes as `status`."""
    from sweepstack.cli.commands.next.show import show
    from sweepstack.cli.output import Out
    from sweepstack.cli.target import Target

    return show(Target.find(stack), Out(as_json=json), context.obj)
