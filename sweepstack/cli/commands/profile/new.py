"""`sweepctl profile new`: begins a platform, in a checkout of sweepstack."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.commands.profile.scaffold import PAGE, next_commands, write_new
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, Out
from sweepstack.cli.target import project_root
from sweepstack.profiles import dates


def command(
    name: Annotated[str, typer.Argument(help="As a stack config names it: lower case, digits and dashes.")],
    api: Annotated[
        bool, typer.Option("--api", help="It has an API that rents: also an adapter (default: entered by SSH).")
    ] = False,
    json: AsJson = False,
) -> int:
    """Begin a platform in this checkout: its profile, with --api its adapter and tests. Overwrites nothing."""
    out, root = Out(as_json=json), project_root()
    files = write_new(root, name, api=api, day=dates.today())
    following = next_commands(name, api=api)
    out.document({"platform": name, "files": files, "page": PAGE, "next": following})
    for path in files:
        out.line(f"wrote {path}")
    out.line(f"write what each `TODO of` in them asks for, as {PAGE} says, then:")
    for line in following:
        out.line(f"  {line}", wrap=False)
    return YES
