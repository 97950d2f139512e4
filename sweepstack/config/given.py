"""Tells which parameters of the cells do not reach the job as they are written.

Each such case is refused while no cell of the sweep has started, and only told afterwards: what ran is as it is.

Tells where in a shell command its placeholders stand: in words, in quotes, in a comment.

The runner quotes each value for the shell and puts it in the placeholder's place, so the value is right where the shell
reads words, and nowhere else. Read as /bin/sh does; what it does not tell apart (a `case` inside `$(…)`) is not judged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from sweepstack.config.file import Loc
from sweepstack.config.problems import shown
from sweepstack.config.secrets import RawMistakes
from sweepstack.core.roster import Roster
from sweepstack.onbox.common.placeholders import PLACEHOLDER

_DOUBLED = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}")
_SPECIAL = {"backquotes": re.compile(r"[\\`$\"]"), "comment": re.compile("\n")}
"""What of a quoted value the shell still reads there. Elsewhere outside of words it is the quotes themselves."""
_INSTEAD = {
    "quotes": "stands in quotes; the value is quoted already{of}. Write it without them, as in --option={name}",
    "here-document": "stands in a here-document, where the quotes of the value would be text{of}. Leave it out there",
    "backslash": "stands behind a backslash, which undoes the first quote of the value{of}. Leave the backslash out",
    "backquotes": "stands in backquotes, in which the value would be changed{of}. Write $(…) for them",
    "comment": "stands in a comment, and the shell would run the value from its second line on{of}. Leave it out",
}
"""What is wrong there, and what to do."""
_VARIABLE = "PARAM_"
"""So that no parameter is proposed as PATH or HOME."""


def given(values: dict[str, Any], roster: Roster) -> RawMistakes:
    """What of `cells` does not reach the job as it is written. `values`: the config, whose `cells` make the roster."""
    job = _mapping(values.get("job"))
    smoke, env = _mapping(job.get("smoke")).get("run"), _mapping(job.get("env"))
    commands: dict[Loc, Any] = {("job", "run"): job.get("run"), ("job", "smoke", "run"): smoke}
    texts = commands | {("job", "env", name): text for name, text in env.items()}
    known = {name for cell in roster.cells for name in cell.params}
    for loc, text in texts.items():
        for name in dict.fromkeys(_DOUBLED.findall(text)) if isinstance(text, str) else ():
            fix = f"{{{{{name}}}}}: braces are not doubled here, and the job would get the value in braces. Write "
            yield loc, f"{fix}{{{name}}}, or {{ {{{name}}} }} with spaces for a value in braces", None
    for loc, text in commands.items():
        if isinstance(text, str):
            yield from _quoted(loc, text, roster, known)
    yield from _unused(_mapping(values.get("cells")), commands["job", "run"], env.values(), roster)
    for problem in roster.doubled:
        yield problem.where, problem.text, None


def _quoted(loc: Loc, command: str, roster: Roster, known: set[str]) -> RawMistakes:
    """Placeholders that stand where the shell does not read the quotes of their value as quotes."""
    for name, place in dict.fromkeys(places(command)):
        if place == "word" or name not in known:
            continue
        wrong = (cell for cell in roster.cells if is_changed(cell.params.get(name), place))
        if (cell := next(wrong, None)) is not None:
            of = f" (in {cell.name} it is {shown(cell.params[name])})"
            instead = _INSTEAD[place].format(of=of, name=f"{{{name}}}")
            yield (
                loc,
                f'{{{name}}} {instead}, or give it to the job by {_env(name)} and "${_VARIABLE}{name.upper()}"',
                None,
            )


def _env(name: str) -> str:
    return f'job.env: {{{_VARIABLE}{name.upper()}: "{{{name}}}"}}'


def is_changed(value: Any, place: Place) -> bool:
    """Whether the job would get another text than this value. Numbers and plain words need no quotes."""
    if not isinstance(value, str) or shlex.quote(value) == value:
        return False
    return _SPECIAL[place].search(value) is not None if place in _SPECIAL else True


def _unused(cells: dict[str, Any], run: Any, env: Iterable[Any], roster: Roster) -> RawMistakes:
    """Parameters that tell cells apart and never reach the job."""
    if not isinstance(run, str):
        return
    found = places(run)
    used = {name for name, place in found if place != "comment"}
    used |= {name for text in env if isinstance(text, str) for name in PLACEHOLDER.findall(text)}
    commented = {name for name, _ in found} - used
    for name, loc in _telling(cells):
        if name in used or _chooses(name, cells, used, roster):
            continue
        where = "names it in a comment only" if name in commented else "does not use it"
        fix = f"the job never gets {name}: job.run {where}, so cells that differ in {name} alone run the same. Write "
        yield (
            loc,
            f"{fix}{{{name}}} into job.run, or, where the job reads it by itself or need not know it, add {_env(name)}",
            None,
        )


def _telling(cells: dict[str, Any]) -> Iterator[tuple[str, Loc]]:
    """Each parameter that does not stand in `base` alone, once, and where it stands first."""
    written: dict[str, Loc] = {}
    for key in ("grid", "zip"):
        for name in _mapping(cells.get(key)):
            written.setdefault(name, ("cells", key, name))
    for key in ("list", "add", "include"):
        for index, entry in enumerate(cells.get(key) or ()):
            for name in entry:
                if key == "include" or name not in ("name", "code"):
                    written.setdefault(name, ("cells", key, index, name))
    yield from written.items()


def _chooses(axis: str, cells: dict[str, Any], used: set[str], roster: Roster) -> bool:
    """Whether an axis reaches the job by what `include` sets for its values: `{model: llama, path: meta/Llama}`."""
    axes = {*_mapping(cells.get("grid")), *_mapping(cells.get("zip"))}
    sets = {name for entry in cells.get("include") or () if axis in entry for name in used - axes if name in entry}
    values: dict[tuple[Any, ...], Any] = {}
    alike = ((tuple(cell.params.get(name) for name in sets), cell.params.get(axis)) for cell in roster.cells)
    return axis in axes and bool(sets) and all(values.setdefault(reached, value) == value for reached, value in alike)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
