"""`sweepctl pull`: copies sealed cells, journals and logs of unsealed attempts into the evidence."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.early_state import AsksState
from sweepstack.cli.options import AsJson, Stack

Command = AsksState


def command(
    context: typer.Context,
    stack: Stack = None,
    verify: Annotated[bool, typer.Option("--verify", help="Then verify, as `sweepctl verify` does.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="s3://BUCKET/PREFIX",
            help="Move the evidence instead: copy its folder there, whole and checked, and close it. An empty place.",
        ),
    ] = None,
    access: Annotated[
        str | None,
        typer.Option(
            metavar="BOX",
            help="Copy nothing: print the access policy for the credentials of this box.",
            autocompletion=completion.boxes,
        ),
    ] = None,
    json: AsJson = False,
) -> int:
    """Copy sealed cells, journals and logs into the evidence. Resumable."""
    from sweepstack.cli.output import Out
    from sweepstack.onbox.common.errors import Unsure
    from sweepstack.operations.sweep.target import Target

    if verify and (to is not None or access):
        raise Unsure("--verify is for what comes from boxes: leave it out, or --to and --access")
    if to is not None or access:
        from sweepstack.cli.commands.pull.publish import publish, show_policy

        target, out = Target.find(stack), Out(as_json=json)
        return show_policy(target, access, to, context.obj) if access else publish(target, to or "", out, context.obj)
    from sweepstack.cli.commands.pull.fetch import pull, pull_and_verify
    from sweepstack.operations.sweep.sources import open_sources

    sources = open_sources(Target.find_sweep(stack), context.obj)
    return (pull_and_verify if verify else pull)(sources, Out(as_json=json))
