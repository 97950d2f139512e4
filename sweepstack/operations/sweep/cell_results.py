"""Reads the values that cells left behind, of verified cells only from their verified copies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from sweepstack.config.stack_config import StackConfig
from sweepstack.core.curve_files import has_holes, is_text, rows_of
from sweepstack.core.job import MetricsInput
from sweepstack.core.metrics import (
    Row,
    begins_late,
    last_row,
    last_rows,
    last_values,
    leading,
    number,
    over_curve,
    parse_rows,
    run_once,
)
from sweepstack.core.records import ArtifactSpec, Cell
from sweepstack.core.results import CellResult, Scalar, combine, scalars
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import ConfigError, No, SweepstackError, Unsure
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.operations.sweep.cell_file import (
    CellFile,
    PulledCopy,
    find_copy,
    find_file,
    find_pulled,
    in_memory,
    pulled_copy,
)
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.engine.state import QueueEntry
from sweepstack.status.model import CellView
from sweepstack.status.snapshot import Snapshot

MOST_BYTES = 16 << 20
"""A larger JSON artifact is not read as results; and so much of a metrics file's end is searched for a row."""
MOST_CURVE = 64 << 20
"""Of a longer metrics file only the beginning is shown as a curve, and no value over the whole of it."""
END_BYTES = 8 << 10
"""The bytes of its end that are read first: a row is seldom longer."""


class CellFiles:
    """The files of one cell, each looked for once; of a verified cell only in its verified copy."""

    def __init__(
        self,
        sources: Sources,
        snapshot: Snapshot,
        cell: str,
        state: str,
        *,
        hold: int = 0,
        asks_box: bool = True,
        earlier: bool = False,
    ) -> None:
        """`hold`: a file of a verified copy that is not longer is read whole at once, as it will be read twice.
        `asks_box`: of a cell that is not verified; False: only what was pulled is looked at. `earlier`: in the verified
        copy of an earlier run (`CellView.earlier`)."""
        self.cell, self.state, self.earlier = cell, state, earlier
        self.verified = state == "verified" or earlier
        self._sources, self._snapshot, self._hold, self._asks_box = sources, snapshot, hold, asks_box
        self._found: dict[str, CellFile | None] = {}

    @cached_property
    def copy(self) -> PulledCopy | None:
        """The verified copy here; of an earlier run, it may be one that was put aside."""
        if not self.verified:
            return None
        return pulled_copy(self._sources, self.cell, self._snapshot.result_of(self.cell) if self.earlier else None)[0]

    @property
    def code(self) -> str | None:
        """The version of the code that made it, by the copy's manifest, else by the box's journal."""
        if self.verified and self._sources.store is not None:
            return self.copy.manifest.code if self.copy is not None else None
        for box_snapshot in self._snapshot.box_snapshots:
            progress = box_snapshot.progress(self.cell)
            if progress is not None and progress.code:
                return progress.code
        return None

    def find(self, path: str) -> CellFile | None:
        """Where the file can be read; None when it is nowhere."""
        if path not in self._found:
            try:
                self._found[path] = self._look(path)
            except (SweepstackError, OSError):
                self._found[path] = None
        return self._found[path]

    def _look(self, path: str) -> CellFile:
        if not self.verified and self._asks_box:
            return find_file(self._sources, self._snapshot, self.cell, None, path)
        if not self.verified:
            return find_pulled(self._sources, self.cell, None, path)
        if self.earlier:  # and nothing else: what its box or a volume has is of the later run
            found, problem = self.copy.file(None, path) if self.copy is not None else (None, "")
            if found is None:
                raise Unsure(problem)
            return found
        file = find_copy(self._sources, self.cell, None, path, self.copy)
        if not file.parts and file.size() <= self._hold:
            return in_memory(file.words, file.whole(self._hold), file.attempt)
        return file


def read_results(
    sources: Sources,
    snapshot: Snapshot,
    cells: Sequence[Cell],
    states: Mapping[str, CellView],
    everything: bool,
    over_curves: Sequence[str] = (),
) -> tuple[list[CellResult], set[str]]:
    """The results, and the names of the missing cells. `over_curves`: further values, such as `max:accuracy`."""
    found, absent = [], {cell.name for cell in states.values()}
    for cell in cells:
        view = states[cell.name]
        if not view.has_result and not everything:
            continue
        there = CellFiles(sources, snapshot, cell.name, view.state, earlier=view.earlier)
        artifacts, metrics = files_of(sources.target, snapshot, cell.name)
        result = result_of(cell, there, artifacts, metrics)
        if result is not None:
            more = _over_curves(cell, there, metrics, over_curves) if over_curves and metrics is not None else {}
            found.append(replace(result, values={**result.values, **more}))
            absent.discard(cell.name)
    return found, absent


