"""`sweepctl` with all of its commands: what Pulumi has no verb for."""

from __future__ import annotations

from sweepstack.cli.app import app
from sweepstack.cli.commands import add

__all__ = ["app", "main"]

add()


def main() -> None:
    """Runs one command, and raises SystemExit with its exit code. The script begins in `cli.entry`, and adds the
    asked command alone."""
    app()
