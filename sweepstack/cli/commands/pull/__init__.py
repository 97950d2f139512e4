"""`sweepctl pull`: every sealed cell of every box, the journals, and what unsealed attempts left, into the evidence."""

from __future__ import annotations

import typer

from sweepstack.cli.early import AsksState
from sweepstack.cli.options import AsJson, Stack

Command = AsksState


def command(context: typer.Context, stack: Stack = None, json: AsJson = False) -> int:
    """Copy sealed cells, journals, and the logs of attempts that failed into the evidence. Resumable."""
    from sweepstack.cli.commands.pull.haul import pull
    from sweepstack.cli.output import Out
    from sweepstack.cli.target import Target

    return pull(Target.find_sweep(stack), Out(as_json=json), context.obj)
