"""Finds the extensions, folders of `sweepstack/extensions/` that can be taken out. Imports none."""

from __future__ import annotations

from sweepstack.core.paths import PACKAGE

FOLDER = PACKAGE / "extensions"
COMMANDS = {
    "ci": "pipelines",
    "profile explain": "authoring",
    "profile new": "authoring",
    "confirm worker": "slurm",
}
"""Command, or verb of a group → the extension that brings it. Read only where that is not installed, to say so."""


def command_packages() -> list[str]:
    """The packages of the commands that extensions bring; an extension without commands has none."""
    return [f"sweepstack.extensions.{found.parent.name}.commands" for found in sorted(FOLDER.glob("*/commands"))]


def not_here(extension: str) -> str:
    """An extension that is not installed, as the end of a sentence about what needs it."""
    return f"the extension `{extension}`, which is not installed here (sweepstack/extensions/{extension})"
