"""The one error of set-up: a person can act on its message."""

from __future__ import annotations


class SetupError(Exception):
    """Set-up cannot go on. The message says what is missing and how to get it."""


class Cancelled(SetupError):
    """Another step failed, or the person pressed Ctrl-C, so this one was ended. Never the first cause."""
