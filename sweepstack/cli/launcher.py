"""Writes `pulumi` beside an installed sweepctl: the launcher, for the engine of this machine."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from sweepstack.core.paths import shipped
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.xdg import cache_folder

_OURS = (b"sweepstack-launcher", b"sweepstack-shim")
_FILE = Path(sys.prefix) / "bin" / "pulumi"


def is_ours(path: Path) -> bool:
    """Whether this command is our launcher or shim, and not the engine. False where it can't be read."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return any(mark in head for mark in _OURS)


def install() -> Path | None:
    """Writes `pulumi` into this virtual environment, or brings an older one of ours up to date. Idempotent.

    Returns its path where it wrote it. None where it is up to date, where a command of that name is not ours, or where
    this machine has no engine, neither on PATH nor in the cache that set-ups of checkouts share.
    """
    engine = next(_engines(), None)
    if engine is None or (_FILE.exists() and not is_ours(_FILE)):
        return None
    text = shipped("scripts/launcher").read_text(encoding="utf-8")
    fills = (("@PYTHON@", shlex.quote(sys.executable)), ('"@ENGINE@"', repr(str(engine))), ("@OFFLINE@", "no"))
    for mark, value in fills:
        text = text.replace(mark, value)
    if _FILE.exists() and _FILE.read_text(encoding="utf-8") == text:
        return None
    write_atomically(_FILE, text.encode(), mode=0o755)
    return _FILE


def _engines() -> Iterator[Path]:
    """Engines of this machine, the one to take first."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = Path(folder or ".").absolute() / "pulumi"
        if os.access(path, os.X_OK) and path.is_file() and not is_ours(path):
            yield path
    wanted = shipped(".pulumi-version").read_text(encoding="utf-8").strip()
    for record in sorted((cache_folder() / "engine" / wanted).glob("*/engine.json")):
        if os.access(record.with_name("pulumi"), os.X_OK):
            yield record.with_name("pulumi")
