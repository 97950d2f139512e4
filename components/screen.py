"""What the program says through the engine, in lines that fit below its "Diagnostics:"."""

from __future__ import annotations

import pulumi

from sweepstack.core.columns import IN_ENGINE, fitted


def say(text: str) -> None:
    """A line for people. Begins with an empty one: without a terminal the engine repeats a message's first line on the
    stack's rows, and lists the message below them."""
    pulumi.log.info("\n" + fitted(text, IN_ENGINE))


def warn(text: str) -> None:
    """A warning."""
    pulumi.log.warn(fitted(text, IN_ENGINE, taken=len("warning: ")))


def fail(text: str) -> None:
    """An error. Ends nothing."""
    pulumi.log.error(fitted(text, IN_ENGINE, taken=len("error: ")))
