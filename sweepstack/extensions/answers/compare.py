"""`sweepctl results --compare A B`: what differs between two cells.

What a copy's manifest says is compared: config, values, curves, code, environment. Of a cell without a pulled copy it
is its parameters and its curve alone.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweepstack.cli.commands.results.plot import logged
from sweepstack.cli.output import NO, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.core.metrics import point_text, series
from sweepstack.core.printable import visible
from sweepstack.core.records import Cell, Manifest
from sweepstack.core.results import CellResult, text
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.ship import unpacked
from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No, SweepstackError
from sweepstack.operations.sweep.cell_file import pulled_copy
from sweepstack.operations.sweep.cell_results import CurveRows, curve_rows, files_of, read_results
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import compose
from sweepstack.status.snapshot import Snapshot

MOST_LINES = 400
"""So many lines of a difference of code are printed; `--json` has all of them."""
MOST_FILE = 1 << 20
"""Of a larger file of the code it is only said that it differs."""
Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Side:
    """One of the two cells. `manifest`: of the copy that is its result, None without one."""

    cell: Cell
    state: str
    manifest: Manifest | None
    result: CellResult | None
    curve: CurveRows | str
    x: str = ""


@dataclass(frozen=True)
class Difference:
    """What differs, name → (of A, of B); None where one has nothing. `curves`: a row for each metric and cell. `code`:
    lines of a unified diff; `problem`: why the code could not be compared."""

    config: Mapping[str, Pair]
    values: Mapping[str, Pair]
    environment: Mapping[str, Pair]
    curves: Sequence[Mapping[str, Any]]
    code: Sequence[str]
    problem: str
    unknown: Sequence[str]


def report(target: Target, one: str, other: str, metrics: Sequence[str], out: Out) -> int:
    """Prints what differs. Exit 0: both are verified. Raises No where there is no such cell or metric. Reads only."""
    with Progress("reading"):
        sources = open_sources(target)
        snapshot = take_snapshot(sources, files=False)
        sides = one_side, other_side = _sides(sources, snapshot, (one, other))
        _, entry = files_of(target, snapshot)
        read = [side.curve for side in sides if isinstance(side.curve, CurveRows)]
        shown = logged(entry, metrics, read) or entry.y if entry is not None else ()
        found = difference(sources.store, one_side, other_side, shown)
    following = [f"sweepctl show {target.named()} {name}" for name in (one, other)]
    out.document(
        {
            "stack": target.stack,
            "cells": [{"name": side.cell.name, "state": side.state} for side in sides],
            **{part: _pairs(getattr(found, part)) for part in ("config", "values", "environment")},
            "curves": list(found.curves),
            "code": {"diff": list(found.code), "problem": found.problem},
            "unknown": list(found.unknown),
            "next": following,
        }
    )
    _render(found, sides, out)
    out.next(following)
    return YES if all(side.state == "verified" for side in sides) else NO


def _sides(sources: Sources, snapshot: Snapshot, names: Sequence[str]) -> list[Side]:
    cells = {cell.name: cell for cell in snapshot.roster}
    if missing := [name for name in names if name not in cells]:
        raise sources.target.no_cell(missing[0], cells)
    views = {cell.name: cell for cell in compose(snapshot).cells}
    results, _ = read_results(sources, snapshot, [cells[name] for name in names], {n: views[n] for n in names}, True)
    by_name = {result.name: result for result in results}
    sides = []
    for name in names:
        _, metrics = files_of(sources.target, snapshot, name)
        curve: CurveRows | str = "the stack file names no metrics file"
        if metrics is not None:
            curve = curve_rows(sources, snapshot, name, cells[name].params, metrics)
        copy, _ = pulled_copy(sources, name, snapshot.result_of(name) if views[name].earlier else None)
        manifest = copy.manifest if copy is not None else None
        sides.append(
            Side(cells[name], views[name].state, manifest, by_name.get(name), curve, metrics.x if metrics else "")
        )
    return sides


def difference(store: EvidenceStore | None, a: Side, b: Side, metrics: Sequence[str]) -> Difference:
    """What differs between two cells. Blocks for reads of the evidence."""
    unknown = [
        f"{side.cell.name} has no pulled copy, so its code and environment are not known"
        for side in (a, b)
        if side.manifest is None
    ]
    config = differing(a.cell.params, b.cell.params)
    code: list[str] = []
    problem, environment = "", {}
    if a.manifest is not None and b.manifest is not None:
        environment = differing(flat(a.manifest.environment), flat(b.manifest.environment))
        facts = [
            {"setup": one.setup, "commit": flat(one.provenance).get("git.commit")} for one in (a.manifest, b.manifest)
        ]
        environment |= differing(*facts)
        if a.manifest.code != b.manifest.code:
            try:
                code = list(code_diff(store, a.manifest.code, b.manifest.code))
            except SweepstackError as error:
                problem = str(error)
    values = differing(*(side.result.values if side.result is not None else {} for side in (a, b)))
    curves = [row for metric in metrics for side in (a, b) if (row := _curve(side, metric))]
    unknown += [f"{side.cell.name} has no curve: {side.curve}" for side in (a, b) if isinstance(side.curve, str)]
    return Difference(config, values, environment, curves, code, problem, unknown)


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Pair]:
    """The names under which two mappings do not have the same, in the order of the first; NaN is the same as NaN."""
    found = {}
    for name in dict.fromkeys([*one, *other]):
        pair = one.get(name), other.get(name)
        if pair[0] != pair[1] and not all(isinstance(value, float) and math.isnan(value) for value in pair):
            found[name] = pair
    return found


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """What is nested by its dotted name; lists stay as they are."""
    if not isinstance(value, Mapping):
        return {prefix.rstrip("."): value}
    return {name: one for key, part in value.items() for name, one in flat(part, f"{prefix}{key}.").items()}


def code_diff(store: EvidenceStore | None, one: str, other: str) -> Iterator[str]:
    """A unified diff of two versions of the code, from their archives in the evidence. Raises SweepstackError."""
    sides = []
    for digest in (one, other):
        archive = store.read_code(digest) if store is not None else None
        if archive is None:
            raise No(f"the evidence has no archive of code {short(digest)}")
        with unpacked(archive, digest) as files:
            sides.append({path: (mode, file.read_bytes()) for path, file, mode in files})
    for path in sorted({*sides[0], *sides[1]}):
        (old_mode, old), (new_mode, new) = (side.get(path, (None, b"")) for side in sides)
        if old_mode != new_mode and None not in (old_mode, new_mode):
            yield f"mode of {path}: {old_mode:o} to {new_mode:o}"
        if old == new and None not in (old_mode, new_mode):
            continue
        names = (
            f"a/{path}" if old_mode is not None else "/dev/null",
            f"b/{path}" if new_mode is not None else "/dev/null",
        )
        try:
            if b"\0" in old + new or len(old) + len(new) > MOST_FILE:
                raise ValueError
            before, after = old.decode().splitlines(), new.decode().splitlines()
        except ValueError:
            yield f"{names[0]} and {names[1]} differ, and are no text or too long"
            continue
        yield from difflib.unified_diff(before, after, *names, lineterm="")


def _curve(side: Side, metric: str) -> dict[str, Any] | None:
    if isinstance(side.curve, str):
        return None
    line = series(side.curve.rows, side.cell.name, side.x, metric)
    if not line.points:
        return None
    last = line.points[-1]
    return {
        "metric": metric,
        "cell": side.cell.name,
        "points": len(line.points),
        "last": (last[0], last[1] if math.isfinite(last[1]) else None),
        "least": line.least,
        "most": line.most,
        "note": side.curve.note,
    }


def _render(found: Difference, sides: Sequence[Side], out: Out) -> None:
    names = [side.cell.name for side in sides]
    for title, pairs in (("CONFIG", found.config), ("VALUE", found.values), ("ENVIRONMENT", found.environment)):
        if pairs:
            rows = [(visible(name), *(visible(_shown(value)) for value in pair)) for name, pair in pairs.items()]
            out.table((title, *names), rows)
        else:
            out.line(f"{title.lower()}: nothing differs that is known")
    if found.curves:
        rows = [
            (
                row["metric"],
                row["cell"],
                str(row["points"]),
                *(_at(row[part]) for part in ("last", "least", "most")),
                row["note"],
            )
            for row in found.curves
        ]
        out.table(("CURVE", "CELL", "POINTS", "LAST", "LEAST", "MOST", "NOTE"), rows)
    if found.problem:
        out.line(f"code: differs, and can't be compared: {found.problem}", style="yellow")
    elif found.code:
        for line in found.code[:MOST_LINES]:
            out.line(line, wrap=False)
        if len(found.code) > MOST_LINES:
            out.line(f"… and {len(found.code) - MOST_LINES} more lines: --json has them")
    elif all(side.manifest is not None for side in sides):
        out.line("code: the same")
    for note in found.unknown:
        out.line(f"unknown  {note}", style="yellow")


def _shown(value: Any) -> str:
    return "(none)" if value is None else text(value)


def _at(point: tuple[float, float | None] | None) -> str:
    return point_text((point[0], math.nan if point[1] is None else point[1])) if point is not None else ""


def _pairs(pairs: Mapping[str, Pair]) -> dict[str, list[Any]]:
    return {name: [_plain(value) for value in pair] for name, pair in pairs.items()}


def _plain(value: Any) -> Any:
    """JSON has no NaN: it is text here."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
