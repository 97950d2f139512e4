"""What is to run again, and what no more: retry, drop."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.app import AsJson, Stack, answer, app


@app.command()
def retry(
    cells: Annotated[list[str] | None, typer.Argument(metavar="[CELL]…", help="Cells by name.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All that failed for good, or left no good copy.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="All that ran.")] = False,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; kept on record. Without a terminal it stands for your yes.")
    ] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Run cells again, with what the next `pulumi up` brings. A sealed one starts from nothing."""

    def ask() -> int:
        from sweepstack.cli.commands.retry import Choice
        from sweepstack.cli.commands.retry import retry as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        choice = Choice(tuple(cells or ()), failed, all_, " ".join(reason.split()))
        return run(Target.find_sweep(stack), choice, Out(as_json=json))

    answer(ask)


@app.command()
def drop(
    cell: Annotated[str, typer.Argument(help="A cell's name.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the stack file.")] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Take a cell out: writes it into `cells.drop` of the stack file; the next `pulumi up` stops it."""

    def ask() -> int:
        from sweepstack.cli.commands.drop import drop as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_sweep(stack), cell, reason, Out(as_json=json))

    answer(ask)
