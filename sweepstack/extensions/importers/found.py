"""What an importer found in a file, before it becomes a stack file.

Names of parameters stay as the other tool has them until `Found.slot` makes one that a stack file takes, and hands it
back as the placeholder that stands in `run`. What the stack file can't say is in `lost`, each with its line.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from collections.abc import Iterable
from typing import Any, TypeVar

from sweepstack.core.cells import CHECKPOINTS, PIN, RESERVED
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import No

MOST_ROWS = 100_000
"""Cells that a roster may have; an importer stops there."""
T = TypeVar("T")
_TAKEN = RESERVED | {CHECKPOINTS, PIN}
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%+-]*")
_BRACE = re.compile(r"\{(?=[A-Za-z_])")


@dataclass(frozen=True)
class Lost:
    """Something that the stack file does not say. `line` counts from 1; 0 where the file has no lines."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"


@dataclass
class Found:
    """The sweep of one file.

    `grid`: axis → values; `rows`: cells one by one, beside it never both; `fixed`: what all cells have; all by the
    names of a stack file. `search`: what draws cells, as the stack file's `search:` has it; `further`: what
    could draw more of them, which a note tells. `run`: the command with its
    placeholders, "" where the file has none. `job`: further keys of `job:`. `program`: the script that `run` starts.
    """

    kind: str
    file: str
    run: str = ""
    program: str = ""
    grid: dict[str, list[Any]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    fixed: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    further: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    max_price: float | None = None
    workers: int | None = None
    lost: list[Lost] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def lose(self, line: int, what: str) -> None:
        """Names what is not carried."""
        self.lost.append(Lost(self.file, line, what))

    def note(self, text: str) -> None:
        """Tells something that is carried in another way; once."""
        if text not in self.notes:
            self.notes.append(text)

    def name(self, original: str) -> str:
        """The parameter's name in the stack file: the same for the same original, another for each other one."""
        if original not in self.names:
            safe = re.sub(r"\W", "_", original.lstrip("+-"), flags=re.ASCII).strip("_") or "value"
            safe = f"p_{safe}" if safe[0].isdigit() or safe in _TAKEN else safe
            taken = set(self.names.values())
            self.names[original] = next(
                name
                for name in itertools.chain([safe], (f"{safe}_{n}" for n in itertools.count(2)))
                if name not in taken
            )
        return self.names[original]

    def slot(self, original: str) -> str:
        """The placeholder of a parameter."""
        return f"{{{self.name(original)}}}"

    def axis(self, original: str, values: Iterable[Any]) -> None:
        """One more axis of the grid. A value that stands twice is one cell."""
        self.grid[self.name(original)] = list(dict.fromkeys(values))

    def filled(self, original: str, text: str) -> str:
        """A text as it is, for where placeholders are filled and no shell reads: one with a brace that would begin a
        placeholder is the value of a parameter that all cells have."""
        if not re.search(r"(?<!\$)\{[A-Za-z_]", text):
            return text
        self.fixed[self.name(original)] = text
        return self.slot(original)

    @property
    def count(self) -> int:
        """How many cells it has, without those that are drawn."""
        return len(self.rows) or math.prod(map(len, self.grid.values()))

    @property
    def first(self) -> dict[str, Any]:
        """The parameters of the first of them."""
        row = self.rows[0] if self.rows else {axis: values[0] for axis, values in self.grid.items() if values}
        return self.fixed | row

    def fill_gaps(self, why: str) -> None:
        """Gives cells that lack a parameter of others an empty text for it, and says so."""
        gaps = [name for name in self.names.values() if any(name not in row for row in self.rows)]
        if gaps:
            self.lose(0, f"{', '.join(gaps)}: {why}; give a default in cells.base")
            self.fixed |= dict.fromkeys(gaps, "")

    def settle(self) -> None:
        """Writes rows that are a whole grid as that, and what is the same in all of them as fixed. Raises No for more
        cells than a roster may have."""
        if self.count > MOST_ROWS:
            raise No(f"{self.file}: {self.count:,} cells, and a roster has {MOST_ROWS:,} at most")
        if not self.rows:
            return
        keys = list(self.rows[0])
        if any(list(row) != keys for row in self.rows):
            return
        columns = {key: list(dict.fromkeys(row[key] for row in self.rows)) for key in keys}
        tuples = {tuple(row[key] for key in keys) for row in self.rows}
        if len(tuples) < len(self.rows):
            self.lose(0, f"{len(self.rows) - len(tuples)} rows that stand twice are one cell each")
            self.rows = [
                dict(zip(keys, row, strict=True)) for row in dict.fromkeys(tuple(row.values()) for row in self.rows)
            ]
        if math.prod(map(len, columns.values())) == len(tuples) and len(self.rows) > 1:
            self.grid |= {key: values for key, values in columns.items() if len(values) > 1}
            self.fixed |= {key: values[0] for key, values in columns.items() if len(values) == 1}
            self.rows = []


def few(values: Iterable[T], where: str) -> list[T]:
    """The same values, read one by one. Raises No at the first for which a roster has no room."""
    made = list(itertools.islice(values, MOST_ROWS + 1))
    if len(made) > MOST_ROWS:
        raise No(f"{where}: more values than the {MOST_ROWS:,} cells that a roster has at most")
    return made


def drawn(low: Any, high: Any, *, whole: bool, log: bool, step: Any = None) -> dict[str, Any]:
    """An axis of a search between two ends. A whole number goes by steps of 1 anyway, a logarithm by none."""
    kind = ("log_int" if log else "int") if whole else ("log_uniform" if log else "uniform")
    steps = step and not log and not (whole and step == 1)
    return {kind: [low, high], **({"step": step} if steps else {})}


def param(value: Any) -> Any:
    """A value as a stack file takes it: text, a number or a boolean; anything else as the JSON of it."""
    if isinstance(value, str | int | float):
        return value
    return "null" if value is None else json.dumps(value)


def quoted(text: str) -> str:
    """A text as a word for the shell, as it is: a brace of it begins no placeholder."""
    if _PLAIN.fullmatch(text):
        return text or "''"
    return _BRACE.sub("{''", shlex.quote(text))  # inside the quotes: they end and begin again
