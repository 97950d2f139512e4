"""The `sweepctl` application itself: what it says of itself, and its one option of its own."""

from __future__ import annotations

from typing import Annotated

import typer

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
