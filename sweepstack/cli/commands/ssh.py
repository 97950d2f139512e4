"""`sweepctl ssh`: opens a shell on a box."""

from __future__ import annotations

from sweepstack.cli.box_access import visit
from sweepstack.cli.options import Box, ErrorsAsJson, Stack
from sweepstack.cli.target import Target


def command(box: Box, stack: Stack = None, json: ErrorsAsJson = False) -> int:
    """Open a shell on a box. Its exit code is the shell's; 255: the box could not be reached."""
    return visit(Target.find_sweep(stack), box, (), terminal=True)
