"""Finds the commands of `sweepctl`, and imports each only when it runs.

Each is the file or package of its name in `commands/`. In it, `command` is the function with the options; a command
that needs its own Typer class has it as `Command`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import typer
from typer.core import TyperCommand

from sweepstack.cli import commands


def names() -> list[str]:
    """The names of all commands, from the files in `commands/`. Imports none."""
    return [module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__)]


@functools.cache
def load(name: str) -> TyperCommand:
    """Imports one command. Raises ImportError if there is none of that name."""
    module = importlib.import_module(_module(name))
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name, cls=getattr(module, "Command", TyperCommand))(module.command)
    made = typer.main.get_command(alone)
    assert isinstance(made, TyperCommand)
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
