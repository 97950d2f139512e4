"""The order of the table of `sweepctl results`, and its best row: `--sort KEY` and `--best NAME`.

A table's rows are cells, or groups of cells that are averaged over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sweepstack.core.results import (
    CellResult,
    Group,
    Mean,
    lower_is_better,
    mean_of,
    mean_text,
    n_text,
    ordered,
    over_curves,
    text,
)
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No
from sweepstack.onbox.common.units import count

SAYS = ("highest", "lowest")
Line = CellResult | Group
LineT = TypeVar("LineT", CellResult, Group)


@dataclass(frozen=True)
class Wanted:
    """`--best NAME`: the value, and whether the least of it is the best."""

    name: str
    lowest: bool

    @classmethod
    def read(cls, word: str) -> Wanted:
        """`accuracy`, or `lowest:NAME` and `highest:NAME` where the name alone does not say which is better."""
        says, colon, name = word.partition(":")
        if colon and says in SAYS:
            return cls(name, says == "lowest")
        return cls(word, lower_is_better(word))

    @property
    def says(self) -> str:
        return SAYS[self.lowest]


@dataclass(frozen=True)
class Best:
    """The first row by a value; `as_good`: how many others have the same."""

    wanted: Wanted
    row: Line
    value: Mean
    as_good: int = 0

    @property
    def cells(self) -> tuple[str, ...]:
        return self.row.cells if isinstance(self.row, Group) else (self.row.name,)

    def lines(self) -> list[str]:
        """What is said of it, below the table."""
        shown, wanted = mean_text(self.value), self.wanted
        if isinstance(self.row, CellResult):
            found = [f"best     {self.row.name}: {wanted.name} {shown}, the {wanted.says} of one cell"]
            found += [f"unsure   {self.row.name} is {self.row.state}"] if self.row.state != "verified" else []
        else:
            named = ", ".join(f"{axis} {text(value)}" for axis, value in self.row.axes.items()) or "all cells"
            found = [f"best     {named}: {wanted.name} {shown}, n {n_text(self.row)}, the {wanted.says} mean"]
            found.append(f"         of {', '.join(self.cells)}")
            if self.value.n < len(self.row.wanted):
                found.append(f"note     {self.value.n} of its {count(len(self.row.wanted), 'cell')} have this value")
        return found + ([f"note     {count(self.as_good, 'other row')} as good"] if self.as_good else [])

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `best`."""
        name = {"name": self.row.name} if isinstance(self.row, CellResult) else {"axes": dict(self.row.axes)}
        of = len(self.row.wanted) if isinstance(self.row, Group) else 1
        return {
            **name,
            "value": self.wanted.name,
            "by": self.wanted.says,
            **vars(self.value),
            "of": of,
            "cells": list(self.cells),
            "as_good": self.as_good,
        }


def no_value(option: str, name: str, columns: Sequence[str]) -> No:
    """The error for a value that no cell here has; a value over a curve is named by what nothing logged."""
    why = f"no cell here logged {name.partition(':')[2]}" if over_curves([name]) else "no such value"
    has = f"there are {', '.join(columns)}" if columns else "there are none yet"
    return No(f"{option} {name}: {why} ({has}){did_you_mean(name, columns)}")


def by_key(rows: Sequence[LineT], key: str, axes: Sequence[str], columns: Sequence[str]) -> list[LineT]:
    """The rows by an axis or a value, or by `n`, `cell` or `state`; `-KEY`: the most first. Raises No for another."""
    name = key.removeprefix("-")
    known = [*axes, *columns, *(("n",) if rows and isinstance(rows[0], Group) else ("cell", "state"))]
    if rows and name not in known:
        raise No(f"--sort {key}: no such axis or value (there are {', '.join(known)}){did_you_mean(name, known)}")

    def value(row: LineT) -> Any:
        if isinstance(row, Group):
            if name in row.axes:
                return row.axes[name]
            mean = row.values.get(name)
            return len(row.cells) if name == "n" else mean.mean if mean is not None else None
        if name in row.params:
            return row.params[name]
        return {"cell": row.name, "state": row.state}.get(name) or row.values.get(name)

    return ordered(rows, value, most_first=key.startswith("-"))


def best_first(rows: Sequence[LineT], wanted: Wanted, columns: Sequence[str]) -> tuple[list[LineT], Best]:
    """The rows by a value, the best one first. Raises No where no row has a finite one."""
    if wanted.name not in columns:
        raise no_value("--best", wanted.name, columns)
    found = ordered(rows, lambda row: value_of(row, wanted.name).mean, most_first=not wanted.lowest)
    values = [value_of(row, wanted.name) for row in found]
    if not values or values[0].mean is None:
        raise No(f"--best {wanted.name}: no row has a finite one")
    same = sum(one.mean == values[0].mean for one in values[1:])
    return found, Best(wanted, found[0], values[0], same)


def value_of(row: Line, name: str) -> Mean:
    """The value of a row; of one cell it is its own mean. A truth value of a cell counts as 0 or 1."""
    if isinstance(row, CellResult) and isinstance(row.values.get(name), bool):
        return Mean(float(row.values[name]), None, 1)
    mean = mean_of([row], name) if isinstance(row, CellResult) else row.values.get(name)
    return mean or Mean(None, None, 0)
