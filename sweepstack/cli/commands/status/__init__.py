"""`sweepctl status`: where every cell is, what runs, what it costs, what to type next.

The engine's answer takes longest. So it is asked before the words are read, and all else is imported while it works.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from sweepstack.cli.options import AsJson, Stack


class Command(TyperCommand):
    """Its `context.obj` is the call that asks for the state (`sweepstack.status.engine.call.ExportCall`), or None."""

    def begin(self, above: Any, name: str, args: Sequence[str]) -> Any:
        """Begins the call for the stack that these words name. None where there is no stack or no project, or where the
        words are wrong, or ask for something else: the command itself then finds that out, and says it.

        The words are told apart, and no value is read: for that typer imports pydantic.
        """
        from sweepstack.onbox.common.errors import SweepstackError
        from sweepstack.status.engine.call import ExportCall, find_project_root

        try:
            context = self.context_class(self, info_name=name, parent=above)
            words, _, _ = self.make_parser(context).parse_args(args=list(args))
            stack = words.get("stack") or os.environ.get("PULUMI_STACK")
            if not stack or words.get("help") or words.get("watch"):
                return None
            return ExportCall(stack, find_project_root(Path.cwd().resolve()))
        except (TyperException, SweepstackError, OSError):
            return None


def command(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(metavar="5s", help="With --watch: how often.")] = "5s",
    timeout: Annotated[str, typer.Option(metavar="12h", help="With --watch: when to stop.")] = "24h",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show cells, boxes, gates and cost. Exit 1: something runs that the state doesn't know; 2: could not tell."""
    from sweepstack.cli.output import Out
    from sweepstack.cli.target import Target, parse_duration

    target, out = (Target.find_sweep if watch else Target.find)(stack), Out(as_json=json)
    if watch:
        from sweepstack.cli.commands.status.watch import watch as follow

        return follow(target, parse_duration(interval), parse_duration(timeout), out)
    from sweepstack.cli.commands.status.sweep import status
    from sweepstack.status.engine.state import Export

    return status(target, out, Export(target.stack, target.root, begun=context.obj))
