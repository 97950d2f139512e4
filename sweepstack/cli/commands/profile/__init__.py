"""`sweepctl profile`: what the profiles say of the platforms, and how old that is."""

from __future__ import annotations

VERBS = ("show", "check", "explain", "new")
"""Each is the file of its name here."""


def command() -> None:
    """Show what is known of each platform, and how old that is. And what leans on it."""
