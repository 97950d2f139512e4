"""The commands of `sweepctl`, by what they are for. Each imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import importlib

NAMES = {
    "boxes": ("ssh", "exec", "trust-host", "confirm-gone", "tend", "forward"),
    "evidence": ("adopt", "publish"),
    "money": ("ledger", "place", "audit", "smoke", "doctor"),
    "origins": ("provenance",),
    "queueing": ("retry", "drop"),
    "settling": ("pull", "verify", "approve", "finish"),
    "watching": ("new", "status", "patrol", "wait", "logs", "curves", "results"),
}
"""Module → its commands."""


def add(word: str = "") -> None:
    """Adds the commands of the module that has `word`; all, where none has it: help, a misspelt command, completion.

    Typer works out each parameter of each command that was added, before it looks which of them is asked for.
    """
    for module in [module for module, names in NAMES.items() if word in names] or NAMES:
        importlib.import_module(f"{__name__}.{module}")
