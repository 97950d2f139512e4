"""`sweepctl`: what Pulumi has no verb for. Importing a module of commands is what adds them."""

from __future__ import annotations

from sweep.cli.app import app
from sweep.cli.commands import boxes, evidence, money, origins, queueing, settling, watching

__all__ = ["app", "boxes", "evidence", "main", "money", "origins", "queueing", "settling", "watching"]


def main() -> None:
    """Runs one command, and raises SystemExit with its exit code. The script begins in `sweep.cli.entry`."""
    app()
