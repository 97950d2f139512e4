"""The table that a sweep is for: what each cell measured, over its axes, and means over seeds.

Pure. A mean is over all cells that were given, never over those that happen to be finite; what is not there is counted.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sweepstack.core.metrics import number
from sweepstack.core.records import Cell
from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.dataclass import dataclass

Scalar = float | int | bool | str
RowT = TypeVar("RowT")
SEED = "seed"
"""The axis that is averaged over where none is named."""


@dataclass(frozen=True)
class CellResult:
    """One cell: its parameters, its state, and every scalar that it left behind. `code`: digest, None where unknown.
    `note`: whose values these are, where they are not those of the cell's last run. `problem`: why its metrics file
    gave none, where a person has to know."""

    name: str
    params: Mapping[str, Any]
    state: str
    values: Mapping[str, Scalar]
    code: str | None = None
    note: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Mean:
    """Over `n` cells; `std` with n - 1, None for one cell. Both are None where a value is not finite."""

    mean: float | None
    std: float | None
    n: int
    not_finite: int = 0


@dataclass(frozen=True)
class Group:
    """Cells that differ in nothing but what is averaged over. `wanted`: all on the roster; `cells`: those here."""

    axes: Mapping[str, Any]
    cells: tuple[str, ...]
    wanted: tuple[str, ...]
    values: Mapping[str, Mean]
    codes: tuple[str, ...]
    verified: int = 0

    @property
    def mixed(self) -> bool:
        """Whether these cells ran different versions of the code."""
        return len(self.codes) > 1


def axes_of(cells: Sequence[Cell]) -> list[str]:
    """The parameters in which cells differ, in the order in which they are written."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.params))
    return [name for name in names if len({_key(cell.params.get(name)) for cell in cells}) > 1]


def scalars(document: Any, prefix: str = "") -> dict[str, Scalar]:
    """Every number, truth value and text of a JSON object, by its dotted key. Lists are no scalars."""
    found: dict[str, Scalar] = {}
    if isinstance(document, dict):
        for key, value in document.items():
            if isinstance(value, dict):
                found |= scalars(value, f"{prefix}{key}.")
            elif isinstance(value, (int, float, str)):
                found[f"{prefix}{key}"] = value
    return found


def combine(files: Iterable[tuple[str, Mapping[str, Scalar]]], axes: Iterable[str]) -> dict[str, Scalar]:
    """The scalars of several files (name → scalars) in one row. A name that two files have gets its file's before it,
    unless both say the same.

    What a cell repeats of its own parameters is left out.
    """
    row: dict[str, Scalar] = {}
    known = set(axes)
    for file, values in files:
        for name, value in values.items():
            if name in known or (name in row and _same(row[name], value)):
                continue
            row[f"{file}:{name}" if name in row else name] = value
    return row


def _same(one: Scalar, other: Scalar) -> bool:
    """Whether two files say the same, NaN included, be it as a number or as text."""
    a, b = number(one), number(other)
    if a is None or b is None:
        return one == other
    return a == b or (math.isnan(a) and math.isnan(b))


LOWER = ("loss", "error", "err", "perplexity", "ppl", "nll", "mse", "rmse", "mae", "wer", "cer", "fid", "seconds")
"""Words of a value's name by which less of it is better."""
OVER_CURVE = ("min", "max", "last")
"""`max:accuracy` is the value of a cell over its whole curve."""


def over_curves(keys: Iterable[str]) -> list[str]:
    """Those of the keys that are values over a cell's whole curve, each once; a sign for the order is left away."""
    bare = [key.removeprefix("-") for key in keys]
    return list(dict.fromkeys(key for key in bare if ":" in key and key.partition(":")[0] in OVER_CURVE))


def lower_is_better(name: str) -> bool:
    """Whether less of it is better: `min:…`, or by a word of its name (`val_loss`, `test.error`); else more is."""
    how, colon, _ = name.partition(":")
    if colon and how in ("min", "max"):
        return how == "min"
    return any(word in LOWER for word in re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))


def ordered(rows: Sequence[RowT], value: Callable[[RowT], Any], *, most_first: bool) -> list[RowT]:
    """The rows by a value of each, numbers before texts; those that are as good stay in their order. What is missing
    or not finite comes last, whichever way."""

    def finite(row: RowT) -> bool:
        one = value(row)
        return one is not None and not (isinstance(one, float) and not math.isfinite(one))

    def key(row: RowT) -> tuple[bool, Any]:
        one = value(row)
        is_text = not isinstance(one, (int, float))
        return is_text, (one if isinstance(one, str) else _key(one)) if is_text else one

    there = sorted((row for row in rows if finite(row)), key=key, reverse=most_first)
    return [*there, *(row for row in rows if not finite(row))]


