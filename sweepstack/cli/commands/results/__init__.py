"""`sweepctl results`: one table of all cells; by default only verified cells count."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from sweepstack.cli import completion
from sweepstack.cli.commands.results.forms import comma_separated, markdown
from sweepstack.cli.commands.results.order import Best, Line, LineT, Wanted, best_first, by_key, no_value
from sweepstack.cli.extension import of_extension
from sweepstack.cli.options import AsJson, Evidence, Stack, one_of
from sweepstack.cli.output import NO, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.cli.render import own_stops
from sweepstack.core import trackers
from sweepstack.core.records import SETTLED, Cell
from sweepstack.core.results import (
    SEED,
    CellResult,
    Group,
    Scalar,
    axes_of,
    cell_rows,
    columns_of,
    groups,
    mean_rows,
    mean_text,
    n_text,
    over_curves,
    short_codes,
    text,
    with_mean,
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

FORMS = ("table", "csv", "markdown", "latex", "parquet", "plot", "html")
LISTED = 20
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


@dataclass(frozen=True)
class Asked:
    """The order of the rows, which is the best, and the file that is written."""

    sort: str | None = None
    best: Wanted | None = None
    output: str = ""


Cells = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CELL",
        help="Of a plot: names or patterns; by default the cells that run. Of --compare: two names.",
        autocompletion=completion.cells,
    ),
]
Form = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="csv|markdown|latex|parquet|plot|html",
        help="The table for other programs; curves of cells; one page with all of it.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Of html (report-STACK.html) and parquet (results-STACK.parquet); `-`: stdout.",
    ),
]
Over = Annotated[
    list[str] | None,
    typer.Option(metavar="AXIS", help="Average over this axis (default: seed); `none`: a row for each cell."),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Only this value, or `max:NAME`, `min:NAME`, `last:NAME` of a cell's curve; of a plot any key of the "
        "metrics file. Repeatable.",
    ),
]
Sort = Annotated[
    str | None, typer.Option(metavar="KEY", help="Order the rows by an axis or a value; `-KEY`: the most first.")
]
BestBy = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The best row first, and said: the most of it, of a loss or an error the least."),
]
Compare = Annotated[bool, typer.Option("--compare", help="Two cells: their configs, curves, code and environments.")]
Everything = Annotated[bool, typer.Option("--all", help="Also cells that are not verified; they are marked.")]


def command(
    cells: Cells = None,
    form: Form = "table",
    output: Output = None,
    over: Over = None,
    metric: Metrics = None,
    sort: Sort = None,
    best: BestBy = None,
    compare: Compare = False,
    all_: Everything = False,
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> int:
    """Print all cells: axes, values, mean ± std over seeds. Exit 1: a cell is missing.

    As `plot` it draws what cells logged; as `html` it writes one page: cells over time, cost, machines, results,
    curves, evidence, decisions.
    """
    options = {"over": over, "all": all_, "sort": sort, "best": best, "metric": metric, "output": output}
    _refuse(form, cells or (), options, compare=compare, json=json)
    target, out = Target.find_to_read(stack, evidence), Out(as_json=json)
    if compare:
        return of_extension("answers", "compare", "results --compare")(target, *(cells or ()), metric or (), out)
    if form == "plot":
        from sweepstack.cli.commands.results.plot import curves

        return curves(target, cells or (), metric or (), out)
    if form == "html":
        return of_extension("pages", "page", "results --as html")(target, output, out)
    asked = Asked(sort, Wanted.read(best) if best else None, output or f"results-{target.stack}.parquet")
    return results(target, asked, over or (), metric or (), all_, form, out)


def _refuse(form: str, cells: Sequence[str], given: Mapping[str, Any], *, compare: bool, json: bool) -> None:
    """Raises Unsure for options that don't go together. `given`: option → its value."""
    one_of(form, *FORMS, option="--as")
    of_table = any(given[option] for option in ("over", "all", "sort", "best"))
    if form in ("plot", "html") and of_table:
        raise Unsure("--over, --all, --sort and --best are for the table, --metric for the table and a plot")
    if form == "html" and given["metric"]:
        raise Unsure("--metric is for the table and a plot")
    if (cells and form != "plot" and not compare) or (given["output"] and form not in ("html", "parquet")):
        raise Unsure("cells are named for --as plot and --compare, a file with -o for --as html and parquet")
    if form not in ("table", "plot", "html") and json:
        raise Unsure("--as and --json are two ways to write one table: use one of them")
    if compare and (len(cells) != 2 or form != "table" or of_table):
        raise Unsure("--compare takes the names of two cells, and of the other options --metric alone")


