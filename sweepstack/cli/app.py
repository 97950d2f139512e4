"""The `sweepctl` application itself: options that several commands share, and how an answer becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.group import Commands

app = typer.Typer(
    name="sweepctl",
    cls=Commands,
    help="Runs beside `pulumi`: where a sweep is, what it left behind, and a person's approval before a box is ended.",
    epilog="What words such as sealed, receipt or gate mean: docs/glossary.md",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Stack = Annotated[
    str | None,
    typer.Option(
        "--stack",
        "-s",
        envvar="PULUMI_STACK",
        help="The stack, as in `pulumi --stack`.",
        autocompletion=completion.stacks,
        is_eager=True,  # what completes after it needs to know it
    ),
]
Evidence = Annotated[
    str | None,
    typer.Option(
        "--evidence",
        metavar="PATH|s3://…",
        help="Read this evidence alone: it needs neither the stack nor its file, and asks no platform.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for programs.")]
ErrorsAsJson = Annotated[bool, typer.Option("--json", help="Errors as one JSON document; the rest is the program's.")]


def _version(asked: bool) -> None:
    if asked:
        import importlib.metadata

        print(f"sweepctl {importlib.metadata.version('sweepstack')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the application itself."""


def answer(ask: Callable[[], int]) -> None:
    """Runs one command. Every error is one clear message, an unforeseen one too; with `--json` also one document on
    stdout, where the command had printed none. Exit codes: see `output`."""
    from sweepstack.cli.output import NO, UNSURE, No, Unsure, complain
    from sweepstack.onbox.common.errors import SweepstackError

    code = UNSURE

    try:
        code = ask()
    except No as error:
        complain(str(error), error.next)
        code = UNSURE if isinstance(error, Unsure) else NO
    except SweepstackError as error:
        complain(str(error))
    except KeyboardInterrupt:
        complain("interrupted; nothing is half done: run it again")
        code = 130
    except BrokenPipeError:
        _no_more_output()  # the reader has left: no second complaint
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
    """Why stdout takes nothing; empty where it does. What could not be written is still waiting to be."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _no_more_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