def result_of(
    cell: Cell, there: CellFiles, artifacts: Sequence[ArtifactSpec], metrics: MetricsInput | None
) -> CellResult | None:
    """All scalars of one cell; None of one that is not verified and left none. `artifacts`, `metrics`: see
    `files_of`."""
    files: list[tuple[str, dict[str, Scalar]]] = []  # by the names in the stack file: they are the same for all cells
    problem = ""
    for artifact in artifacts:
        if artifact.load == "json" and (file := find_own(there, cell, artifact.path)) is not None:
            files.append((artifact.path, scalars(_json(file))))
    if metrics is not None and (file := find_own(there, cell, metrics.file)) is not None:
        last, problem = _last_values(file, metrics)
        files.append((metrics.file, {name: last[name] for name in metrics.y if name in last}))
    if not files and not there.verified:
        return None
    known = there.copy if there.earlier else None
    note = (
        f"its verified copy of attempt {known.manifest.attempt} counts until a later one is verified" if known else ""
    )
    values = combine(files, cell.params)
    return CellResult(cell.name, cell.params, there.state, values, there.code, note, problem)


def _over_curves(cell: Cell, there: CellFiles, metrics: MetricsInput, wanted: Sequence[str]) -> dict[str, Scalar]:
    """These values (`max:accuracy`) of one cell, of the file that its seal covers: what an earlier try wrote before a
    checkpoint is in no seal, and does not count. Of a file above `MOST_CURVE` there are none."""
    file = find_own(there, cell, metrics.file)
    try:
        if file is None or file.size() > MOST_CURVE:
            return {}
        rows = whole_curve((), read_rows(file, metrics.file), file.attempt, metrics.x)
    except (SweepstackError, OSError):
        return {}
    found = {name: over_curve(rows, *name.split(":", 1)) for name in wanted}
    return {name: value for name, value in found.items() if value is not None}


def find_own(there: CellFiles, cell: Cell, path: str) -> CellFile | None:
    """A file that the stack file names `path`. An older runner took a placeholder in it as it is written."""
    own = own_file(path, cell.name, cell.params)
    return there.find(own) or (there.find(path) if own != path else None)


def _json(file: CellFile) -> Any:
    try:
        return json.loads(file.whole(MOST_BYTES))
    except (SweepstackError, OSError, ValueError, RecursionError):
        return None


def read_rows(file: CellFile, name: str) -> list[Row]:
    """The rows of the metrics file that the stack file names `name`: the one reader of all curves. Of a text of more
    than `MOST_CURVE` only the beginning. Raises No for a file that is damaged, and for others of more than that;
    ConfigError where its reader is not installed; SweepstackError, OSError where it can't be read now."""
    if is_text(name) and len(file.parts) < 2:
        return parse_rows(file.whole(MOST_CURVE), name)
    parts = file.parts or ((name, file),)
    if sum(part.size() for _, part in parts) > MOST_CURVE:
        raise No(f"{name} has more than {MOST_CURVE >> 20} MiB: no curve of it is read")
    return rows_of(name, [(path, part.whole(MOST_CURVE)) for path, part in parts])


def _last_values(file: CellFile, metrics: MetricsInput) -> tuple[dict[str, Scalar], str]:
    """What each metric has last, and why there is nothing, if that has to be told: of a file that is no text, or of
    several."""
    try:
        if not is_text(metrics.file) or len(file.parts) > 1:
            last = last_values(read_rows(file, metrics.file), metrics.y)
            return {name: _as_number(value) for name, value in last.items()}, ""
        size = file.size()
        read = lambda offset, limit: file.whole(limit, offset)  # noqa: E731
        row = last_row(read, size, metrics.file, END_BYTES)
        found = scalars(dict(row or {}))
        if row is None and size > END_BYTES:  # the row may be longer than that
            found = scalars(dict(last_row(read, size, metrics.file, MOST_BYTES) or {}))
        if has_holes(metrics.file) and any(number(found.get(name)) is None for name in metrics.y):
            found |= last_values(last_rows(read, size, metrics.file, MOST_BYTES), metrics.y)
    except (ConfigError, No) as error:
        return {}, str(error) if file.parts or not is_text(metrics.file) else ""
    except (SweepstackError, OSError):
        return {}, ""
    return {name: _as_number(value) for name, value in found.items()} if has_holes(metrics.file) else found, ""


def _as_number(value: Scalar) -> Scalar:
    """A field of a CSV, which is text there; what is no number stays as it is."""
    if not isinstance(value, str) or number(value) is None:
        return value
    return int(value) if re.fullmatch(r"[+-]?\d{1,15}", value) else float(value)