def results(
    target: Target, asked: Asked, over: Sequence[str], metrics: Sequence[str], everything: bool, form: str, out: Out
) -> int:
    """Exit 0 if every cell of the roster is verified or otherwise settled; else 1."""
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
        curves = over_curves([*metrics, asked.sort or "", asked.best.name if asked.best else ""])
        found, absent = read_results(sources, snapshot, cells, states, everything, curves)
    columns = _columns(found, metrics, [] if metrics else curves)
    made = groups(cells, found, averaged)
    if averaged:
        made, best = _in_order(made, asked, axes, columns_of(found))
    else:
        found, best = _in_order(found, asked, axes, columns_of(found))
    lines: Sequence[Line] = made if averaged else found
    if best is not None:
        columns = list(dict.fromkeys([*columns, best.wanted.name]))
    codes = short_codes(result.code for result in found if result.code)
    missing = [cell for cell in view.cells if cell.name in absent]
    following = [f"sweepctl verify {target.named()}"] if target.evidence else list(view.next) if missing else []
    document = _document(target, averaged, found, made, missing, columns, following)
    tracked = trackers.links(sources.state)
    more = {"best": best.as_json() if best else None, "alarms": own_stops(view)}
    out.document(document | more | ({"trackers": tracked} if tracked else {}))
    if not out.as_json:
        if form == "parquet":
            rows = mean_rows(made, columns) if averaged else cell_rows(found, axes, columns)
            of_extension("answers", "forms", "results --as parquet", "parquet")(rows, asked.output, out)
        elif not averaged:
            table = _each(cells, found, columns, codes, everything, text if form != "csv" else full)
            _print(table, form, best, lines, out)
        else:
            _print((_averages if form != "csv" else _spreadsheet)(made, columns, codes), form, best, lines, out)
        _notes(made if averaged else [], found, missing, codes, best, form, out, own_stops(view))
        if form == "table":
            for line, how in trackers.lines(tracked):
                out.line(line, style=how)
            out.next(following)
    return YES if all(cell.state in SETTLED for cell in view.cells) else NO


def _in_order(
    rows: Sequence[LineT], asked: Asked, axes: Sequence[str], columns: Sequence[str]
) -> tuple[list[LineT], Best | None]:
    """The rows as they are asked for, and the best of them, where that is asked for."""
    lines, best = list(rows), None
    if asked.best is not None:
        lines, best = best_first(lines, asked.best, columns)
    return by_key(lines, asked.sort, axes, columns) if asked.sort is not None else lines, best


def _over(over: Sequence[str], axes: Sequence[str]) -> list[str]:
    """The axes to average over: those named, else `seed` if there is one; empty for `none`."""
    if list(over) == [NONE]:
        return []
    for name in over:
        if name not in axes:
            named = f"axes are {', '.join(axes)}" if axes else "the cells differ in nothing"
            raise No(f"--over {name}: no axis ({named}; none: a row a cell){did_you_mean(name, axes)}")
    return list(dict.fromkeys(over)) or [name for name in axes if name == SEED]


def _columns(found: Sequence[CellResult], wanted: Sequence[str], more: Sequence[str]) -> list[str]:
    """Those that are wanted, else all; `more`: values over curves that only the order asks for."""
    columns = columns_of(found)
    for name in wanted:
        if name not in columns:
            raise no_value("--metric", name, columns)
    return list(dict.fromkeys(wanted)) or list(dict.fromkeys([*columns, *(name for name in more if name in columns)]))


# Printing


def _averages(made: Sequence[Group], columns: Sequence[str], codes: dict[str, str]) -> Table:
    axes = list(made[0].axes) if made else []
    shown = with_mean(made, columns)
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
    rows = [
        row | {"code": _codes(group.codes, codes)} for group, row in zip(made, mean_rows(made, columns), strict=True)
    ]
    return Table(tuple(rows[0]), [tuple(map(full, row.values())) for row in rows])


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


def _print(table: Table, form: str, best: Best | None, lines: Sequence[Line], out: Out) -> None:
    if form == "table" and not table.rows:
        out.line("no cell is verified yet, so there is no table; --all shows the others, too")
    elif form == "table":
        table, doubles = table.without_doubles()
        headers = [header.upper() if header in ("n", "cell", "state", "code") else header for header in table.headers]
        out.table(headers, table.rows, table.named)
        for name, first in doubles:
            out.line(f"{name} is the same as {first} in every row", style="dim")
    elif form == "markdown":
        sys.stdout.write(markdown(table.headers, table.rows))
    elif form == "latex":
        bold = (lines.index(best.row), table.headers.index(best.wanted.name)) if best is not None else None
        write = of_extension("answers", "forms", "results --as latex", "latex")
        write(table.headers, table.rows, table.named, bold)
    else:
        sys.stdout.write(comma_separated(table.headers, table.rows))


def _notes(
    made: Sequence[Group],
    found: Sequence[CellResult],
    missing: Sequence[CellView],
    codes: dict[str, str],
    best: Best | None,
    form: str,
    out: Out,
    alarms: Sequence[str],
) -> None:
    """Prints notes below the table; on stderr if stdout is for another program."""
    if best is not None:
        for line in best.lines():
            out.line(line) if form == "table" else print(line, file=sys.stderr)
    lines = [*alarms, *(f"metrics  {result.name}: {result.problem}" for result in found if result.problem)][
        : LISTED + len(alarms)
    ]
    for group in made:
        if group.mixed:
            named = ", ".join(f"{axis} {text(value)}" for axis, value in group.axes.items()) or "all cells"
            lines.append(f"mixed    {named}: averaged over different code, {_codes(group.codes, codes)}")
    unverified = [result for result in found if result.state != "verified"]
    for result in unverified[:LISTED]:
        word = "earlier" if result.note else "unsure "
        lines.append(f"{word}  {result.name}: {result.state}, {result.note or 'not verified'}")
    for cell in missing[:LISTED]:
        word, state = (f"{cell.state:7}", "") if cell.state in SETTLED else ("missing", cell.state)
        lines.append(f"{word}  {cell.name}: {', '.join(filter(None, (state, cell.note)))}")
    for number, what in ((len(unverified) - LISTED, "not verified"), (len(missing) - LISTED, "missing")):
        if number > 0:
            lines.append(f"… and {count(number, 'cell')} more {what}: sweepctl results --json")
    for line in lines:
        if form == "table":
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
                **({"problem": result.problem} if result.problem else {}),
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
