"""The group of all commands: lists them by sections, and reports errors as JSON if `--json` is given."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup
from typer.exceptions import TyperException

from sweepstack.cli import verbs
from sweepstack.cli.exit_code import answer

SECTIONS = (
    ("Begin", ("init", "new", "doctor", "smoke", "place", "profile", "gotcha", "policy")),
    ("Watch", ("status", "next", "wait", "logs", "curves", "patrol", "tend")),
    ("Change what runs", ("review", "retry", "drop")),
    ("Results", ("pull", "verify", "results", "report", "provenance", "receipt", "publish")),
    ("End", ("approve", "finish", "confirm-gone", "adopt")),
    ("Money", ("ledger", "audit")),
    ("In a pipeline", ("ci",)),
    ("On a box", ("ssh", "exec", "forward", "holders", "worker-ended", "trust-host")),
)
"""A command in none of these sections is shown last, under "More"."""
EARLY = ("status", "next", "pull", "verify")
"""These commands ask the engine before anything else, because that takes longest: see `sweepstack.cli.early`."""


class Commands(TyperGroup):
    """Lists the commands by sections. With `--json`, its `main` reports a usage error as a document too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: verbs.Listed(name) for name in verbs.names()}

    def list_commands(self, ctx: Any) -> list[str]:
        """All command names, in the order of `SECTIONS`."""
        order = [name for _, names in SECTIONS for name in names]
        known = set(self.commands)
        return [name for name in order if name in known] + sorted(known - set(order))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes one block for each section."""
        listed = {name for _, names in SECTIONS for name in names}
        more = tuple(name for name in self.list_commands(ctx) if name not in listed)
        width = max(len(name) for name in self.commands)
        for title, names in (*SECTIONS, ("More", more)):
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(formatter.width - width - 6))
                for name in names
                if name in self.commands and not self.commands[name].hidden
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments before the command. Commands in `EARLY` start their call of the engine here."""
        if args and args[0] in EARLY and not ctx.resilient_parsing:  # resilient parsing: the shell completes a line
            verb: Any = verbs.load(args[0])
            ctx.obj = verb.begin(ctx, args[0], args[1:])
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Imports the command that was typed."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, verbs.load(name) if name is not None and found is not None else None, rest

    def invoke(self, ctx: Any) -> Any:
        """Runs the command, and raises typer.Exit with its exit code."""
        answer(functools.partial(super().invoke, ctx))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **settings: Any) -> Any:
        """Runs one command and raises SystemExit with its exit code."""
        words = list(sys.argv[1:] if args is None else args)
        ours = words[: words.index("--")] if "--" in words else words
        if "--json" not in ours:
            return super().main(words, *rest, **settings)
        from sweepstack.cli import output

        output.asked_for_json = True
        try:
            code = super().main(words, *rest, **{**settings, "standalone_mode": False})
        except TyperException as error:
            output.complain(error.format_message())
            code = error.exit_code
        finally:
            output.asked_for_json = False
        sys.exit(code or 0)
