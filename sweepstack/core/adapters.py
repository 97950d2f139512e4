"""Finds the adapters of platforms: folders of `platforms` and of `extensions`. Imports none."""

from __future__ import annotations

from sweepstack.core.paths import PACKAGE

ROOTS = {"sweepstack.platforms": PACKAGE / "platforms", "sweepstack.extensions": PACKAGE / "extensions"}
"""Package → its folder."""
FOLDERS = {"manual": "by_hand"}
"""Adapter → its folder, where profiles and the records of boxes call it by another name."""


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
