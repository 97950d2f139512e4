"""Tables of cells: CSV and TSV, a queue file (`<cfg> <task> [epochs]`), and a file of command lines."""

from __future__ import annotations

import csv
import io
import re
import shlex
from typing import Any

from sweepstack.extensions.importers.found import Found, quoted
from sweepstack.extensions.importers.shell_script import by_words, typed
from sweepstack.onbox.common.errors import No

START = re.compile(r"(?i)#?\s*start_index\s*[:=]\s*(\d+)")


def read_csv(text: str, shown: str) -> Found:
    """A header with the names of parameters, then a cell a row. An empty field is a parameter that the cell has not."""
    found = Found("table", shown)
    tab = "\t" if shown.endswith(".tsv") else ","
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")), delimiter=tab)
    rows = [(reader.line_num, row) for row in reader if any(field.strip() for field in row)]
    if len(rows) < 2:
        raise No(f"{shown}: expected a header and a row for each cell")
    header = [name.strip() for name in rows[0][1]]
    if "" in header or len(set(header)) < len(header):
        raise No(f"{shown}:{rows[0][0]}: expected another name for each column")
    special = {name: found.name(name) for name in header if name != "name"}
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise No(f"{shown}:{line}: {len(row)} fields, and the header has {len(header)}")
        cell: dict[str, Any] = {}
        for name, value in zip(header, row, strict=True):
            if value.strip():
                cell[special.get(name, name)] = typed(value.strip())
        found.rows.append(cell)
    options = " ".join(f"{quoted(f'--{name}')} {found.slot(name)}" for name in special)
    found.fill_gaps("empty in some rows")
    found.run = f"python train.py {options}"
    found.note("a table names no script: the first words of `run` are a guess")
    return found


def is_queue(text: str) -> bool:
    """Whether each line is `<config file> <task> [epochs]`."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and all(
        2 <= len(words) <= 3
        and re.search(r"\.(ya?ml|json|toml|py)$", words[0])
        and (len(words) < 3 or words[2].isdigit())
        for words in lines
    )


def read_queue(text: str, shown: str) -> Found:
    """The cells of a queue file. A `start_index` in a comment says how many lines were done before: they are cells,
    too, and that is told."""
    found = Found("queue file", shown)
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := START.match(line.strip()):
            found.lose(
                number, f"start_index {match[1]}: which cells are done is what the evidence says; all are cells here"
            )
        elif line.strip() and not line.lstrip().startswith("#"):
            rows.append((number, line.split()))
    epochs = [len(words) > 2 for _, words in rows]
    for number, words in rows:
        row: dict[str, Any] = {found.name("cfg"): words[0], found.name("task"): words[1]}
        if any(epochs):
            row[found.name("epochs")] = int(words[2]) if len(words) > 2 else 20
            if len(words) < 3:
                found.lose(number, "no epochs: the wrapper's default stands there, 20")
        found.rows.append(row)
    run = f"python train.py --config {found.slot('cfg')} --task {found.slot('task')}"
    found.run = run + (f" --epochs {found.slot('epochs')}" if any(epochs) else "")
    found.note("a queue names no script (run_one.sh does): the first words of `run` are a guess")
    return found


def is_commands(text: str) -> bool:
    """Whether each line is a command of its own."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and all(
        re.match(r"(\S+=\S* )*(\S*python\S*|\./\S+|bash|sh|torchrun|accelerate)\s", line) for line in lines
    )


def read_commands(text: str, shown: str) -> Found:
    """A cell for each line; what differs between them is its parameters."""
    found = Found("list of commands", shown)
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    by_words(found, [[shlex.split(line)] for line in lines])
    return found
