"""Reads YAML with line numbers.

The engine gives no line numbers, so the stack file is read again here. Plain scalars follow the YAML 1.2 core schema,
like the engine's own reader: `1e-4` is a number and `on` is text. Dates stay text; keys are always text. A key that
stands twice in one mapping is a mistake.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # comes with the engine's SDK, which has imported it already

from sweepstack.config.yaml_bounds import TEXT, composed, read_text
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError

Loc = tuple[str | int, ...]
_INT = re.compile(r"[-+]?[0-9]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    "-.inf": float("-inf"),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(frozen=True)
class Flaw:
    """A line with something that YAML allows and a stack config does not."""

    line: int
    loc: Loc
    text: str


@dataclass
class Document:
    """One YAML file. `shown`: its name in messages; `data`: its content as plain Python, {} if it is empty."""

    shown: str
    data: dict[str, Any]
    root: yaml.Node | None
    first_line: int = 1
    flaws: list[Flaw] = field(default_factory=list)
    _keys: dict[int, dict[str, tuple[int, yaml.Node]]] = field(default_factory=dict, repr=False)

    def line(self, loc: Loc) -> int:
        """The 1-based line of the key or item at `loc`; if that is missing, of its nearest ancestor."""
        node, line = self.root, 1
        for part in loc:
            found = self._child(node, part)
            if found is None:
                break
            line, node = found
        return line + self.first_line - 1

    def _child(self, node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
        """Line (1-based in the text) and value node of one child."""
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            child = node.value[part]
            return child.start_mark.line + 1, child
        if not isinstance(node, yaml.MappingNode):
            return None
        if id(node.value) not in self._keys:  # once for each mapping: a file may have as many mistakes as keys
            pairs = [(key, value) for key, value in reversed(node.value) if isinstance(key, yaml.ScalarNode)]
            self._keys[id(node.value)] = {key.value: (key.start_mark.line + 1, value) for key, value in pairs}
        return self._keys[id(node.value)].get(str(part))


def read_document(path: Path, shown: str) -> Document:
    """The file as a Document. Raises ConfigError, with the line, if it is no YAML, no mapping, or too large."""
    return parse_document(read_text(path, shown), shown)


def parse_document(text: str, shown: str, *, first_line: int = 1) -> Document:
    """`text` as a Document. `first_line`: the line of the file where `text` begins. See `config.yaml_bounds`."""
    root = composed(text, shown, first_line=first_line)
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{shown}, line {first_line}: expected keys and values")
    document = Document(shown, {}, root, first_line)
    if root is not None:
        document.data = _Reader(document).value(root, ())
    return document


@lru_cache(maxsize=32)
def flawless(text: str, shown: str) -> Document:
    """The same without a flaw; not to be changed. Cached: one command asks several times, also for all stacks of a
    project (`own_files`), and a file with many cells takes long to parse. Raises ConfigError."""
    document = parse_document(text, shown)
    if document.flaws:
        raise ConfigError(f"{shown}, line {document.flaws[0].line}: {document.flaws[0].text}")
    return document


@dataclass
class _Reader:
    document: Document
    open_values: set[int] = field(default_factory=set)

    def value(self, node: yaml.Node, loc: Loc) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, loc)
        if id(node.value) in self.open_values:
            self._flaw(node, loc, "an alias that contains itself")
            return None
        self.open_values.add(id(node.value))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(child, (*loc, index)) for index, child in enumerate(node.value)]
            return self._mapping(node, loc)
        finally:
            self.open_values.discard(id(node.value))

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._flaw(key_node, loc, "expected text as a key")
                continue
            key = key_node.value
            value = self.value(value_node, (*loc, key))
            if key == "<<" and not key_node.style:
                for part in value if isinstance(value, list) else [value]:
                    merged = {**(part if isinstance(part, dict) else {}), **merged}
            elif key in own:
                self._flaw(key_node, (*loc, key), "this key stands twice in the same mapping")
            else:
                own[key] = value
        return {**merged, **own}

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> Any:
        text = node.value
        if node.tag not in (TEXT, "!"):
            self._flaw(node, loc, f"the tag {node.tag.replace('tag:yaml.org,2002:', '!!')} is not supported")
        if node.style:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            if _LEADING_ZERO.match(text):
                number = text.lstrip("+-0") or "0"
                self._flaw(node, loc, f'{text} is octal to some readers of YAML: write {number}, or in quotes "{text}"')
            return int(text)
        if _OTHER_BASE.fullmatch(text):
            return int(text, 0)
        return float(text) if _FLOAT.fullmatch(text) else text

    def _flaw(self, node: yaml.Node, loc: Loc, text: str) -> None:
        line = node.start_mark.line + self.document.first_line
        self.document.flaws.append(Flaw(line, loc, text))
