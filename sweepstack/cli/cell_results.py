"""Reads the values that cells left behind, of verified cells only from their verified copies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sweepstack.cli.artifact_specs import files_of
from sweepstack.cli.cell_file import CellFile, find_copy, find_file
from sweepstack.cli.sources import Sources
from sweepstack.core.metrics import last_rows
from sweepstack.core.records import Cell, Manifest
from sweepstack.core.results import CellResult, Scalar, combine, scalars
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.status.model import CellView
from sweepstack.status.snapshot import Snapshot

MOST_BYTES = 16 << 20
"""A larger JSON artifact is not read as results; and so much of a metrics file's end is searched for a row."""
END_BYTES = 8 << 10
"""The bytes of its end that are read first: a row is seldom longer."""


def gather(
    sources: Sources, snapshot: Snapshot, cells: Sequence[Cell], states: Mapping[str, CellView], everything: bool
) -> tuple[list[CellResult], set[str]]:
    """The results, and the names of the missing cells."""
    found, absent = [], {cell.name for cell in states.values()}
    for cell in cells:
        state = states[cell.name].state
        if state != "verified" and not everything:
            continue
        result = _read(sources, snapshot, cell, state)
        if result is not None:
            found.append(result)
            absent.discard(cell.name)
    return found, absent


def _read(sources: Sources, snapshot: Snapshot, cell: Cell, state: str) -> CellResult | None:
    """All scalars of one cell. A verified cell is read only from its verified copy."""
    artifacts, metrics = files_of(sources.target, snapshot, cell.name)
    files: list[tuple[str, dict[str, Scalar]]] = []
    for artifact in artifacts:
        if artifact.load == "json" and (file := _file(sources, snapshot, cell.name, state, artifact.path)) is not None:
            files.append((artifact.path, scalars(_json(file))))
    if metrics is not None and (file := _file(sources, snapshot, cell.name, state, metrics.file)) is not None:
        last = _last_row(file, metrics.file)
        files.append((metrics.file, {name: last[name] for name in metrics.y if name in last}))
    if not files and state != "verified":
        return None
    values = combine(files, cell.params)
    return CellResult(cell.name, cell.params, state, values, _code(sources, snapshot, cell.name, state))


def _file(sources: Sources, snapshot: Snapshot, cell: str, state: str, path: str) -> CellFile | None:
    try:
        if state == "verified":
            return find_copy(sources, cell, None, path)
        return find_file(sources, snapshot, cell, None, path)
    except (SweepstackError, OSError):
        return None


def _json(file: CellFile) -> Any:
    try:
        return json.loads(file.whole(MOST_BYTES))
    except (SweepstackError, OSError, ValueError, RecursionError):
        return None


def _last_row(file: CellFile, name: str) -> dict[str, Scalar]:
    try:
        size = file.size()
        read = lambda offset, limit: file.whole(limit, offset)  # noqa: E731
        rows = last_rows(read, size, name, END_BYTES)
        if not rows and size > END_BYTES:  # the row may be longer than that
            rows = last_rows(read, size, name, MOST_BYTES)
    except (SweepstackError, OSError):
        return {}
    return scalars(dict(rows[-1])) if rows else {}


def _code(sources: Sources, snapshot: Snapshot, cell: str, state: str) -> str | None:
    """The version of the code that made it, by the copy's manifest, else by the box's journal."""
    if state == "verified" and sources.store is not None:
        try:
            data = sources.store.copies.manifest(cell)
            return Manifest.model_validate_json(data).code if data is not None else None
        except (SweepstackError, OSError, ValueError):
            return None
    for box_snapshot in snapshot.box_snapshots:
        progress = box_snapshot.progress(cell)
        if progress is not None and progress.code:
            return progress.code
    return None
