"""How a person writes the cells of a sweep, and how parameters are read and spelled.

A parameter is text, a number or a boolean: it ends up in a command line. `"0.1"` and `0.1` are the same parameter,
since `pulumi config set` writes fractions as text; text that a number would not spell the same way ("1.10", "007")
stays text.
"""

import math
import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Param = str | int | float | bool
PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = frozenset({"cell", "name", "out"})
"""Placeholders that the runner fills itself."""
CHECKPOINTS = "checkpoints"
"""One more, which older stack files may have as a parameter's name: then it is that."""
PIN = "code"
"""What pins a listed cell to a version of the code; so no parameter is called so."""
_LONGEST = 4096
"""Characters of one parameter: it stands in a command line, which has its limit, too."""
_SCIENTIFIC = re.compile(r"[+-]?(\d+\.?\d*e[+-]?\d+|\.\d+(e[+-]?\d+)?)", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"-?(\d+|\d+\.\d+|\d+(\.\d+)?e[+-]\d+)")


class CellsConfig(BaseModel):
    """`cells:` of a stack config, shapes only: `sweepstack.core.roster.expand` judges names and values."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    base: dict[str, Any] = Field(default={})
    """parameters of every cell; adding one renames nothing"""
    grid: dict[str, list[Any]] = Field(default={})
    """axis → values; every combination is a cell"""
    zip_: Annotated[dict[str, list[Any]], Field(alias="zip")] = Field(default={})
    """axis → values; the first of each go together, then the second …; combined with `grid`"""
    include: list[dict[str, Any]] = Field(default=[])
    """parameters for some cells of the matrix: `[{lr: 0.03, warmup: 5}]` sets `warmup` where `lr` is 0.03, and
    renames nothing"""
    exclude: list[dict[str, Any]] = Field(default=[])
    """combinations to leave out: `[{lr: 0.1, seed: 2}]`"""
    list_: Annotated[list[dict[str, Any]], Field(alias="list")] = Field(default=[])
    """cells one by one instead of a matrix: `[{name: baseline, lr: 0.1}, {lr: 0.03}]`; `name` may be left out, and
    `code: "a1f3"` pins the cell to the version whose digest begins so (in quotes), `from: CELL` lets it
    begin from the verified artifacts of that cell"""
    add: list[dict[str, Any]] = Field(default=[])
    """further cells beside a matrix, written like those of `list`"""
    drop: dict[str, str] = Field(default={})
    """cell name → reason. Stops the cell and keeps it listed; it needs no waiver. A dropped cell stays in `grid`,
    `list` or `add`"""
    retry: dict[str, Any] = Field(default={})
    """cell name → how often it is asked to run again, as `sweepctl retry` does; the next `pulumi up` brings it, and a
    request can hold it: `{lr0.1-seed0: 1}`. The count only grows; a line that is taken out changes nothing"""
    priority: list[dict[str, Any]] = Field(default=[])
    """which cells start first, by their names and by values of parameters: `[{cell: lr0.3-seed0}, {seed: 0}]`. What a
    line means starts before what later lines mean, and that before all others. It changes no cell, and may be changed
    at any time: what runs goes on"""


def read_param(value: Any) -> Param:
    """`value` as a parameter. Raises ValueError, whose text says what was expected, for anything else."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("expected text without NUL")
        if len(value) > _LONGEST:
            raise ValueError(f"expected {_LONGEST:,} characters at most; put longer text in a file")
        return _number_spelled_as(value)
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f'expected a finite number, or quoted text such as "{value}"')
        return value
    if value is None:
        raise ValueError('expected a value; for the word, quote it: "null"')
    raise ValueError("expected text, a number or a boolean: it ends up in a command line")


def _number_spelled_as(text: str) -> Param:
    if not _NUMBER.fullmatch(text):
        return text
    number: int | float = int(text) if text.lstrip("-").isdigit() else float(text)
    return number if spell(number) == text else text


def number_in(text: Param) -> float | None:
    """The number that a text is when it has an exponent or no digit before its point: 0.0001 for "1e-4", 0.1 for ".1".

    None for other texts ("1.10" may be a version), and for what is no text.
    """
    if not isinstance(text, str) or not _SCIENTIFIC.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def spell(value: Param) -> str:
    """A parameter as a name and a command line show it: 0.1, 0.0001, 1e-05, 20, true, text as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)
