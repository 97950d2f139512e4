"""Tells where in a shell command its placeholders stand: in words, in quotes, in a comment.

The runner quotes each value for the shell and puts it in the placeholder's place, so the value is right where the shell
reads words, and nowhere else. Read as /bin/sh does; what it does not tell apart (a `case` inside `$(…)`) is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from sweepstack.onbox.common.placeholders import PLACEHOLDER

Place = Literal["word", "quotes", "here-document", "comment", "backquotes", "backslash"]

_HERE = re.compile(r"<<(-?)[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s\\'\"|&;()<>])+)")
_SUM_ALONE = re.compile(r"\(\((?:[^()'\"`#\n]|\([^()'\"`#\n]*\))*\)\)")
"""Bash's `((x<<2))`, also behind `for`. To a shell that has none, its `<<2` begins a here-document: not judged."""
_WORD, _SINGLE, _DOUBLE, _TICK, _PAREN, _BRACE, _QUOTED_BRACE, _SUM = "w'\"`({}+"
_TEXT = (_DOUBLE, _QUOTED_BRACE)
"""Where single quotes are letters."""


def places(command: str) -> list[tuple[str, Place]]:
    """Each placeholder of a shell command and where it stands, in order; all as "word" where the quotes don't close."""
    scan = _Scan(command)
    found = list(scan.run())
    return found if scan.closed else [(name, "word") for name in PLACEHOLDER.findall(command)]


class _Scan:
    """One reading of a command. `closed`: whether every quote was closed; set at the end."""

    def __init__(self, command: str) -> None:
        self._text, self._at = command, 0
        self._open = [_WORD]
        self._escaped = -1
        self._here: list[tuple[str, bool]] = []
        self.closed = False

    def run(self) -> Iterator[tuple[str, Place]]:
        while self._at < len(self._text):
            start = self._at
            if match := PLACEHOLDER.match(self._text, start):
                self._at = match.end()
                yield match[1], self._place()
            elif self._text[start] == "\n" and self._here and self._open[-1] != _SINGLE:
                yield from self._documents()
            elif self._is_comment(start):
                end = re.compile("[\n`]" if _TICK in self._open else "\n").search(self._text, start)
                self._at = end.start() if end else len(self._text)
                yield from ((name, "comment") for name in PLACEHOLDER.findall(self._text, start, self._at))
            elif self._text[start] == "\\" and self._open[-1] != _SINGLE:
                self._at += 1
                if match := PLACEHOLDER.match(self._text, self._at):
                    self._at = match.end()
                    yield match[1], "backslash"
                else:
                    self._at = self._escaped = self._at + 1
            else:
                self._at += self._step(start)
        self.closed = self._open == [_WORD] and not self._here

    def _place(self) -> Place:
        if self._open[-1] in (_SINGLE, *_TEXT):
            return "quotes"
        return "backquotes" if _TICK in self._open else "word"

    def _is_comment(self, at: int) -> bool:
        plain = self._open[-1] in (_WORD, _PAREN, _TICK) and at != self._escaped
        return plain and self._text[at] == "#" and (at == 0 or self._text[at - 1] in " \t\n;&|()`")

    def _step(self, at: int) -> int:
        """Opens or closes what begins or ends at `at`, and returns how many characters that was."""
        text, top = self._text, self._open[-1]
        if top == _SINGLE:
            if text[at] == "'":
                self._open.pop()
            return 1
        if top in (_WORD, _PAREN, _TICK) and _SUM_ALONE.match(text, at):
            self._open += [_SUM, _SUM]
            return 2
        for opening, kind in (("$((", _SUM), ("$(", _PAREN), ("${", _QUOTED_BRACE if top in _TEXT else _BRACE)):
            if text.startswith(opening, at):
                self._open += [kind] * (2 if kind == _SUM else 1)
                return len(opening)
        if text[at] == "`" and _TICK in self._open:
            while self._open.pop() != _TICK:
                pass
        elif text[at] == {_DOUBLE: '"', _PAREN: ")", _SUM: ")", _BRACE: "}", _QUOTED_BRACE: "}"}.get(top):
            self._open.pop()
        elif text[at] in '"`' and top != _QUOTED_BRACE:
            self._open.append(text[at])
        elif text[at] == "'" and top not in _TEXT:
            self._open.append(_SINGLE)
        elif text[at] == "(" and top not in _TEXT:
            self._open.append(_SUM if top == _SUM else _PAREN)
        elif top in (_WORD, _PAREN, _TICK) and text.startswith("<<", at):
            match = _HERE.match(text, at)
            if match is None:
                return 3 if text.startswith("<<<", at) else 2
            self._here.append((re.sub(r"['\"\\]", "", match[2]), bool(match[1])))
            return match.end() - at
        return 1

    def _documents(self) -> Iterator[tuple[str, Place]]:
        """Reads the here-documents that begin at this end of a line."""
        self._at += 1
        while self._here and self._at < len(self._text):
            last, tabs = self._here[0]
            end = self._text.find("\n", self._at)
            end = len(self._text) if end < 0 else end
            line = self._text[self._at : end]
            if (line.lstrip("\t") if tabs else line) == last:
                self._here.pop(0)
            yield from ((name, "here-document") for name in PLACEHOLDER.findall(line))
            self._at = end + 1
        self._here = []  # one without its last line ends with the command
