"""`sweepctl ssh`: a shell on a box, a command there, a port of it here, or Jupyter."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sweepstack.cli.box_access import find_box, way_to
from sweepstack.cli.extension import of_extension
from sweepstack.cli.options import Box, ErrorsAsJson, Stack
from sweepstack.cli.output import YES, Out, aside, complain
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import No, SweepstackError, Unsure
from sweepstack.operations.sweep.target import Target

NO_WAY = 255
"""As with `ssh`: the box could not be reached, or nothing may run there. Other exit codes are the command's own."""


def command(
    box: Box,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- CMD", help="Run this in the box's folder, with its arguments, and no shell."),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            "--forward",
            metavar="PORT[:PORT]",
            help="Reach this port here, instead; the second: on the box, if it differs.",
        ),
    ] = None,
    jupyter: Annotated[
        bool, typer.Option("--jupyter", help="Jupyter of the job's environment, for you alone, until Ctrl-C.")
    ] = False,
    stack: Stack = None,
    json: ErrorsAsJson = False,
) -> int:
    """Open a shell on a box, or run a command there. Exit code: its own; 255: the box could not be reached."""
    target = Target.find_sweep(stack)
    if port is None and not jupyter:
        return visit(target, box, command or ())
    if command:
        raise Unsure("--forward and --jupyter take no command: leave it out")
    if jupyter:
        return of_extension("notebooks", "jupyter", "ssh --jupyter")(target, box, port, Out(as_json=json))
    assert port is not None
    return forward(target, box, port, Out(as_json=json))


def visit(target: Target, name: str, command: Sequence[str]) -> int:
    """Runs `command` (a shell if it is empty) on the box. Returns its exit code, or 255 if it could not be run."""
    try:
        box = find_box(target, name)
        channel = way_to(target, box)
        if not command:
            aside(
                f"{box.name} ({box.native_id}): your own shell; the queue is in {box_layout.HOME}, and a stop or a "
                "delete of the box does not wait for you"
            )
        terminal = not command or (sys.stdin.isatty() and sys.stdout.isatty())
        return channel.attach(list(command), terminal=terminal)
    except No as error:
        complain(str(error), error.next)
    except SweepstackError as error:
        complain(str(error), [f"sweepctl status --stack {target.stack}"])
    return NO_WAY


def forward(target: Target, box: str, port: str, out: Out) -> int:
    """Makes a port of the box reachable on this machine, until Ctrl-C."""
    here, there = parse_ports(port)
    channel = way_to(target, find_box(target, box))
    text = channel.reach(there, here, aside)
    following = [f"sweepctl ssh --stack {target.stack} {box} -- CMD    (starts the server on the box)"]
    out.document({"stack": target.stack, "box": box, "port": there, "local": here, "message": text})
    out.line(text)
    out.next(following)
    return YES


def parse_ports(text: str) -> tuple[int, int]:
    """(here, on the box). Raises Unsure for anything but one or two ports."""
    parts = text.split(":")
    if len(parts) in (1, 2) and all(map(is_port, parts)):
        return int(parts[0]), int(parts[-1])
    raise Unsure(f'"{text}" is no port; write 6006, or 8080:6006 for 8080 here and 6006 on the box')


def is_port(text: str) -> bool:
    """Whether it is the number of one port."""
    return text.isascii() and text.isdigit() and 0 < int(text) < 65536
