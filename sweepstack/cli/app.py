"""The `sweepctl` application: its help text and its own option, `--version`."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.group import Commands
from sweepstack.core.paths import docs_page

app = typer.Typer(
    name="sweepctl",
    cls=Commands,
    help="Runs beside `pulumi`: shows a sweep, copies and verifies its results, and asks before a box ends.",
    epilog=f"What words such as sealed, receipt or gate mean: {docs_page('glossary.md')}",
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
