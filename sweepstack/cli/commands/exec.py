"""`sweepctl exec`: runs a command on a box."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sweepstack.cli.box_access import visit
from sweepstack.cli.options import Box, ErrorsAsJson, Stack
from sweepstack.cli.target import Target


def command(
    box: Box,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD", help="The command, and its arguments.")],
    stack: Stack = None,
    json: ErrorsAsJson = False,
) -> int:
    """Run a command on a box, in its folder. Exit code: the command's; 255: the box could not be reached."""
    return visit(Target.find_sweep(stack), box, command, terminal=sys.stdin.isatty() and sys.stdout.isatty())
