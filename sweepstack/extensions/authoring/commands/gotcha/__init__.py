"""`sweepctl gotcha`: the traps that are known, and how a new one is proposed."""

from __future__ import annotations

VERBS = ("list", "propose")
"""Each is the file of its name here."""


def command() -> None:
    """The traps of platforms and of training that are known, and a patch for a new one."""
