"""Rows of a cell's metrics file, whose format its name tells.

Text is read in `core.metrics`, other formats by the extension `formats`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from sweepstack.core.extensions import module_of, not_here, part_of
from sweepstack.core.extras import lacks
from sweepstack.core.metrics import Row, is_csv, parse_rows
from sweepstack.onbox.common.errors import ConfigError, No

Kind = Literal["lines", "table", "tensorboard", "trainer", "trackio", "wandb"]
X: dict[Kind, str] = {"tensorboard": "step", "trackio": "step"}
"""Kind → the one column that can be its horizontal axis."""
_ONE: tuple[Kind, ...] = ("lines", "table", "trackio", "wandb")
"""Of which a cell's curve is in one file; of the others their reader says what several are."""
VERSION = re.compile(r"\bversion_\d+(?=/)")
"""A folder of Lightning's loggers: a run that goes on begins the next one."""
_NEEDS: dict[Kind, str] = {"tensorboard": "tensorboard"}
"""Kind → the extra that reads it."""


def kind_of(file: str) -> Kind:
    """Whose format a metrics file has: JSON lines, unless its name is that of another one."""
    name = file.rpartition("/")[2].lower()
    if ".tfevents." in name:
        return "tensorboard"
    if name == "trainer_state.json":
        return "trainer"
    if name.endswith(".wandb"):
        return "wandb"
    if name.endswith(".db"):
        return "trackio"
    return "table" if is_csv(name) else "lines"


def is_text(file: str) -> bool:
    """Whether it has a row a line, so that a part of it can be read alone."""
    return kind_of(file) in ("lines", "table")


def has_holes(file: str) -> bool:
    """Whether a row need not have each column, as where a loss is logged oftener than a score."""
    return kind_of(file) != "lines"


def missing_reader(file: str) -> str:
    """What has to be installed here before the file can be read, and how; "" where all is there."""
    if is_text(file):
        return ""
    if module_of("formats", "curves") is None:
        return f"metrics.file {file} needs {not_here('formats')}"
    extra = _NEEDS.get(kind_of(file))
    problem = lacks(extra) if extra is not None else ""
    return f"metrics.file {file} can't be read: {problem}" if problem else ""


def several(names: Sequence[str]) -> No:
    """The error for several files where a metrics file can be one alone."""
    return No(f"{', '.join(names[:4])}: metrics.file has to mean one of them")


def by_number(path: str) -> list[tuple[int, str]]:
    """A key to sort by, so that checkpoint-9 comes before checkpoint-10."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", path)]


def rows_of(file: str, parts: Sequence[tuple[str, bytes]]) -> list[Row]:
    """The rows of one try: `file` as the stack file names it, `parts` the name and the content of each file that this
    means; of a curve in several versions, those of the last one come last. A last record that is not whole is left out.
    Raises ConfigError where its reader is not installed, and No, with the name of the file, for one that is damaged,
    and for several where one is meant."""
    if kind_of(file) in _ONE and len({VERSION.sub("", name) for name, _ in parts}) > 1:
        raise several([name for name, _ in parts])
    parts = sorted(parts, key=lambda part: by_number(part[0]))
    if is_text(file):
        return [row for name, data in parts for row in parse_rows(data, name)]
    problem = missing_reader(file)
    if problem:
        raise ConfigError(problem)
    found: list[Row] = part_of("formats", "curves").rows(kind_of(file), parts)
    return found