def columns_of(results: Iterable[CellResult]) -> list[str]:
    """The names of all values, numbers first come first."""
    return list(dict.fromkeys(name for result in results for name in result.values))


def groups(cells: Sequence[Cell], results: Sequence[CellResult], over: Sequence[str]) -> list[Group]:
    """The results by all axes but `over`, in the roster's order. Values that are a number in no cell are left out."""
    axes = [name for name in axes_of(cells) if name not in over]
    by_name = {result.name: result for result in results}
    members: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        members.setdefault(tuple(_key(cell.params.get(name)) for name in axes), []).append(cell)
    made = []
    for together in members.values():
        here = [by_name[cell.name] for cell in together if cell.name in by_name]
        means = {name: mean for name in columns_of(here) if (mean := mean_of(here, name)) is not None}
        made.append(
            Group(
                axes={name: together[0].params.get(name) for name in axes},
                cells=tuple(result.name for result in here),
                wanted=tuple(cell.name for cell in together),
                values=means,
                verified=sum(result.state == "verified" for result in here),
                codes=tuple(dict.fromkeys(result.code for result in here if result.code)),
            )
        )
    return made


def with_mean(made: Sequence[Group], columns: Sequence[str]) -> list[str]:
    """Those of the values that have a mean in a group: texts have none."""
    return [name for name in columns if any(name in group.values for group in made)]


def mean_of(results: Sequence[CellResult], name: str) -> Mean | None:
    """The mean of a value; None where it is a number in no cell."""
    given = [result.values[name] for result in results if name in result.values]
    values = [value for one in given if not isinstance(one, str) and (value := number(one)) is not None]
    if not values:
        return None
    broken = sum(not math.isfinite(value) for value in values)
    if broken:
        return Mean(None, None, len(values), broken)
    return Mean(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def cell_rows(found: Sequence[CellResult], axes: Sequence[str], columns: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each cell, with its values as they are: `cell`, `state`, its axes, its values, `code`. A column that
    would have a name twice gets `param.` or `value.` before it."""
    named = _apart("param", axes, ("cell", "state", "code"))
    measured = _apart("value", columns, ("cell", "state", "code", *named.values()))
    return [
        {
            "cell": one.name,
            "state": one.state,
            **{shown: one.params.get(name) for name, shown in named.items()},
            **{shown: one.values.get(name) for name, shown in measured.items()},
            "code": one.code,
        }
        for one in found
    ]


def _apart(what: str, names: Sequence[str], taken: Sequence[str]) -> dict[str, str]:
    """Names → what their columns are called: one that is taken gets `what.` before it."""
    return {name: f"{what}.{name}" if name in taken else name for name in names}


def mean_rows(made: Sequence[Group], columns: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each group, with all digits: its axes, `n`, `of`, `verified`, `code`, and of each value that
    has a mean in one its `_mean`, `_std`, `_n` and `_not_finite`. `code`: digests, with blanks between them where it is
    mixed. An axis that has a name of these gets `param.` before it."""
    columns = with_mean(made, columns)
    parts = ("mean", "std", "n", "not_finite")
    own = ("n", "of", "verified", "code", *(f"{name}_{part}" for name in columns for part in parts))
    named = _apart("param", list(made[0].axes) if made else [], own)
    rows = []
    for group in made:
        row = {shown: group.axes[name] for name, shown in named.items()}
        row |= {"n": len(group.cells), "of": len(group.wanted), "verified": group.verified}
        row["code"] = " ".join(group.codes)
        for name in columns:
            mean = group.values.get(name, Mean(None, None, 0))
            row |= {f"{name}_{part}": getattr(mean, part) for part in parts}
        rows.append(row)
    return rows


def short_codes(codes: Iterable[str]) -> dict[str, str]:
    """Digests → the shortest beginnings, of four digits or more, that tell them apart."""
    digits = {code: hex_of(code) for code in dict.fromkeys(codes)}
    length = 4
    while length < 64 and len({text[:length] for text in digits.values()}) < len(digits):
        length += 1
    return {code: text[:length] for code, text in digits.items()}


def text(value: Any) -> str:
    """A value in a table: numbers with four digits, "" if it is missing."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def mean_text(mean: Mean | None) -> str:
    """`0.9123 ± 0.0042`; `nan (1 of 3)` if one value is not finite."""
    if mean is None:
        return ""
    if mean.mean is None:
        return f"nan ({mean.not_finite} of {mean.n})"
    return f"{mean.mean:.4g}" + ("" if mean.std is None else f" ± {mean.std:.2g}")


def n_text(group: Group) -> str:
    """`3`; `2/3` if one is missing; with a mark if some are not verified."""
    here = str(len(group.cells)) if len(group.cells) == len(group.wanted) else f"{len(group.cells)}/{len(group.wanted)}"
    return here if group.verified == len(group.cells) else f"{here} ({group.verified} verified)"


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
