"""`sweepctl results --as plot`: draws metrics of cells as a chart in the terminal; elsewhere a table."""

from __future__ import annotations

import fnmatch
import math
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from sweepstack.cli.output import NO, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.core.curve_files import has_holes
from sweepstack.core.job import MetricsInput
from sweepstack.core.metrics import Series, number_text, point_text, series
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.errors import No
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.cell_results import CurveRows, curve_rows, files_of
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.snapshot import Snapshot

MOST_CURVES = 8
"""The most cells in one chart if none was named: more can't be told apart."""
COLORS = ("cyan", "magenta", "green", "orange", "blue", "red", "yellow", "gray")
HEIGHT = 20


def curves(target: Target, wanted: Sequence[str], metrics: Sequence[str], out: Out) -> int:
    """Draws the cells in `wanted` (names or patterns, `lr0.1-*`); by default those that run and are not hung, else all.

    Exit 1: a named cell has no curve.
    """
    with Progress("reading"):
        sources = open_sources(target)
        snapshot = take_snapshot(sources)
        entry = _metrics(target, snapshot)
        names = _names(target, snapshot, wanted)
        params = {cell.name: cell.params for cell in snapshot.roster}
        read, missing = [], {}
        for name in names:
            found = curve_rows(sources, snapshot, name, params.get(name, {}), entry)
            if isinstance(found, CurveRows):
                read.append(found)
            else:
                missing[name] = found
            if not wanted and not out.as_json and len(read) == MOST_CURVES:
                break
    chosen = logged(entry, metrics, read) or list(entry.y[:1])
    drawn = [(metric, [(one, series(one.rows, one.cell, entry.x, metric)) for one in read]) for metric in chosen]
    out.document(_document(target, entry, drawn, missing))
    if not out.as_json:
        for metric, lines in drawn:
            some = [line for _, line in lines if line.points]
            if sys.stdout.isatty() and some:
                print(chart(metric, entry.x, some))
            _table(metric, entry.x, lines, out)
        left = len(names) - len(read) - len(missing)
        if left:
            out.line(
                f"… and {count(left, 'cell')} more: name them, or a pattern: sweepctl results --as plot 'lr0.1-*'",
                style="dim",
            )
        for name, why in list(missing.items())[:10] if wanted or not read else []:
            out.line(f"missing  {name}: {why}", style="yellow")
        following = names[0] if read else None
        out.next(
            [
                f"sweepctl logs {target.named()} {following}"
                if following
                else f"sweepctl wait --stack {target.stack} first-step"
                if any(box_snapshot.seen.runner_alive for box_snapshot in snapshot.box_snapshots)
                else f"sweepctl results {target.named()}"
            ]
        )
    return YES if read and not (wanted and missing) else NO


def _metrics(target: Target, snapshot: Snapshot) -> MetricsInput:
    _, metrics = files_of(target, snapshot)
    if metrics is not None:
        return metrics
    raise No(
        f"{target.stack} names no metrics file; in {target.file.shown}: "
        "metrics: {file: metrics.jsonl, x: step, y: [loss]}",
        [f"pulumi up --stack {target.stack}    (then)"],
    )


def _names(target: Target, snapshot: Snapshot, wanted: Sequence[str]) -> list[str]:
    known = [cell.name for cell in snapshot.roster] + list(snapshot.dropped)
    if not wanted:
        hung = {name for box_snapshot in snapshot.box_snapshots for name in box_snapshot.hung}
        running = {
            name
            for box_snapshot in snapshot.box_snapshots
            if box_snapshot.seen.runner_alive
            for name in box_snapshot.running
        } - hung
        return [name for name in known if name in running] or known
    found: dict[str, None] = {}
    for word in wanted:
        fitting = [word] if word in known else fnmatch.filter(known, word)
        if not fitting:
            raise target.no_cell(word, known)
        found |= dict.fromkeys(fitting)
    return list(found)


