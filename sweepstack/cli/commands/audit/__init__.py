"""`sweepctl audit`: what the accounts hold against what any state knows; and the end of one thing that no state has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweepstack.cli.commands.audit.accounts import audit
from sweepstack.cli.commands.audit.end import end as end_one
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import Out
from sweepstack.status.engine.call import find_project_root


def command(
    end: Annotated[
        str | None,
        typer.Option("--end", metavar="PLATFORM:ID", help="End one thing that no state has, after the check. Asks."),
    ] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="With --end and --reason: what is on it may be lost. Kept on record.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="WHY", help="With --abandon: why.")] = "",
    owner_agreed: Annotated[
        str,
        typer.Option("--owner-agreed", metavar="USER@HOST", help="With --end: the owner who holds it, and has agreed."),
    ] = "",
    yes: Annotated[str | None, typer.Option("--yes", metavar="ID", help="With --end: the id once more.")] = None,
    json: AsJson = False,
) -> int:
    """Compare what your accounts hold with what any state knows. Deletes nothing. Exit 1: something bills unknown."""
    root, out = find_project_root(Path.cwd().resolve()), Out(as_json=json)
    if end is None:
        return audit(root, out)
    return end_one(root, end, out, typed=yes, abandon=abandon, reason=reason, agreed=owner_agreed)