def files_of(
    target: Target, snapshot: Snapshot, cell: str | None = None
) -> tuple[tuple[ArtifactSpec, ...], MetricsInput | None]:
    """The artifacts of a cell (None: of any cell), and its metrics file or None. Never raises: if unknown, empty."""
    queues = [box_snapshot.queue for box_snapshot in snapshot.box_snapshots if box_snapshot.queue is not None]
    own: QueueEntry | None = next((queue for queue in queues if cell in queue.names), None)
    queue = own or next(iter(queues), None)
    if queue is not None:
        return queue.artifacts, queue.metrics
    return _by_file(target.root, target.stack)


def artifacts_of(target: Target) -> tuple[ArtifactSpec, ...]:
    """The artifacts that the stack file names; none if it can't be read."""
    return _by_file(target.root, target.stack)[0]


@lru_cache(maxsize=1)
def _by_file(root: Path, stack: str) -> tuple[tuple[ArtifactSpec, ...], MetricsInput | None]:
    """Cached: a command asks for every cell."""
    try:
        config = StackConfig.load(root, stack)
    except ConfigError:
        return (), None
    metrics = config.metrics
    entry = MetricsInput(file=metrics.file, x=metrics.x, y=metrics.y) if metrics else None
    return config.artifact_specs(), entry


Reader = Callable[[int], tuple[str, list[Row]]]
"""Attempt → where its metrics file was read, and its rows. Raises SweepstackError or OSError."""


@dataclass(frozen=True)
class EarlierRows:
    """What an earlier try gave: its first rows, before those of the tries that followed."""

    attempt: int
    source: str
    rows: tuple[Row, ...]


def joined(rows: Sequence[Row], attempt: int, x: str, read: Reader) -> tuple[EarlierRows, ...]:
    """The parts that lead up to these rows of an attempt, the earliest first. Empty where nothing is missing before
    them, or no earlier try fits without a gap. An earlier file is read only where something is missing."""
    found: list[EarlierRows] = []
    first = rows
    while attempt > 1 and begins_late(first, x):
        attempt -= 1
        try:
            source, before = read(attempt)
        except (SweepstackError, OSError):
            continue
        part = leading(before, first, x)
        if before and not part:
            break
        if part:
            found.insert(0, EarlierRows(attempt, source, tuple(part)))
            first = part
    return tuple(found)


def whole_curve(parts: Sequence[EarlierRows], rows: Sequence[Row], attempt: int, x: str) -> Sequence[Row]:
    """The rows of an attempt behind the `parts` that lead up to them; of steps that were run twice the later rows."""
    whole = [*chain.from_iterable(part.rows for part in parts), *rows]
    return run_once(whole, x) if attempt > 1 else whole


@dataclass(frozen=True)
class CurveRows:
    """The rows of one cell's metrics file, and where they were read."""

    cell: str
    source: str
    attempt: int
    rows: Sequence[Row]
    parts: tuple[EarlierRows, ...] = ()
    """What earlier tries have of its beginning; it is in `rows`, too."""

    @property
    def note(self) -> str:
        """Whose the beginning is; "" where all is of one try."""
        tries = ", ".join(str(part.attempt) for part in self.parts)
        return f"begins with {sum(len(part.rows) for part in self.parts)} rows of attempt {tries}" if tries else ""


def curve_rows(
    sources: Sources, snapshot: Snapshot, cell: str, params: Mapping[str, Any], metrics: MetricsInput
) -> CurveRows | str:
    """`read_curve`; or the reason why there are no rows. Blocks for reads."""
    try:
        found = read_curve(sources, snapshot, cell, params, metrics)
    except (SweepstackError, OSError) as error:
        return str(error)
    return found if found.rows else f"{own_file(metrics.file, cell, params)} has no row yet"


def read_curve(
    sources: Sources, snapshot: Snapshot, cell: str, params: Mapping[str, Any], metrics: MetricsInput
) -> CurveRows:
    """The rows of a cell's metrics file, from its box or a copy, with those of earlier tries that lead up to them.
    Blocks for reads. Raises SweepstackError, OSError where the file can't be read now, or there is none."""
    file = own_file(metrics.file, cell, params)

    def of(attempt: int | None) -> tuple[CellFile, list[Row]]:
        source = find_file(sources, snapshot, cell, attempt, file)
        return source, read_rows(source, file)

    def earlier(attempt: int) -> tuple[str, list[Row]]:
        source, rows = of(attempt)
        return source.words, rows

    source, rows = of(None)
    parts = joined(rows, source.attempt, metrics.x, earlier)
    whole = whole_curve(parts, rows, source.attempt, metrics.x)
    return CurveRows(cell, source.words, source.attempt, whole, parts)
