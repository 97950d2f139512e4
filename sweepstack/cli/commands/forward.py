"""`sweepctl forward`: makes a port of a box reachable on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.box_access import find_box, way_to
from sweepstack.cli.options import AsJson, Box, Stack
from sweepstack.cli.output import YES, Out, Unsure, aside
from sweepstack.cli.target import Target


def command(
    box: Box,
    port: Annotated[str, typer.Argument(metavar="PORT[:PORT]", help="The port here, and on the box if that differs.")],
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Reach a port of a box from this machine."""
    target, out = Target.find_sweep(stack), Out(as_json=json)
    here, there = parse_ports(port)
    channel = way_to(target, find_box(target, box))
    text = channel.reach(there, here, aside)
    following = [f"sweepctl exec --stack {target.stack} {box} -- CMD    (starts the server on the box)"]
    out.document({"stack": target.stack, "box": box, "port": there, "local": here, "message": text})
    out.line(text)
    out.next(following)
    return YES


def parse_ports(text: str) -> tuple[int, int]:
    """(here, on the box). Raises Unsure for anything but one or two ports."""
    parts = text.split(":")
    if len(parts) in (1, 2) and all(part.isascii() and part.isdigit() and 0 < int(part) < 65536 for part in parts):
        return int(parts[0]), int(parts[-1])
    raise Unsure(f'"{text}" is no port; write 6006, or 8080:6006 for 8080 here and 6006 on the box')
