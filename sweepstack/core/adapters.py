"""Finds the adapters of platforms: folders of `platforms` and of `extensions`. Imports none."""

from __future__ import annotations

from sweepstack.core.paths import PACKAGE

ROOTS = {"sweepstack.platforms": PACKAGE / "platforms", "sweepstack.extensions": PACKAGE / "extensions"}
"""Package → its folder."""


def adapters() -> list[str]:
    """The names of all adapters that are installed, sorted."""
    return sorted(found.parent.name for folder in ROOTS.values() for found in folder.glob("*/platform.py"))


def module_of(adapter: str, file: str = "platform") -> str | None:
    """The dotted name of this file of an adapter, wherever its folder stands; None where there is none."""
    for package, folder in ROOTS.items():
        if adapter.isidentifier() and (folder / adapter / f"{file}.py").is_file():
            return f"{package}.{adapter}.{file}"
    return None
