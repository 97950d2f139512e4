"""`sweepctl review`: what a change would do, and whether it may go on, before it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweepstack.cli.options import AsJson, Stack


def command(
    destroy: Annotated[bool, typer.Option("--destroy", help="Review `pulumi destroy`, not `pulumi up`.")] = False,
    base: Annotated[
        str, typer.Option(metavar="REV", help="Also compare the cells with the stack file of this git revision.")
    ] = "",
    expect: Annotated[
        str, typer.Option(metavar="sha256:…", help="Say no if the change is another than the one with this digest.")
    ] = "",
    request: Annotated[
        bool, typer.Option("--request", help="The change is a pull or merge request: what follows is its merge.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--md", help="Print Markdown, for a comment on a pull request.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Print one self-contained HTML page.")] = False,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Also write it here, as .md, .html or .json. May be given repeatedly.",
        ),
    ] = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show what a change ends, keeps and costs, before it is made. Exit 0: it may go on; 1: no; 2: could not tell."""
    from sweepstack.cli.commands.review.show import Wanted, review
    from sweepstack.cli.output import Out
    from sweepstack.cli.target import Target

    wanted = Wanted(destroy, base, expect, request, markdown, html, tuple(output or ()))
    return review(Target.find(stack), wanted, Out(as_json=json))
