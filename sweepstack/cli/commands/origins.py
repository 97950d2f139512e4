"""Where a result came from: provenance."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.app import AsJson, Evidence, Stack, answer, app


@app.command()
def provenance(
    cell: Annotated[str, typer.Argument(help="A cell's name.")],
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> None:
    """Show what produced a cell's copy: command, config, code, commit, set-up, libraries, hardware."""

    def ask() -> int:
        from sweepstack.cli.commands.provenance import provenance as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_to_read(stack, evidence), cell, Out(as_json=json))

    answer(ask)
