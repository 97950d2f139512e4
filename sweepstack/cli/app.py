"""Finds the commands of `sweepctl`, imports each only when it runs, and gives its exit code.

A command is the file or package of its name in `commands/`, here or in an extension. In it, `command` is the function
with the options; a command that needs its own Typer class has it as `Command`. A group of verbs (`sweepctl profile
show`) is a package: its `command` has the help of the group, `VERBS` the order of the verbs, and each other file in it
is one, as in the package of that name in an extension. The group of all commands lists them by sections, and reports
errors as JSON if `--json` is given.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import pkgutil
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from sweepstack.cli import old_spellings
from sweepstack.core import extensions
from sweepstack.core.paths import PACKAGE, docs_page
from sweepstack.core.version import VERSION

SECTIONS = (
    ("Begin", ("init", "doctor", "place", "profile", "policy", "ci")),
    ("Run", ("status", "wait", "logs", "ssh", "tend", "review", "retry", "drop")),
    ("Results", ("pull", "verify", "results", "show", "ledger")),
    ("End", ("finish", "approve", "give-up", "cosign", "revoke", "confirm", "adopt", "audit")),
)
"""A command in none of these sections is shown last, under "More"."""
EARLY = ("status", "pull", "verify")
"""These commands ask the engine before anything else, because that takes longest: see `sweepstack.cli.early_state`."""


class Verbs(TyperGroup):
    """A group whose commands are found by their files. It imports the one that was typed alone."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names = command_names(self.group)
        self.commands = {name.rpartition(" ")[2]: Listed(name) for name in names}

    @property
    def group(self) -> str:
        """The group's name, which stands before those of its verbs."""
        return str(self.name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Imports the command that was typed. Raises a usage error that names the extension which it belongs to, where
        that is not installed."""
        typed = f"{self.group} {args[0]}".strip()
        if args[0] not in self.commands and typed in extensions.COMMANDS and not ctx.resilient_parsing:
            ctx.fail(f"`sweepctl {typed}` belongs to {extensions.not_here(extensions.COMMANDS[typed])}")
        name, found, rest = super().resolve_command(ctx, args)
        return name, load_command(typed) if found is not None else None, rest


class Commands(Verbs):
    """Lists the commands by sections. Its `main` takes old spellings, and reports a usage error with `--json` as a
    document, too."""

    @property
    def group(self) -> str:
        """They stand in none."""
        return ""

    def list_commands(self, ctx: Any) -> list[str]:
        """All command names, in the order of `SECTIONS`."""
        order = [name for _, names in SECTIONS for name in names]
        known = set(self.commands)
        return [name for name in order if name in known] + sorted(known - set(order))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes one block for each section, without a blank line between them: all of it fits on a screen."""
        formatter.write_paragraph()
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
                formatter.write_heading(title)
                with formatter.indentation():
                    formatter.write_dl(rows)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands alone: the epilog names the few options."""
        self.format_commands(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments before the command. Commands in `EARLY` start their call of the engine here."""
        if args and args[0] in EARLY and not ctx.resilient_parsing:  # resilient parsing: the shell completes a line
            verb: Any = load_command(args[0])
            ctx.obj = verb.begin(ctx, args[0], args[1:])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command, and raises typer.Exit with its exit code."""
        answer_with_exit_code(functools.partial(super().invoke, ctx))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **settings: Any) -> Any:
        """Runs one command and raises SystemExit with its exit code."""
        typed = list(sys.argv[1:] if args is None else args)
        words = old_spellings.rewritten(typed)
        if words != typed:
            print(old_spellings.told(words), file=sys.stderr)
            sets = old_spellings.variables(words)
            os.environ.update({name: value for name, _, value in (word.partition("=") for word in words[:sets])})
            words = words[sets:]
        from sweepstack.cli import output

        output.typed = shlex.join(["sweepctl", *words])
        ours = words[: words.index("--")] if "--" in words else words
        if "--json" not in ours:
            return super().main(words, *rest, **settings)
        output.asked_for_json = True
        try:
            code = super().main(words, *rest, **{**settings, "standalone_mode": False})
        except TyperException as error:
            output.complain(error.format_message())
            code = error.exit_code
        finally:
            output.asked_for_json = False
        sys.exit(code or 0)


def command_names(group: str = "") -> list[str]:
    """The names of all commands, or of a group's verbs (`profile show`), in the order of its `VERBS`."""
    found = list(_files(group))
    order = [f"{group} {verb}" for verb in importlib.import_module(_files()[group].name).VERBS] if group else []
    return [name for name in order if name in found] + [name for name in found if name not in order]


@functools.cache
def load_command(name: str) -> TyperCommand | TyperGroup:
    """Imports one command (`status`, `profile show`), or a group. Raises KeyError if there is none of that name."""
    module = importlib.import_module(_files(name.rpartition(" ")[0])[name].name)
    plain: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
    if " " not in name and hasattr(module, "VERBS"):
        alone = typer.Typer(name=name, cls=Verbs, no_args_is_help=True, **plain)
        alone.callback()(module.command)
    else:
        alone = typer.Typer(**plain)
        alone.command(name.rpartition(" ")[2], cls=getattr(module, "Command", TyperCommand))(module.command)
    made = typer.main.get_command(alone)
    assert isinstance(made, TyperCommand | TyperGroup)
    return made


def all_commands() -> dict[str, Any]:
    """Every command by its name, of a group its verbs (`profile show`). Imports all."""
    found = {name: load_command(name) for name in command_names()}
    groups = [name for name, command in found.items() if isinstance(command, TyperGroup)]
    below = {verb: load_command(verb) for group in groups for verb in command_names(group)}
    return {name: command for name, command in found.items() if name not in groups} | below


class Listed(TyperCommand):
    """A command in the list of all: its help is read from its source, because importing all takes a second."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of its help."""
        self.help = self.help or _docstring(str(self.name))
        return super().get_short_help_str(limit)


@functools.cache
def _files(group: str = "") -> dict[str, pkgutil.ModuleInfo]:
    """The files of all commands, or of a group's verbs, by name. Those of the core come before those of extensions."""
    found: dict[str, pkgutil.ModuleInfo] = {}
    for package in ("sweepstack.cli.commands", *extensions.command_packages()):
        place = f"{package}.{group}" if group else package
        for one in pkgutil.iter_modules([str(PACKAGE.parent.joinpath(*place.split(".")))], f"{place}."):
            found.setdefault(one.name.removeprefix(f"{package}.").replace(".", " ").replace("_", "-"), one)
    return found


def _docstring(name: str) -> str:
    found = _files(name.rpartition(" ")[0])[name]
    path = PACKAGE.parent.joinpath(*found.name.split("."))
    source = ast.parse((path / "__init__.py" if found.ispkg else path.with_suffix(".py")).read_bytes())
    command = next(node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == "command")
    return ast.get_docstring(command) or ""


def answer_with_exit_code(ask: Callable[[], int]) -> None:
    """Runs one command. Each error, also an unexpected one, becomes one message.

    With `--json` it is also one document on stdout, unless the command has printed one. Exit codes: see `output`. Typer
    itself reports wrong arguments.
    """
    from sweepstack.cli import output
    from sweepstack.cli.output import NO, UNSURE, complain
    from sweepstack.onbox.common.errors import No, SweepstackError, Unreachable, Unsure

    code = UNSURE

    try:
        code = ask()
    except (TyperException, typer.Exit, typer.Abort):
        raise
    except No as error:
        complain(str(error), error.next)
        code = UNSURE if isinstance(error, Unsure) else NO
    except SweepstackError as error:
        complain(str(error), [output.typed] if isinstance(error, Unreachable) and output.typed else [])
    except KeyboardInterrupt:
        complain("interrupted; nothing is half done: run it again")
        code = 130
    except BrokenPipeError:
        _no_more_output()  # the reader has closed the pipe, so no message can reach it
        code = UNSURE
    except Exception as error:
        if isinstance(error, OSError) and (why := _unwritable()):
            _no_more_output()
            complain(f"the output can't be written: {why}. What the command did before is done", ["run it again"])
            raise typer.Exit(UNSURE) from error
        if os.environ.get("SWEEPCTL_DEBUG"):
            raise
        complain(
            f"{type(error).__name__}: {error}\nthis is a mistake in sweepctl, and the answer is not known; "
            "SWEEPCTL_DEBUG=1 shows where it happened"
        )
    raise typer.Exit(code)


def _unwritable() -> str:
    """Why stdout can't be written to; "" if it can. The unwritten output is still in the buffer."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _no_more_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    name="sweepctl",
    cls=Commands,
    help="Runs beside `pulumi`: shows a sweep, proves results, asks before a box ends.",
    epilog="\b\n`sweepctl COMMAND -h`: its options. Also: --version, --install-completion.\n"
    f"Words such as sealed, receipt or gate: {docs_page('glossary.md')}",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"sweepctl {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the application itself."""
