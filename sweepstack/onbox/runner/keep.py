"""Packages of the box's image that no set-up replaces: its torch is built for its card and driver."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from sweepstack.onbox.runner.environment import KEEP
from sweepstack.onbox.runner.steps import SetupFailed, asked

TAIL = 8192
CONFLICT = ("conflict", "constraint", "no solution found")
"""What pip or uv says of it."""
WAY_OUT = "take its pin out of what is installed, or write overrides: {<platform>: {keep: []}}"
_VERSIONS = """
import importlib.metadata as metadata, json, sys
found = {}
for name in json.loads(sys.argv[1]):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def versions(python: str, names: Collection[str]) -> dict[str, str]:
    """Those of the named packages that `python` has, with their versions. Raises SetupFailed."""
    if not names:
        return {}
    return dict(json.loads(asked([python, "-c", _VERSIONS, json.dumps(sorted(names))])))


def write(folder: Path, kept: Mapping[str, str]) -> None:
    """Writes the constraint file of an environment, and what lets uv see the packages; nothing where none is kept."""
    if kept:
        (folder / KEEP).write_text("".join(f"{name}=={version}\n" for name, version in sorted(kept.items())))
    for libraries in folder.glob("lib/python*/site-packages"):
        for name, version in kept.items():
            _show(libraries / f"{name}-{version}.dist-info", name, version)


def _show(info: Path, name: str, version: str) -> None:
    """Writes the metadata of a package of the image into the environment, without what it needs, which the image has.

    uv looks at the environment's own folder alone. With the constraint and without this it would look for the image's
    build in an index, where there is none, for each package that needs any torch.
    """
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("sweepstack\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD")))


def check(python: str, kept: Mapping[str, str]) -> None:
    """Raises SetupFailed if `python` would import other versions: some tools know no constraint file."""
    now = versions(python, kept)
    for name, version in kept.items():
        if now.get(name) != version:
            raise SetupFailed(f"it put {name} {now.get(name, '(none)')} before the image's {version}: {WAY_OUT}")


def hint(log: Path, kept: Mapping[str, str]) -> str:
    """What to do, where the end of a failed set-up's log tells of a conflict about a kept package; else ""."""
    with open(log, "rb") as handle:
        handle.seek(max(0, handle.seek(0, 2) - TAIL))
        tail = handle.read().decode("utf-8", "replace").lower()
    if not any(word in tail for word in CONFLICT):
        return ""
    named = [f"{name} {version}" for name, version in kept.items() if re.search(rf"\b{re.escape(name)}\b", tail, re.I)]
    return f"; {', '.join(named)} of the image stays as it is: {WAY_OUT}" if named else ""
