"""Finds the commands of `sweepctl`, and imports each only when it runs.

Each is the file or package of its name in `commands/`. In it, `command` is the function with the options; a command
that needs its own Typer class has it as `Command`. A group of verbs (`sweepctl profile stale`) names them in `VERBS`,
each a file beside it; its `command` has the help of the group.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup

from sweepstack.cli import commands


def names() -> list[str]:
    """The names of all commands, from the files in `commands/`. Imports none."""
    return [module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__)]


@functools.cache
def load(name: str) -> TyperCommand | TyperGroup:
    """Imports one command, or a group with its verbs. Raises ImportError if there is none of that name."""
    module = importlib.import_module(_module(name))
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    below: tuple[str, ...] = getattr(module, "VERBS", ())
    if below:
        alone = typer.Typer(
            name=name,
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
        )
        alone.callback()(module.command)
        for verb in below:
            alone.command(verb)(importlib.import_module(f"{_module(name)}.{verb}").command)
    else:
        alone.command(name, cls=getattr(module, "Command", TyperCommand))(module.command)
    made = typer.main.get_command(alone)
    assert isinstance(made, TyperGroup if below else TyperCommand)
    return made


class Listed(TyperCommand):
    """A command in the list of all: its help is read from its source, because importing all takes a second."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of its help."""
        self.help = self.help or _docstring(str(self.name))
        return super().get_short_help_str(limit)


def _module(name: str) -> str:
    return f"{commands.__name__}.{name.replace('-', '_')}"


def _docstring(name: str) -> str:
    spec = importlib.util.find_spec(_module(name))
    assert spec is not None
    assert spec.origin is not None
    source = ast.parse(Path(spec.origin).read_bytes())
    command = next(node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == "command")
    return ast.get_docstring(command) or ""
