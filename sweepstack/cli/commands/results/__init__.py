"""`sweepctl results`: one table of all cells; by default only verified cells count."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, Literal

import typer

from sweepstack.cli import completion
from sweepstack.cli.options import AsJson, Evidence, Stack, one_of
from sweepstack.cli.output import NO, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.cli.render import own_stops
from sweepstack.core.extensions import module_of, not_here
from sweepstack.core.records import SETTLED, Cell
from sweepstack.core.results import (
    CellResult,
    Group,
    Mean,
    Scalar,
    axes_of,
    columns_of,
    groups,
    mean_text,
    n_text,
    short_codes,
    text,
)
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.cell_results import read_results
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import CellView, compose

Style = Literal["table", "csv", "markdown"]
FORMS = ("table", "csv", "markdown", "plot", "html")
LISTED = 20
SEED = "seed"
NONE = "none"


@dataclass(frozen=True)
class Table:
    """Headers and rows of text, to be printed. `named`: so many of the first columns name a row."""

    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]
    named: int = 1

    def without_doubles(self) -> tuple[Table, list[tuple[str, str]]]:
        """The table without columns that are the same as an earlier one in every row; and these, with that one."""
        first: dict[tuple[str, ...], int] = {}
        doubles = []
        for index in range(self.named, len(self.headers)):
            column = tuple(row[index] for row in self.rows)
            known = first.setdefault(column, index)
            if known != index and len(column) > 1:
                doubles.append((index, known))
        left = [index for index in range(len(self.headers)) if index not in dict(doubles)]
        rows = [tuple(row[index] for index in left) for row in self.rows]
        named = [(self.headers[index], self.headers[known]) for index, known in doubles]
        return Table(tuple(self.headers[index] for index in left), rows, self.named), named


def command(
    cells: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CELL",
            help="Of a plot: names or patterns; by default the cells that run.",
            autocompletion=completion.cells,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="csv|markdown|plot|html",
            help="For a spreadsheet; for a paper or a pull request; curves of cells; one page with all of it.",
        ),
    ] = "table",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Of html (default: report-STACK.html); `-`: stdout."),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS", help="Average over this axis (default: seed); `none`: a row for each cell."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this value; of a plot any key of the metrics file. Repeatable."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also cells that are not verified; they are marked.")] = False,
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> int:
    """Print all cells: axes, values, mean ± std over seeds. Exit 1: a cell is missing.

    As `plot` it draws what cells logged; as `html` it writes one page: cells over time, cost, machines, results,
    curves, evidence, decisions.
    """
    one_of(form, *FORMS, option="--as")
    if form in ("plot", "html") and (over or all_ or (metric and form == "html")):
        raise Unsure("--over and --all are for the table, --metric for the table and a plot")
    if (cells and form != "plot") or (output and form != "html"):
        raise Unsure("cells are named for --as plot, a file with -o for --as html")
    target, out = Target.find_to_read(stack, evidence), Out(as_json=json)
    if form == "plot":
        from sweepstack.cli.commands.results.plot import curves

        return curves(target, cells or (), metric or (), out)
    if form == "html":
        return _page(target, output, out)
    if form != "table" and json:
        raise Unsure("--as and --json are two ways to write one table: use one of them")
    style: Style = "csv" if form == "csv" else "markdown" if form == "markdown" else "table"
    return results(target, over or (), metric or (), all_, style, out)


def _page(target: Target, output: str | None, out: Out) -> int:
    """What the extension `pages` writes. Raises Unsure where it is not installed."""
    module = module_of("pages", "page")
    if module is None:
        raise Unsure(f"`sweepctl results --as html` belongs to {not_here('pages')}")
    code: int = import_module(module).report(target, output, out)
    return code


def results(
    target: Target, over: Sequence[str], metrics: Sequence[str], everything: bool, style: Style, out: Out
) -> int:
    """Exit 0 if every cell of the roster is verified or waived; else 1."""
    with Progress("reading"):
        sources = open_sources(target)
        snapshot = take_snapshot(sources, files=False)
        view = compose(snapshot)
        cells = list(snapshot.roster)
        if not cells:
            raise No(f"{target.stack} has no cells")
        axes = axes_of(cells)
        averaged = _over(over, axes)
        states = {cell.name: cell for cell in view.cells}
        found, absent = read_results(sources, snapshot, cells, states, everything)
    columns = _columns(found, metrics)
    made = groups(cells, found, averaged)
    codes = short_codes(result.code for result in found if result.code)
    missing = [cell for cell in view.cells if cell.name in absent]
    following = [f"sweepctl verify {target.named()}"] if target.evidence else list(view.next) if missing else []
    document = _document(target, averaged, found, made, missing, columns, following)
    out.document(document | {"alarms": own_stops(view)})
    if not out.as_json:
        if not averaged:
            table = _each(cells, found, columns, codes, everything, text if style != "csv" else full)
        else:
            table = (_averages if style != "csv" else _spreadsheet)(made, columns, codes)
        _print(table, style, out)
        _notes(made if averaged else [], found, missing, codes, style, out, own_stops(view))
        if style == "table":
            out.next(following)
    return YES if all(cell.state in SETTLED for cell in view.cells) else NO


def _over(over: Sequence[str], axes: Sequence[str]) -> list[str]:
    """The axes to average over: those named, else `seed` if there is one; empty for `none`."""
    if list(over) == [NONE]:
        return []
    for name in over:
        if name not in axes:
            named = f"axes are {', '.join(axes)}" if axes else "the cells differ in nothing"
            raise No(f"--over {name}: no axis ({named}; none: a row a cell){did_you_mean(name, axes)}")
    return list(dict.fromkeys(over)) or [name for name in axes if name == SEED]


def _columns(found: Sequence[CellResult], wanted: Sequence[str]) -> list[str]:
    columns = columns_of(found)
    for name in wanted:
        if name not in columns:
            has = f"there are {', '.join(columns)}" if columns else "there are none yet"
            raise No(f"--metric {name}: no such value ({has}){did_you_mean(name, columns)}")
    return list(dict.fromkeys(wanted)) or columns


# Printing


def _averages(made: Sequence[Group], columns: Sequence[str], codes: dict[str, str]) -> Table:
    axes = list(made[0].axes) if made else []
    shown = [name for name in columns if any(name in group.values for group in made)]
    mixed = len(codes) > 1
    headers = (*axes, "n", *shown, *(["code"] if mixed else []))
    rows = [
        (
            *(text(group.axes[axis]) for axis in axes),
            n_text(group),
            *(mean_text(group.values.get(name)) for name in shown),
            *([_codes(group.codes, codes)] if mixed else []),
        )
        for group in made
    ]
    return Table(headers, rows, len(axes) + 1)


def _spreadsheet(made: Sequence[Group], columns: Sequence[str], codes: dict[str, str]) -> Table:
    """Means with all their digits, in separate columns; empty if a value is missing or not finite."""
    axes = list(made[0].axes) if made else []
    shown = [name for name in columns if any(name in group.values for group in made)]
    values = [column for name in shown for column in (f"{name}_mean", f"{name}_std", f"{name}_n", f"{name}_not_finite")]
    rows = []
    for group in made:
        row = [full(group.axes[axis]) for axis in axes]
        row += [str(len(group.cells)), str(len(group.wanted)), str(group.verified), _codes(group.codes, codes)]
        for name in shown:
            mean = group.values.get(name, Mean(None, None, 0))
            row += [full(mean.mean), full(mean.std), str(mean.n), str(mean.not_finite)]
        rows.append(tuple(row))
    return Table((*axes, "n", "of", "verified", "code", *values), rows)


def _each(
    cells: Sequence[Cell],
    found: Sequence[CellResult],
    columns: Sequence[str],
    codes: dict[str, str],
    marked: bool,
    write: Callable[[Any], str],
) -> Table:
    axes = axes_of(cells)
    mixed = len(codes) > 1
    headers = ("cell", *(["state"] if marked else []), *axes, *columns, *(["code"] if mixed else []))
    rows = [
        (
            result.name,
            *([result.state] if marked else []),
            *(write(result.params.get(axis)) for axis in axes),
            *(write(result.values.get(name)) for name in columns),
            *([codes.get(result.code or "", "?")] if mixed else []),
        )
        for result in found
    ]
    return Table(headers, rows, 1 + marked + len(axes))


def _codes(group: Sequence[str], codes: dict[str, str]) -> str:
    return ("mixed " if len(group) > 1 else "") + "/".join(codes[code] for code in group)


def full(value: Any) -> str:
    """A value for a program, with all its digits."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _print(table: Table, style: Style, out: Out) -> None:
    if style == "table" and not table.rows:
        out.line("no cell is verified yet, so there is no table; --all shows the others, too")
    elif style == "table":
        table, doubles = table.without_doubles()
        headers = [header.upper() if header in ("n", "cell", "state", "code") else header for header in table.headers]
        out.table(headers, table.rows, table.named)
        for name, first in doubles:
            out.line(f"{name} is the same as {first} in every row", style="dim")
    elif style == "markdown":
        for row in (table.headers, tuple("---" for _ in table.headers), *table.rows):
            print("| " + " | ".join(value.replace("|", "\\|") for value in row) + " |")
    else:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([table.headers, *table.rows])
        sys.stdout.write(buffer.getvalue())


