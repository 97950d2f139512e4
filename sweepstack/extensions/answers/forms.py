"""The table of `sweepctl results` as LaTeX and Parquet: `results --as latex`, `--as parquet`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.cli.output import YES, Out
from sweepstack.core.extras import lacks
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.onbox.common.units import count

STDOUT = "-"
PARQUET = b"PAR1"
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "<": r"$<$",
    ">": r"$>$",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}


def latex(headers: Sequence[str], rows: Sequence[Sequence[str]], named: int, best: tuple[int, int] | None) -> int:
    """Prints a `tabular` with the rules of the package booktabs. `named`: so many columns at the left name a row; the
    others are values. `best`: the row and column of the value that is set in bold."""
    lines = [[_escaped(value) for value in row] for row in rows]
    if best is not None:
        lines[best[0]][best[1]] = rf"\textbf{{{lines[best[0]][best[1]]}}}"
    body = "".join(f"{' & '.join(line)} \\\\\n" for line in lines)
    head = f"{' & '.join(map(_escaped, headers))} \\\\\n"
    columns = "l" * named + "r" * (len(headers) - named)
    sys.stdout.write(
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )
    return YES


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text.replace("\n", " "))


def parquet(rows: Sequence[Mapping[str, Any]], file: str, out: Out) -> int:
    """Writes a Parquet file, whole or not at all; `-`: to stdout. An earlier Parquet file is replaced, no other one.

    Raises Unsure where pyarrow is not installed, No where the file can't be written.
    """
    if missing := lacks("parquet"):
        raise Unsure(f"Parquet can't be written: {missing}")
    import pyarrow
    import pyarrow.parquet

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _one_kind([row.get(name) for row in rows]) for name in names}
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    data = sink.getvalue().to_pybytes()
    if file == STDOUT:
        sys.stdout.buffer.write(data)
        return YES
    path = Path(file)
    try:
        if path.exists() and path.read_bytes()[:4] != PARQUET:
            raise No(f"{file} is there, and no Parquet file: name another one with -o, or move it away")
        write_atomically(path, data)
    except OSError as error:
        raise No(f"{file} can't be written: {error.strerror}. Name another file with -o") from error
    out.line(f"{file}: {count(len(rows), 'row')}")
    return YES


def _one_kind(values: Sequence[Any]) -> list[Any]:
    """A column of numbers, of truth values or of texts: what is mixed or a list is written as JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or (len(kinds) == 1 and kinds <= {bool, str}):
        huge = int in kinds and (float in kinds or any(abs(value) >= 1 << 63 for value in values if value is not None))
        return [None if value is None else float(value) for value in values] if huge else list(values)
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
