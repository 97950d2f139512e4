"""The text of a stack file for what was found. Comments name what is not carried, each with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweepstack.config.edit.stack_file import flow
from sweepstack.core.curve_files import kind_of
from sweepstack.extensions.importers.found import Found
from sweepstack.extensions.importers.trial import Seen

WIDTH = 110


def scored(found: Found, seen: Seen) -> None:
    """Has `metrics` name the column that a search goes by; what is not seen is left to a person."""
    metric = found.search.get("metric")
    if metric is None or metric in (seen.metrics or {}).get("y", ()):
        return
    known = seen.metrics or {"file": "metrics.jsonl", "x": "step", "y": []}
    seen.metrics = {**known, "y": [*known["y"], metric]}
    says = "a line of JSON a step in" if kind_of(known["file"]) == "lines" else "what is logged to"
    seen.edit.append(f"metrics: the search goes by {metric}: {says} {{out}}/{known['file']} has to say it")


def stack_text(
    name: str,
    found: Found,
    artifacts: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, Any] | None,
    edit: Sequence[str],
) -> str:
    """The stack file. `edit`: what a person still has to say."""
    lines = [f"# {name}: from {found.file} ({found.kind}). Preview it (free): pulumi preview --stack {name}"]
    for title, texts in (("edit", edit), ("not carried", found.lost), ("note", found.notes)):
        lines += [f"# {title}: {line}" for text in texts for line in [str(text).replace("\n", " ")]]
    job = dict(found.job)
    lines += [
        "config:",
        "  sweepstack:sweep:",
        "    job:",
        f"      workdir: {flow(job.pop('workdir')) if 'workdir' in job else '.'}",
    ]
    lines += _text_lines("      run", found.run)
    if "setup" in job:
        lines += _text_lines("      setup", job.pop("setup"))
    lines.append(f"      resources: {flow(found.resources or {'cpu': 1})}")
    lines += [f"      {key}: {flow(value)}" for key, value in job.items()]
    lines += ["    cells:"]
    if found.fixed:
        lines.append(f"      base: {flow(found.fixed)}")
    if found.rows:
        lines += ["      list:", *(f"        - {flow(row)}" for row in found.rows)]
    elif found.grid:
        lines += ["      grid:", *(f"        {key}: {flow(values)}" for key, values in found.grid.items())]
    elif not found.search:
        lines += ["      list:", "        - {name: run}"]
    if lines[-1] == "    cells:":
        lines[-1] = "    cells: {}"
    if found.search:
        lines += ["    search:", "      axes:"]
        lines += [f"        {key}: {flow(axis)}" for key, axis in found.search["axes"].items()]
        lines += [f"      {key}: {flow(value)}" for key, value in found.search.items() if key != "axes"]
    lines += ["    artifacts:", *(f"      {flow(path)}: {flow(spec)}" for path, spec in artifacts.items())]
    if metrics:
        lines.append(f"    metrics: {flow(metrics)}")
    if found.max_price is not None:
        lines.append(f"    max_price: {found.max_price}")
    box = {"want": "running"} | ({"workers": found.workers} if found.workers else {})
    lines += ["    candidates: [local]", f"    boxes: {{box-0: {flow(box)}}}", f"    pull_to: ~/sweeps/{name}", ""]
    return "\n".join(lines)


def _text_lines(key: str, text: str) -> list[str]:
    """A command: on its line, folded where it is long, or as it is where it has several lines."""
    indent = " " * (len(key) - len(key.lstrip()) + 2)
    if "\n" in text:
        return [f"{key}: |-", *(f"{indent}{line}".rstrip() for line in text.splitlines())]
    rows, row = [], ""
    for word in re.split(r"(?<=\S) (?=\S)", text):
        if row and len(row) + len(word) > WIDTH - len(indent):
            rows.append(row)
            row = word
        else:
            row = f"{row} {word}" if row else word
    rows.append(row)
    if len(rows) == 1 and re.fullmatch(r"[\w./][^#:]*", text) and not text.endswith(" "):
        return [f"{key}: {text}"]
    return [f"{key}: >-", *(f"{indent}{row}" for row in rows)]
