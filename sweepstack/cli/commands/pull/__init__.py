"""`sweepctl pull`: copies sealed cells, journals and logs of unsealed attempts into the evidence."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.early import AsksState
from sweepstack.cli.options import AsJson, Stack

Command = AsksState


def command(
    context: typer.Context,
    stack: Stack = None,
    verify: Annotated[bool, typer.Option("--verify", help="Then verify, as `sweepctl verify` does.")] = False,
    json: AsJson = False,
) -> int:
    """Copy sealed cells, journals, and the logs of failed attempts into the evidence. Resumable."""
    from sweepstack.cli.commands.pull.fetch import pull, pull_and_verify
    from sweepstack.cli.output import Out
    from sweepstack.cli.sources import open_sources
    from sweepstack.cli.target import Target

    sources = open_sources(Target.find_sweep(stack), context.obj)
    return (pull_and_verify if verify else pull)(sources, Out(as_json=json))
