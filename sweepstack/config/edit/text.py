"""Edits one value in the text of a stack file: no other byte changes.

A YAML writer would align, fold and quote the whole file anew, and a pull request would show all of that as changed.
The positions come from the YAML reader (`config.yaml_bounds.composed`), counted in characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]  # the reader's nodes

from sweepstack.onbox.common.errors import ConfigError

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*([.+@:/-]+[A-Za-z0-9_]+)*")
"""Text that every YAML reader takes as text without quotes, except for the words excluded here."""
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def put(text: str, root: yaml.Node | None, path: Sequence[str], value: Any, header: str = "") -> str:
    """`text` with `value` at `path`: replaces the value there, or adds the key after the last one.

    `root`: the nodes of `text`. With `header`, a comment, the key is written at the end, below that comment, where
    `take_out` finds both. Raises ConfigError if this can't be done by changing one place.
    """
    mapping, name, value = _place(text, root, path, value)
    found = _entry(mapping, name)
    if found is None:
        block = bool(header) and not mapping.flow_style
        return _appended(text, mapping, [header, *_block(name, value)] if block else [_flow({name: value})[1:-1]])
    node = found[1]
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and not _is_alias(text, node):
        raise ConfigError(f"{name} holds keys or a list there, a line each")
    start, end = node.start_mark.index, len(text[: node.end_mark.index].rstrip())
    glued = start > 0 and text[start - 1] == ":"
    return text[:start] + (" " if glued else "") + _flow(value) + text[max(start, end) :]


def take_out(text: str, root: yaml.Node | None, path: Sequence[str], header: str = "") -> str:
    """`text` without the key at `path` and the comment `header` above it. Unchanged if there is no such key."""
    mapping, name, _ = _place(text, root, path, None)
    found = _entry(mapping, name)
    if found is None:
        return text
    index = next(index for index, (key, _) in enumerate(mapping.value) if key is found[0])
    return (_without_item if mapping.flow_style else _without_lines)(text, mapping, index, header)


def _place(text: str, root: yaml.Node | None, path: Sequence[str], value: Any) -> tuple[yaml.MappingNode, str, Any]:
    """The deepest mapping of `path` that exists, the key to set in it, and the value for that key."""
    node = root
    for index, name in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{path[index - 1] if index else 'the file'} holds no keys")
        if _is_alias(text, node):
            raise ConfigError(f"{path[index - 1]} stands there as an alias")
        found = _entry(node, name)
        if index == len(path) - 1 or found is None or _is_null(found[1]):
            for inner in reversed(path[index + 1 :]):
                value = {inner: value}
            return node, name, value
        node = found[1]
    raise AssertionError("a path has a key")


def _entry(mapping: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = ((key, value) for key, value in mapping.value if isinstance(key, yaml.ScalarNode) and key.value == name)
    return next(pairs, None)


def _is_alias(text: str, node: yaml.Node) -> bool:
    return text.startswith("*", node.start_mark.index)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style and node.value in ("", "~", "null", "Null", "NULL")


def _appended(text: str, mapping: yaml.MappingNode, lines: list[str]) -> str:
    if mapping.flow_style:
        entry = ", ".join(lines)
        if mapping.value:
            at, entry = mapping.value[-1][1].end_mark.index, f", {entry}"
        else:
            at = text.index("{", mapping.start_mark.index) + 1
        return text[:at] + entry + text[at:]
    column = mapping.value[0][0].start_mark.column
    at = _end(text, mapping.value[-1], mapping.end_mark.index, column)
    found = re.compile(r"\r?\n").search(text, at) or re.search(r"\r?\n", text)
    newline = found[0] if found else "\n"
    return text[:at] + "".join(f"{newline}{' ' * column}{line}" for line in lines) + text[at:]


def _without_item(text: str, mapping: yaml.MappingNode, index: int, header: str) -> str:
    """`text` without one entry of a mapping in braces, and without its comma."""
    start, end = mapping.value[index][0].start_mark.index, mapping.value[index][1].end_mark.index
    before = mapping.value[index - 1][1].end_mark.index if index else start
    if re.fullmatch(r"\s*,\s*", text[before:start]):
        return text[:before] + text[end:]
    comma = re.compile(r"\s*,[ \t]*").match(text, end)
    return text[:start] + text[comma.end() if comma else end :]


def _without_lines(text: str, mapping: yaml.MappingNode, index: int, header: str) -> str:
    """`text` without the lines of one entry, and without the comments that are indented deeper than its key."""
    key = mapping.value[index][0]
    later = mapping.value[index + 1][0] if index + 1 < len(mapping.value) else None
    stop = later.start_mark.index if later is not None else mapping.end_mark.index
    end = _end(text, mapping.value[index], stop, key.start_mark.column + 1)
    first = text.rfind("\n", 0, key.start_mark.index) + 1
    above = text.rfind("\n", 0, max(first - 1, 0)) + 1
    if header and text[above:first].strip() == header:
        first = above
    after = text.find("\n", end) + 1
    if after:
        return text[:first] + text[after:]
    return text[:first].removesuffix("\n").removesuffix("\r")


def _end(text: str, entry: tuple[yaml.Node, yaml.Node], stop: int, column: int) -> int:
    """Where the last line of an entry of a block mapping ends.

    Comments below it belong to it if they are indented to `column` and stand before `stop`.
    """
    key, node = entry
    # The parser gives no end for a block, only the place where the next token begins.
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and not _is_alias(text, node):
        last = node.value[-1]
        key, node = last if isinstance(node, yaml.MappingNode) else (last, last)
    end = max(key.end_mark.index, node.end_mark.index)
    if "+" in _indicator(text, node):  # `|+` keeps its empty lines as part of the value
        end = len(text[:end].removesuffix("\n").removesuffix("\r"))
    else:
        end = _line_end(text, len(text[:end].rstrip()))
    line = end
    while (line := text.find("\n", line) + 1) and line < stop:
        content = text[line : _line_end(text, line)]
        if content.lstrip().startswith("#") and len(content) - len(content.lstrip()) >= column:
            end = line + len(content)
        elif content.strip():
            break
    return end


def _indicator(text: str, node: yaml.Node) -> str:
    """The first line of a block scalar, such as `|+`; "" for other nodes."""
    start = node.start_mark.index
    return text[start : _line_end(text, start)].partition("#")[0] if getattr(node, "style", "") in ("|", ">") else ""


def _line_end(text: str, at: int) -> int:
    """The end of the line that contains `at`, before its line break."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if end > at and text[end - 1] == "\r" else end


def _block(name: str, value: Any) -> list[str]:
    """The lines of a key and its value: one line for each key of the value, and for each row below such a key."""
    lines = [f"{_flow(name)}:"]
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            rows = [f"    {_flow({row: inner[row]})[1:-1]}" for row in inner]
        elif isinstance(inner, list) and inner:
            rows = [f"    - {_flow(row)}" for row in inner]
        else:
            lines.append(f"  {_flow({key: inner})[1:-1]}")
            continue
        lines += [f"  {_flow(key)}:", *rows]
    return lines


def _flow(value: Any) -> str:
    """A value as YAML on one line; text is quoted if a reader could take it for something else."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(inner) for inner in value) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)


def by_hand(path: Sequence[str], value: Any) -> str:
    """Says how a person makes the edit that could not be made."""
    if value is None:
        return f"Take {path[-1]} out by hand"
    for name in reversed(path):
        value = {name: value}
    return f"Write it by hand: {_flow(value)[1:-1]}"