def logged(entry: MetricsInput, metrics: Sequence[str], read: Sequence[CurveRows]) -> list[str]:
    """The metrics that were asked for, each once. Raises No for one that no cell here logged."""
    logged = (row for one in read for row in (one.rows if has_holes(entry.file) else one.rows[-1:]))
    known = list(dict.fromkeys([*entry.y, *(key for row in logged for key in row if key != entry.x)]))
    for name in metrics:
        if read and name not in known:
            raise No(f"--metric {name}: {entry.file} has {', '.join(known)}{did_you_mean(name, known)}")
    return list(dict.fromkeys(metrics))


def chart(metric: str, x: str, lines: Sequence[Series]) -> str:
    """The curves as text, as wide as the terminal.

    A value that is not finite is a gap in the curve, with an x below.
    """
    import plotext  # type: ignore[import-untyped]

    size = shutil.get_terminal_size((100, 40))
    finite = [y for line in lines for _, y in line.points if math.isfinite(y)]
    floor = min(finite, default=0.0)
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(size.columns, max(10, min(HEIGHT, size.lines - len(lines) - 6)))
    for number, line in enumerate(lines):
        color = COLORS[number % len(COLORS)]
        named = False
        for part in _parts(line):
            xs, ys = zip(*part, strict=True)
            label = None if named else line.cell
            if len(part) == 1:
                plotext.scatter(xs, ys, label=label, color=color, marker="•")
            else:
                plotext.plot(xs, ys, label=label, color=color, marker="braille")
            named = True
        if line.not_finite:
            label = f"{line.cell}: NaN" if named else f"{line.cell}: all NaN"
            plotext.scatter(line.not_finite, [floor] * len(line.not_finite), label=label, color=color, marker="x")
    plotext.title(metric)
    plotext.xlabel(x)
    text = str(plotext.build())
    plotext.clear_figure()
    return str(plotext.uncolorize(text)) if os.environ.get("NO_COLOR") else text


def _parts(line: Series) -> list[list[tuple[float, float]]]:
    """The curve's runs of finite points."""
    parts: list[list[tuple[float, float]]] = [[]]
    for x, y in line.points:
        if math.isfinite(y):
            parts[-1].append((x, y))
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


def _table(metric: str, x: str, lines: Sequence[tuple[CurveRows, Series]], out: Out) -> None:
    rows = []
    for one, line in lines:
        if not line.points:
            rows.append((line.cell, "0", "", "", "", "", f"no {metric}"))
            continue
        rows.append(
            (
                line.cell,
                str(len(line.points)),
                number_text(line.points[-1][0]),
                f"{line.points[-1][1]:.4g}",
                point_text(line.least),
                point_text(line.most),
                "; ".join(filter(None, (_not_finite(x, line), one.note))),
            )
        )
    out.table(("CELL", "POINTS", f"LAST {x}", f"LAST {metric}", "LEAST", "MOST", "NOTE"), rows)


def _not_finite(x: str, line: Series) -> str:
    found = line.not_finite
    return f"NaN: {len(found)}, the first at {x} {number_text(found[0])}" if found else ""


def _document(
    target: Target,
    entry: MetricsInput,
    drawn: Sequence[tuple[str, Sequence[tuple[CurveRows, Series]]]],
    missing: dict[str, str],
) -> dict[str, Any]:
    return {
        "stack": target.stack,
        "x": entry.x,
        "curves": [
            {
                "cell": one.cell,
                "metric": metric,
                "attempt": one.attempt,
                "source": one.source,
                "before": [
                    {"attempt": part.attempt, "source": part.source, "rows": len(part.rows)} for part in one.parts
                ],
                "points": [[x, y if math.isfinite(y) else None] for x, y in line.points],
                "not_finite": list(line.not_finite),
            }
            for metric, lines in drawn
            for one, line in lines
        ],
        "missing": [{"name": name, "why": why} for name, why in missing.items()],
    }
