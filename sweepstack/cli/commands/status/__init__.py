"""`sweepctl status`: where every cell is, what runs, what it costs, what to type next."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.early_state import AsksState
from sweepstack.cli.options import AsJson, Stack

Command = AsksState


def command(
    context: typer.Context,
    following: Annotated[
        bool, typer.Option("--next", help="The phase, what is proved and what is not, and the one next command.")
    ] = False,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="A line a box, for cron. Exit 0: healthy or done; 1: needs a person; 2: unreachable."
        ),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(metavar="5s", help="With --watch: how often.")] = "5s",
    timeout: Annotated[str, typer.Option(metavar="12h", help="With --watch: when to stop.")] = "24h",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show cells, boxes, gates and cost. Exit 1: something runs that the state doesn't know; 2: could not tell."""
    from sweepstack.cli.options import parse_duration
    from sweepstack.cli.output import Out
    from sweepstack.onbox.common.errors import Unsure
    from sweepstack.operations.sweep.target import Target

    if sum((following, probe, watch)) > 1:
        raise Unsure("--next, --probe and --watch are three ways to look: use one of them")
    target, out = (Target.find_sweep if watch or probe else Target.find)(stack), Out(as_json=json)
    if following:
        from sweepstack.cli.commands.status.phase import show_phase

        return show_phase(target, out, context.obj)
    if probe:
        from sweepstack.cli.commands.status.probe import probe as look_once

        return look_once(target, out, context.obj)
    if watch:
        from sweepstack.cli.commands.status.watch import watch as follow

        return follow(target, parse_duration(interval), parse_duration(timeout), out)
    from sweepstack.cli.commands.status.sweep import status

    return status(target, out, context.obj)
