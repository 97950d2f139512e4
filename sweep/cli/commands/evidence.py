"""The evidence itself: where it lies."""

from __future__ import annotations

from typing import Annotated

import typer

from sweep.cli.app import AsJson, Stack, answer, app


@app.command()
def publish(
    to: Annotated[str | None, typer.Argument(metavar="s3://BUCKET/PREFIX", help="An empty place, one a sweep.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="BOX", help="Copy nothing: print the policy document for the credential of this box."),
    ] = None,
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Copy the evidence folder to object storage, whole and checked, and close the folder. Resumable."""

    def ask() -> int:
        from sweep.cli.output import Out
        from sweep.cli.publish import policy as show
        from sweep.cli.publish import publish as run
        from sweep.cli.target import Target

        target = Target.find(stack)
        return show(target, policy, to) if policy else run(target, to, Out(as_json=json))

    answer(ask)
