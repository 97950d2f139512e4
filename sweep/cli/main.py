"""`sweepctl` with all of its commands: what Pulumi has no verb for."""

from __future__ import annotations

from sweep.cli.app import app
from sweep.cli.commands import add

__all__ = ["app", "main"]

add()


def main() -> None:
    """Runs one command, and raises SystemExit with its exit code. The script begins in `sweep.cli.entry`, and adds the
    asked command alone."""
    app()
