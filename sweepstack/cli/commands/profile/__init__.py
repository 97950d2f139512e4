"""`sweepctl profile`: what the profiles say of the platforms, and how old that is."""

from __future__ import annotations

VERBS = ("show", "check", "explain", "new")
"""Each is the file of its name here."""


def command() -> None:
    """The platforms: what is known of each, how old that is, and what leans on it."""