def _notes(
    made: Sequence[Group],
    found: Sequence[CellResult],
    missing: Sequence[CellView],
    codes: dict[str, str],
    style: Style,
    out: Out,
    alarms: Sequence[str],
) -> None:
    """Prints notes below the table; on stderr if stdout is CSV or Markdown."""
    lines = list(alarms)
    for group in made:
        if group.mixed:
            named = ", ".join(f"{axis} {text(value)}" for axis, value in group.axes.items()) or "all cells"
            lines.append(f"mixed    {named}: averaged over different code, {_codes(group.codes, codes)}")
    unverified = [result for result in found if result.state != "verified"]
    for result in unverified[:LISTED]:
        word = "earlier" if result.note else "unsure "
        lines.append(f"{word}  {result.name}: {result.state}, {result.note or 'not verified'}")
    for cell in missing[:LISTED]:
        word, state = (f"{cell.state} ", "") if cell.state in ("waived", "pruned") else ("missing", cell.state)
        lines.append(f"{word}  {cell.name}: {', '.join(filter(None, (state, cell.note)))}")
    for number, what in ((len(unverified) - LISTED, "not verified"), (len(missing) - LISTED, "missing")):
        if number > 0:
            lines.append(f"… and {count(number, 'cell')} more {what}: sweepctl results --json")
    for line in lines:
        if style == "table":
            out.line(line, style="yellow")
        else:
            print(line, file=sys.stderr)


