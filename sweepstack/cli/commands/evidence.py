"""The evidence itself: where it lies."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.app import AsJson, Stack, answer, app


@app.command()
def adopt(
    box: Annotated[
        str | None,
        typer.Argument(metavar="BOX", help="Its machine was renamed: it answers for the box under its new name."),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept on record.")] = "",
    renamed_from: Annotated[
        str, typer.Option("--renamed-from", metavar="HOST", help="This computer was HOST before. Needs no stack.")
    ] = "",
    held_by: Annotated[
        str,
        typer.Option(
            "--from", metavar="BACKEND", help="The lost backend that a box of this sweep names, as `up` says it."
        ),
    ] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Take a sweep over from a backend that is lost, or go on with a machine that was renamed."""

    def ask() -> int:
        from sweepstack.cli.commands import adopt as run
        from sweepstack.cli.output import Out, Unsure
        from sweepstack.cli.target import Target

        out = Out(as_json=json)
        if renamed_from:
            return run.renamed_from(renamed_from, out)
        if not reason.strip():
            raise Unsure('why? It is kept on record: --reason "…"')
        target = Target.find_sweep(stack)
        return run.adopt_box(target, box, reason, out) if box else run.adopt(target, reason, out, held_by)

    answer(ask)


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
        from sweepstack.cli.commands.publish import policy as show
        from sweepstack.cli.commands.publish import publish as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        target = Target.find(stack)
        return show(target, policy, to) if policy else run(target, to, Out(as_json=json))

    answer(ask)
