"""`sweepctl verify`: loads every artifact of every cell, and writes the receipt."""

from __future__ import annotations

import typer

from sweepstack.cli.early_state import AsksState
from sweepstack.cli.options import AsJson, Evidence, Stack

Command = AsksState


def command(context: typer.Context, stack: Stack = None, evidence: Evidence = None, json: AsJson = False) -> int:
    """Load every artifact and write the receipt. Exit 0: all verified or waived; 1: not all; 2: not known."""
    from sweepstack.cli.commands.verify.receipt import verify
    from sweepstack.cli.output import Out
    from sweepstack.operations.sweep.sources import open_sources
    from sweepstack.operations.sweep.target import Target

    return verify(open_sources(Target.find_to_read(stack, evidence), context.obj), Out(as_json=json))