def _document(
    target: Target,
    over: Sequence[str],
    found: Sequence[CellResult],
    made: Sequence[Group],
    missing: Sequence[CellView],
    columns: Sequence[str],
    following: list[str],
) -> dict[str, Any]:
    return {
        "stack": target.stack,
        "over": list(over),
        "columns": list(columns),
        "cells": [
            {
                "name": result.name,
                "state": result.state,
                "note": result.note,
                "params": dict(result.params),
                "code": result.code,
                "values": {name: _plain(result.values.get(name)) for name in columns if name in result.values},
                "not_finite": [name for name, value in result.values.items() if _plain(value) is None],
            }
            for result in found
        ],
        "groups": [
            {
                "axes": dict(group.axes),
                "n": len(group.cells),
                "of": len(group.wanted),
                "verified": group.verified,
                "cells": list(group.cells),
                "codes": list(group.codes),
                "mixed": group.mixed,
                "values": {name: vars(mean) for name, mean in group.values.items() if name in columns},
            }
            for group in made
        ],
        "missing": [{"name": cell.name, "state": cell.state, "note": cell.note} for cell in missing],
        "next": following,
    }


def _plain(value: Scalar | None) -> Scalar | None:
    """JSON has no NaN: the value becomes null, and its name stands in `not_finite`."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
