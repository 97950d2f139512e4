"""Finds the folders of `sweepstack/extensions/`, which can be taken out, and all adapters.

An adapter is a folder of `platforms` or of `extensions`. None is imported before it is asked for (`part_of`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sweepstack.core.paths import PACKAGE

FOLDER = PACKAGE / "extensions"
COMMANDS = {
    "ci": "pipelines",
    "profile explain": "authoring",
    "profile new": "authoring",
}
"""Command, or verb of a group → the extension that brings it. Read only where that is not installed, to say so."""

ROOTS = {"sweepstack.platforms": PACKAGE / "platforms", "sweepstack.extensions": PACKAGE / "extensions"}
"""Package → its folder."""
FOLDERS = {"manual": "by_hand"}
"""Adapter → its folder, where profiles and the records of boxes call it by another name."""


def command_packages() -> list[str]:
    """The packages of the commands that extensions bring; an extension without commands has none."""
    return [f"sweepstack.extensions.{found.parent.name}.commands" for found in sorted(FOLDER.glob("*/commands"))]


def not_here(extension: str) -> str:
    """An extension that is not installed, as the end of a sentence about what needs it."""
    return f"the extension `{extension}`, which is not installed here (sweepstack/extensions/{extension})"


def adapters() -> list[str]:
    """The names of all adapters that are installed, sorted."""
    called = {folder: adapter for adapter, folder in FOLDERS.items()}
    found = {path.parent.name for folder in ROOTS.values() for path in folder.glob("*/platform.py")}
    return sorted(called.get(name, name) for name in found)


def folder_of(adapter: str) -> str:
    """The name of an adapter's folder, which is that of its extension where it is in one."""
    return FOLDERS.get(adapter, adapter)


def module_of(adapter: str, file: str = "platform") -> str | None:
    """The dotted name of this file of an adapter, or of another extension; None where there is none."""
    name = folder_of(adapter)
    for package, folder in ROOTS.items():
        if name.isidentifier() and (folder / name / f"{file}.py").is_file():
            return f"{package}.{name}.{file}"
    return None


def part_of(name: str, file: str = "platform") -> Any:
    """This file of an adapter, or of another extension, imported now; None where there is none."""
    module = module_of(name, file)
    return import_module(module) if module is not None else None
