"""Tells which parameters of the cells do not reach the job as they are written.

Each such case is refused while no cell of the sweep has started, and only told afterwards: what ran is as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from sweepstack.config.file import Loc
from sweepstack.config.problems import shown
from sweepstack.config.secrets import Found
from sweepstack.config.shell_places import Place, places
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


def given(values: dict[str, Any], roster: Roster) -> Found:
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


def _quoted(loc: Loc, command: str, roster: Roster, known: set[str]) -> Found:
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


def _unused(cells: dict[str, Any], run: Any, env: Iterable[Any], roster: Roster) -> Found:
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
