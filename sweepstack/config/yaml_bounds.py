"""Parses YAML within limits of size, depth and memory, and refuses what is beyond them.

The YAML library has no limits: it nests until Python's stack ends, makes a billion nodes out of ten aliases, and its
time grows with the square of the open brackets. So this module takes the library's events and makes the nodes itself.
A refusal names file, line and key.
"""

from __future__ import annotations

import copy
import os
import re
import stat
from pathlib import Path
from typing import NoReturn

import yaml  # type: ignore[import-untyped]  # comes with the engine's SDK, which has imported it already

from sweepstack.core.printable import visible
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError

MOST_BYTES = 16 * 2**20
DEEPEST = 50
"""Nested levels of lists and mappings. No stack config has more than ten."""
MOST_ALIASED = 100_000
"""The most values that all aliases together may stand for."""
MOST_DIGITS = 400
TEXT = "tag:yaml.org,2002:str"
_LONG_NUMBER = re.compile(r"[-+]?[0-9_]+|0[ox][0-9a-fA-F]+")
_MOST_KEYS_SHOWN = 8
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def read_text(path: Path, shown: str) -> str:
    """The file's text with its line ends. Raises ConfigError if it can't be read, is too large or not UTF-8. Never
    waits: a pipe of this name is refused."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as handle:
            if stat.S_ISFIFO(os.fstat(handle.fileno()).st_mode):
                raise ConfigError(f"{shown} can't be read: it is a pipe, and no file")
            data = handle.read(MOST_BYTES + 1)
    except OSError as error:
        missing = (
            f"a link to {os.readlink(path)}, which is not there" if path.is_symlink() and not path.exists() else ""
        )
        raise ConfigError(f"{shown} can't be read: {missing or error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{shown} is larger than {MOST_BYTES >> 20} MiB, the limit for a stack file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        odd = f"byte 0x{data[error.start]:02x} is not UTF-8 text"
        raise ConfigError(f"{shown}, line {line}: can't be read: {odd}; save the file as UTF-8") from error


def composed(text: str, shown: str, *, first_line: int = 1) -> yaml.Node | None:
    """The one document in `text` as YAML nodes; None if it is empty.

    An alias becomes a node with its own position and the value of its target. Positions are counted in characters,
    after a byte order mark. `first_line`: the line of the file where `text` begins.

    Raises ConfigError, with line and key, if the text is no YAML or beyond the limits.
    """
    composer = _Composer(shown, first_line)
    try:
        for event in yaml.parse(text.removeprefix("\ufeff"), Loader=_Loader):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = (mark.line if mark else 0) + first_line
        there = text.split("\n")[line - first_line : line - first_line + 1]
        tab = "; a tab stands there, which YAML takes for no indent: write spaces" if "\t" in "".join(there) else ""
        raise ConfigError(f"{shown}, line {line}: not valid YAML: {error.problem or error.context}{tab}") from error
    except yaml.YAMLError as error:
        at = getattr(error, "position", None)
        line = first_line + (text.count("\n", 0, at) if isinstance(at, int) else 0)
        reason = str(getattr(error, "reason", "") or "it can't be read")
        raise ConfigError(f"{shown}, line {line}: not valid YAML: {reason}") from error
    return composer.root


@dataclass
class _Open:
    """A list or a mapping that is not closed yet. `size`: the values in it so far, those of aliases too."""

    node: yaml.CollectionNode
    anchor: str | None
    size: int = 1
    key: yaml.Node | None = None

    @property
    def at(self) -> str:
        """The next part of the path: an index or a key."""
        if isinstance(self.node, yaml.SequenceNode):
            return f"[{len(self.node.value)}]"
        return f".{visible(self.key.value)}" if isinstance(self.key, yaml.ScalarNode) else ""


class _Composer:
    def __init__(self, shown: str, first_line: int) -> None:
        self.shown, self.first_line = shown, first_line
        self.root: yaml.Node | None = None
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[yaml.Node, int]] = {}
        self._aliased = 0

    def take(self, event: yaml.Event) -> None:
        """Takes one event of the parser."""
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._end(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._refuse(event, "not valid YAML: expected a single document, and another one begins here")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text = event.value
        if not event.style and len(text) > MOST_DIGITS and _LONG_NUMBER.fullmatch(text):
            self._refuse(event, f"a number of {len(text):,} digits; the most is {MOST_DIGITS}. For text, quote it")
        node = yaml.ScalarNode(event.tag or TEXT, text, event.start_mark, event.end_mark, event.style)
        self._put(node, 1, event.anchor)

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        if len(self._open) >= DEEPEST:
            self._refuse(event, f"more than {DEEPEST} nested lists or mappings")
        kind = yaml.MappingNode if isinstance(event, yaml.MappingStartEvent) else yaml.SequenceNode
        node = kind(event.tag or TEXT, [], event.start_mark, None, event.flow_style)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, 1)  # an alias inside itself; the caller refuses it
        self._open.append(_Open(node, event.anchor))

    def _end(self, event: yaml.CollectionEndEvent) -> None:
        done = self._open.pop()
        done.node.end_mark = event.end_mark
        self._put(done.node, done.size, done.anchor)

    def _alias(self, event: yaml.AliasEvent) -> None:
        found = self._anchors.get(event.anchor)
        if found is None:
            self._refuse(event, "not valid YAML: found undefined alias")
        node, size = found
        self._aliased += size
        if self._aliased > MOST_ALIASED:
            self._refuse(event, f"aliases stand for more than {MOST_ALIASED:,} values; write less of it, or no alias")
        here: yaml.Node = copy.copy(node)  # shares the value, so the caller sees an alias inside itself
        here.start_mark, here.end_mark = event.start_mark, event.end_mark
        self._put(here, size, None)

    def _put(self, node: yaml.Node, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, size)
        if not self._open:
            self.root = node
            return
        above = self._open[-1]
        above.size += size
        if isinstance(above.node, yaml.SequenceNode):
            above.node.value.append(node)
        elif above.key is None:
            above.key = node
        else:
            above.node.value.append((above.key, node))
            above.key = None

    def _refuse(self, event: yaml.Event, problem: str) -> NoReturn:
        path = "".join(level.at for level in self._open[:_MOST_KEYS_SHOWN]).lstrip(".")
        path += "…" if len(self._open) > _MOST_KEYS_SHOWN else ""
        line = event.start_mark.line + self.first_line
        raise ConfigError(f"{self.shown}, line {line}: {f'{path}: ' if path else ''}{problem}")
