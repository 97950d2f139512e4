"""`sweepctl audit`: compares the accounts with the states; ends a box or volume that no state has."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.commands.audit.accounts import audit
from sweepstack.cli.commands.audit.end import end as end_one
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import Out
from sweepstack.cli.target import project_root


def command(
    end: Annotated[
        str | None,
        typer.Option(
            "--end", metavar="PLATFORM:ID", help="End one box or volume that no state has, after a check. Asks first."
        ),
    ] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="With --end and --reason: give up the data on it. Recorded.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="WHY", help="With --abandon: why.")] = "",
    owner_agreed: Annotated[
        str,
        typer.Option("--owner-agreed", metavar="USER@HOST", help="With --end: its owner, who holds it and has agreed."),
    ] = "",
    yes: Annotated[str | None, typer.Option("--yes", metavar="ID", help="With --end: the id again.")] = None,
    json: AsJson = False,
) -> int:
    """Compare your accounts with all states. Deletes nothing. Exit 1: something bills that no state knows of."""
    root, out = project_root(), Out(as_json=json)
    if end is None:
        return audit(root, out)
    return end_one(root, end, out, typed=yes, abandon=abandon, reason=reason, agreed=owner_agreed)
