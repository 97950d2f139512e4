"""`sweepctl profile`: what the profiles say of the platforms, and how old that is."""

from __future__ import annotations

VERBS = ("stale",)
"""Each is the file of its name here."""


def command() -> None:
    """The facts of the platforms: where they come from, how old they are, and what leans on them."""
