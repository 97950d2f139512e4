"""The shell's Tab completion: names of stacks, cells, boxes and platforms.

Quick: the cells are expanded once for each version of a stack file, and cached; those that a search drew are read from
the log, on this computer alone: of evidence in a bucket as a command read it last. Asks no network. Never raises and
prints nothing: a shell can't show errors here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from sweepstack.core.paths import profiles_folder
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.xdg import cache_folder

MOST = 500
"""For more names than this the shell asks whether to show them all."""
_DRAWN = b'"suggested"'


def stacks(incomplete: str) -> list[str]:
    """The stacks that have a file in this project."""
    folder = _config_dir()
    found = folder.glob("Pulumi.*.yaml") if folder is not None else ()
    return _fitting((path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in found), incomplete)


def cells(ctx: typer.Context, incomplete: str) -> list[str]:
    """The cells of the stack that is named on the line so far, or in PULUMI_STACK."""
    return _fitting(_cells(ctx), incomplete)


def boxes(ctx: typer.Context, incomplete: str) -> list[str]:
    """The boxes of that stack."""
    return _fitting(_names(ctx).get("boxes", []), incomplete)


def given_up(ctx: typer.Context, incomplete: str) -> list[str]:
    """What `give-up` takes: first the kinds, then the names of one."""
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        return _fitting(("cell/", "data/", "unclaimed/", "fact/"), incomplete)
    names = _cells(ctx) if kind == "cell" else boxes(ctx, "") if kind in ("data", "unclaimed") else []
    return _fitting((f"{kind}/{name}" for name in names), incomplete)


def cells_or_boxes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Boxes after --of, else cells."""
    return (boxes if ctx.params.get("of") else cells)(ctx, incomplete)


def platforms(incomplete: str) -> list[str]:
    """The platforms that have a profile."""
    names = (path.stem for path in profiles_folder().glob("*.md") if not path.stem.isupper())
    return _fitting(names, incomplete)


def _fitting(names: Any, incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))[:MOST]


def _config_dir() -> Path | None:
    """The folder of the stack files. Searches one line of Pulumi.yaml: parsing the file would take longest of all."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        try:
            text = (folder / "Pulumi.yaml").read_text("utf-8")
        except (OSError, ValueError):
            continue
        match = re.search(r"^stackConfigDir:\s*[\"']?([^\s\"'#]+)", text, re.MULTILINE)
        return folder / match[1] if match else folder
    return None


def _cells(ctx: typer.Context) -> set[str]:
    """Those of the stack file, and those that its search drew."""
    names = _names(ctx)
    return {*names.get("cells", ()), *_silently(lambda: _drawn(names.get("log", ())))}


def _drawn(logs: Iterable[str]) -> dict[str, Any]:
    """Cell → the line of the log that drew it."""
    lines = (json.loads(line) for log in logs for line in Path(log).read_bytes().splitlines() if _DRAWN in line)
    return {line["cell"]: line for line in lines}


def _names(ctx: typer.Context) -> dict[str, list[str]]:
    """`cells` and `boxes` of the stack file, and where the `log` of its search lies; from the cache if the file has not
    changed."""
    stack, folder = ctx.params.get("stack") or os.environ.get("PULUMI_STACK"), _config_dir()
    if not stack or folder is None:
        return {}
    path = folder / f"Pulumi.{str(stack).rsplit('/', 1)[-1]}.yaml"
    try:
        status = path.stat()
    except OSError:
        return {}
    seen = [status.st_mtime_ns, status.st_size]
    cache = _cache(path)
    try:
        known = json.loads(cache.read_bytes())
        if known["seen"] == seen and "log" in known:
            return dict(known)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    names = _silently(lambda: _expanded(path))
    if names:
        _silently(lambda: write_atomically(cache, json.dumps({"seen": seen, **names}).encode()))
    return names


def _cache(path: Path) -> Path:
    return cache_folder() / "completion" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.json"


def _expanded(path: Path) -> dict[str, list[str]]:
    """Reads the stack file and expands its roster: slow, half a second of imports."""
    from sweepstack.config.edit.stack_file import StackFile
    from sweepstack.config.project import project_root
    from sweepstack.config.searched import cells_with, search_of
    from sweepstack.core.bucket_address import evidence_uri
    from sweepstack.core.cells import CellsConfig
    from sweepstack.core.roster import expand
    from sweepstack.core.search_log import SearchLog
    from sweepstack.evidence.search_log import local_log

    raw = StackFile(path, path.name).sweep()
    cells, search = raw.get("cells") or {}, search_of(raw)
    logs: list[str] = []
    if search is not None:
        cells = cells_with(search, SearchLog(), cells)
        uri = evidence_uri(project_root(path.parent), str(raw.get("pull_to", "")))
        log = local_log(uri) if uri is not None else None
        logs += [str(log)] if log is not None else []
    roster = expand(CellsConfig.model_validate(cells))
    named = [str(name) for name in raw.get("boxes") or ()]
    return {"cells": [*roster.names, *roster.dropped], "boxes": named, "log": logs}


def _silently(ask: Callable[[], Any]) -> dict[str, Any]:
    try:
        return ask() or {}
    except Exception:
        return {}
