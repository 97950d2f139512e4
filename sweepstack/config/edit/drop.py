"""Puts a cell into `cells.drop` of a stack file, by line: every other byte stays as a person wrote it."""

from __future__ import annotations

import json
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.edit.text import ROOT_KEY
from sweepstack.onbox.common.errors import ConfigError

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*([.+][A-Za-z0-9_-]+)*")
"""Names that YAML reads as text without quotes; others are quoted."""
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def write_drop(file: StackFile, cell: str, reason: str) -> bool:
    """Writes `cell: reason` into `cells.drop`. False when it stands there already. Idempotent.

    Raises ConfigError, and then nothing was written.
    """

    def change(text: str) -> str:
        return _inserted(text, cell, reason)

    def wanted(sweep: dict[str, Any]) -> dict[str, Any]:
        cells = dict(sweep["cells"])
        cells["drop"] = {**(cells.get("drop") or {}), cell: reason}
        return {**sweep, "cells": cells}

    return file.edit(change, wanted, f"cells: {{drop: {{{cell}: {json.dumps(reason, ensure_ascii=False)}}}}}")


def _inserted(text: str, cell: str, reason: str) -> str:
    """`text` with one more entry, by the style that stands there."""
    entry = f"{_key(cell)}: {json.dumps(reason, ensure_ascii=False)}"
    root = YAML(typ="rt", pure=True).compose(text)
    cells = _value(_value(_value(root, "config"), ROOT_KEY), "cells")
    if not isinstance(cells, MappingNode):
        raise ConfigError("cells is no mapping")
    drop = _value(cells, "drop")
    if isinstance(drop, MappingNode) and drop.flow_style:
        return _into_braces(text, drop, entry)
    if isinstance(drop, MappingNode) and drop.value:
        return _behind(text, drop, entry)
    if drop is not None:
        raise ConfigError("cells.drop stands there, and is no mapping")
    if cells.flow_style:
        return _into_braces(text, cells, f"drop: {{{entry}}}")
    return _behind(text, cells, f"drop: {{{entry}}}")


def _key(cell: str) -> str:
    return cell if _PLAIN.fullmatch(cell) and cell.lower() not in _WORDS else json.dumps(cell)


def _into_braces(text: str, mapping: MappingNode, entry: str) -> str:
    close = mapping.end_mark.index - 1
    before = text[:close].rstrip(" ")
    empty = not mapping.value
    separator = "" if empty else " " if before.rstrip().endswith(",") else ", "
    return before + separator + entry + text[close:]


def _behind(text: str, mapping: MappingNode, entry: str) -> str:
    """A line of its own below the last entry of a block mapping."""
    lines = text.split("\n")
    key, value = mapping.value[-1]
    lines.insert(_last_line(lines, key, value) + 1, " " * key.start_mark.column + entry)
    return "\n".join(lines)


def _last_line(lines: list[str], key: Node, value: Node | None) -> int:
    """The last line of an entry. The end that the parser gives a block is where it saw the next thing begin: the end of
    what stands in it last is asked for instead."""
    while isinstance(value, MappingNode | SequenceNode) and not value.flow_style and value.value:
        last = value.value[-1]
        key, value = last if isinstance(value, MappingNode) else (last, last)
    first = int(key.start_mark.line)
    if value is None:
        return first
    end = int(value.end_mark.line)
    if isinstance(value, ScalarNode) and value.style in ("|", ">"):
        line = min(end, len(lines)) - 1
        while line > first and not lines[line].strip():
            line -= 1
        return line
    return max(first, end if value.end_mark.column > 0 else end - 1)


def _value(parent: Node | None, key: str) -> Node | None:
    if not isinstance(parent, MappingNode):
        return None
    for name, value in parent.value:
        if isinstance(name, ScalarNode) and name.value == key:
            return value if isinstance(value, Node) else None
    return None
