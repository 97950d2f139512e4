"""`sweepctl`: what Pulumi has no verb for. Importing a module of commands is what adds them."""

from __future__ import annotations

import gc

from sweep.cli.app import app
from sweep.cli.commands import boxes, evidence, money, origins, queueing, settling, watching

__all__ = ["app", "boxes", "evidence", "main", "money", "origins", "queueing", "settling", "watching"]


def main() -> None:
    """Runs one command, and raises SystemExit with its exit code. The script begins in `sweep.cli.entry`."""
    gc.set_threshold(1_000_000, 50, 50)  # a command lives for seconds; of ten thousand cells it makes a million objects
    app()
