"""Checks of a stack config that need more than one key.

They read the raw values, so they also run where other keys are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pydantic_core import PydanticCustomError

from sweepstack.config.file import Document, Loc
from sweepstack.config.model import SweepConfig
from sweepstack.config.nodes import several_nodes
from sweepstack.config.problems import MOST_HINTS, Mistake, dotted, keyed, shape_at
from sweepstack.config.secret_rules import may_be_a_value
from sweepstack.config.secrets import ENV_NAME, RawMistakes, secrets_in
from sweepstack.config.types import relative_file
from sweepstack.core.cells import CHECKPOINTS, RESERVED
from sweepstack.core.roster import Roster
from sweepstack.core.suggest import did_you_mean
from sweepstack.loaders.base import FILE
from sweepstack.onbox.common.placeholders import PLACEHOLDER, own_file

_UNCLOSED = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)(?![A-Za-z0-9_},])")
"""A placeholder without its closing brace. `{a,b}` is none: the shell expands it."""
CHECK_TORCH = "SWEEPSTACK_CHECK_TORCH"
"""The one variable of ours that a job sets: the runner's look whether torch sees the GPU names it as the way out."""
OF_FILES = frozenset({"cell", "name"})
"""Beside a cell's parameters, what a file may be named by."""
_MOST_LISTED = 20


def cross_checks(
    values: dict[str, Any], roster: Roster | None, platforms: Collection[str], document: Document, at: Loc
) -> list[Mistake]:
    """Platforms without a profile, artifacts with the same path, placeholders that no cell fills, and the like."""
    found = [*_platforms(values, platforms), *_artifacts(values), *_env(values), *_secrets(values), *secrets_in(values)]
    found += several_nodes(values)
    if roster is not None:
        found += [*_placeholders(values, roster), *_own_files(values, roster)]
    return mistakes_of(found, document, at)


def mistakes_of(found: Iterable[tuple[Loc, str, Any]], document: Document, at: Loc) -> list[Mistake]:
    """What a check of the config at `at` found, with lines."""
    mistakes = []
    for loc, fix, value in found:
        key = dotted(loc) if value is None else keyed(loc, value)
        mistakes.append(Mistake(document.line((*at, *loc)), key, fix, shape_at(SweepConfig, loc[:-1])))
    return mistakes


def _platforms(values: dict[str, Any], platforms: Collection[str]) -> RawMistakes:
    candidates = values.get("candidates")
    names = [name for name in candidates if isinstance(name, str)] if isinstance(candidates, list) else []
    have = f"profiles: {', '.join(platforms)}"
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name not in platforms:
            near = did_you_mean(name, platforms) if index < MOST_HINTS else ""
            yield ("candidates", index), f"no such platform{near} ({have})", name
        elif name in seen:
            yield ("candidates", index), "is listed twice", name
        seen.add(name)
    for box, asked in _mapping(values.get("boxes")).items():
        on = _mapping(asked).get("on")
        if isinstance(on, str) and on not in names:
            fix = f"is not one of candidates ({', '.join(names)}){did_you_mean(on, names)}"
            yield ("boxes", box, "on"), fix, on
    placed = _mapping(values.get("placement")).get("platform")
    if isinstance(placed, str) and placed not in names:
        fix = "is not one of candidates; sweepctl place chooses again, sweepctl place --clear takes the block out"
        yield ("placement", "platform"), fix, placed
    for index, name in enumerate(_mapping(values.get("overrides"))):
        if name not in platforms:
            near = did_you_mean(name, platforms) if index < MOST_HINTS else ""
            yield ("overrides", name), f"no such platform{near} ({have})", None
    yield from accepted(values, platforms)


def accepted(values: dict[str, Any], platforms: Collection[str]) -> RawMistakes:
    """Accepted facts of platforms without a profile."""
    for index, name in enumerate(_mapping(values.get("accept_facts"))):
        platform = str(name).partition(".")[0]
        if platform not in platforms:
            near = did_you_mean(platform, platforms) if index < MOST_HINTS else ""
            yield ("accept_facts", name), f"no such platform{near} (profiles: {', '.join(platforms)})", None


def _artifacts(values: dict[str, Any]) -> RawMistakes:
    files: dict[str, str] = {}
    for path in _mapping(values.get("artifacts")):
        other = files.setdefault(path.casefold(), path)
        if other != path:
            yield ("artifacts", path), f"differs from {other} by case alone", None
    for path in files.values():
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        for folder in above:
            if folder.casefold() in files:
                yield ("artifacts", path), f"{files[folder.casefold()]} would be both a file and a folder", None
    for path, artifact in _mapping(values.get("artifacts")).items():
        for key, fix in _loader(_mapping(artifact)):
            yield ("artifacts", path, key), fix, None


def _loader(artifact: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys that the loader doesn't take, and keys that a command needs: (key, what to do instead)."""
    load, run = artifact.get("load"), artifact.get("run")
    if load == "npy" and artifact.get("keys"):
        yield "keys", "an npy file is one array without a name; keys is for npz"
    if load == "npy" and not isinstance(artifact.get("finite", ""), str):
        yield "finite", "an npy file is one array without a name; say require or report"
    if load != "command":
        for key in ("run", "trust"):
            if key in artifact:
                yield key, "is for load: command"
        return
    for key in ("keys", "finite", "infinite"):
        if key in artifact:
            yield key, "is for the other loaders; here the command judges that"
    if not isinstance(run, str):
        yield "run", 'load: command needs run, such as run: "python check.py {file}"'
    elif not FILE.search(run):
        yield "run", "must name {file}: that is where the path of the file goes"
    elif other := next((name for name in PLACEHOLDER.findall(run) if name != "file"), ""):
        yield "run", f"{{{other}}}: a check is given {{file}} and nothing else"
    if artifact.get("trust") is not True:
        yield (
            "trust",
            "a command is your own code and runs on this machine with your rights; if you want that, trust: true",
        )


def _env(values: dict[str, Any]) -> RawMistakes:
    """Names that are not valid, or that sweepstack sets itself."""
    for name in _mapping(_mapping(values.get("job")).get("env")):
        loc = ("job", "env", name)
        if not ENV_NAME.fullmatch(name):
            yield loc, "is not a valid name of an environment variable", None
        elif name.startswith("SWEEPSTACK_") and name != CHECK_TORCH:
            yield loc, "is set by sweepstack; take another name", None


def _secrets(values: dict[str, Any]) -> RawMistakes:
    """Names that are not valid, that sweepstack or the engine sets, or that stand in `job.env` too.

    Whether each has a value is checked where `pulumi` runs.
    """
    job = _mapping(values.get("job"))
    names = job.get("secrets")
    listed: list[Any] = [names] if isinstance(names, str) else names if isinstance(names, list) else []
    seen: set[str] = set()
    for index, name in enumerate(listed):
        loc = ("job", "secrets", index)
        if not isinstance(name, str):
            continue
        if not ENV_NAME.fullmatch(name):
            # The value may be the secret itself, so the message does not show it.
            yield loc, "is not a valid name of an environment variable; write the name alone, such as HF_TOKEN", None
        elif may_be_a_value(name) and name not in (job.get("not_secret") or ()):
            fix = (
                "looks like the secret itself, which would stand in the state; write the name of its variable, such as"
            )
            yield loc, f"{fix} HF_TOKEN. If it is the name: list it in job.not_secret, too", None
        elif name.startswith("SWEEPSTACK_"):
            yield loc, f"{name} is set by sweepstack; take another name", None
        elif name.startswith("PULUMI_"):
            yield loc, f"{name} is the engine's, and its keys never reach a box", None
        elif name in seen:
            yield loc, f"{name} is listed twice", None
        elif name in _mapping(job.get("env")):
            yield loc, f"{name} stands in job.env too; keep one of them", None
        seen.add(name)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _placeholders(values: dict[str, Any], roster: Roster) -> RawMistakes:
    """Placeholders that not every cell has a value for."""
    job = _mapping(values.get("job"))
    texts: dict[Loc, Any] = {("job", "run"): job.get("run")}
    texts[("job", "smoke", "run")] = _mapping(job.get("smoke")).get("run")
    texts |= {("job", "env", name): text for name, text in _mapping(job.get("env")).items()}
    everywhere = set(roster.cells[0].params).intersection(*(cell.params for cell in roster.cells))
    anywhere = set().union(*(cell.params for cell in roster.cells))
    filled = RESERVED | ({CHECKPOINTS} - anywhere)
    for loc, text in [*texts.items(), *_files(values).items()]:
        if not isinstance(text, str):
            continue
        known = [*sorted(anywhere), *sorted(filled if loc in texts else OF_FILES)]
        there = f" (there are: {', '.join(known[:_MOST_LISTED])}{', …' if len(known) > _MOST_LISTED else ''})"
        for name in dict.fromkeys(PLACEHOLDER.findall(text)):
            if loc not in texts and name in filled - OF_FILES:
                yield loc, f"{{{name}}} is a folder; a file is named as it lies below {{out}}", None
            elif name in everywhere or name in filled:
                continue
            elif name in anywhere:
                lacking = next(cell.name for cell in roster.cells if name not in cell.params)
                yield loc, f"{{{name}}}: {lacking} has no such parameter; give it a default in cells.base", None
            else:
                yield loc, f"{{{name}}}: no cell has such a parameter{did_you_mean(name, known)}{there}", None
        for name in dict.fromkeys(_UNCLOSED.findall(text)):
            if name in anywhere or name in filled:
                fix = f"{{{name} has no closing brace, so no cell would get its value; write {{{name}}}"
                fix += f", or, for a brace that is no placeholder, {{ {name} with a space"
                yield loc, fix, None


def _files(values: dict[str, Any]) -> dict[Loc, Any]:
    """The files of each cell that a placeholder may name."""
    files: dict[Loc, Any] = {("artifacts", path): path for path in _mapping(values.get("artifacts"))}
    return {**files, ("metrics", "file"): _mapping(values.get("metrics")).get("file")}


def _own_files(values: dict[str, Any], roster: Roster) -> RawMistakes:
    """Names that placeholders make: each must be a file below {out}, and no other artifact of the same cell."""
    files = {loc: path for loc, path in _files(values).items() if isinstance(path, str)}
    for loc, path in files.items():
        if not PLACEHOLDER.search(path):
            continue
        others = [other for at, other in files.items() if at != loc and at[0] == loc[0]]
        for cell in roster.cells:
            own, *rest = (own_file(one, cell.name, cell.params) for one in (path, *others))
            fix = _no_file(own) or next((_clash(own, one) for one in rest if _clash(own, one)), "")
            if fix:
                yield loc, f"is {own!r} in {cell.name}; {fix}", None
                break


def _no_file(path: str) -> str:
    try:
        relative_file(path)
    except PydanticCustomError as error:
        return error.message()
    return ""


def _clash(path: str, other: str) -> str:
    one, two = path.casefold(), other.casefold()
    if one == two:
        return f"so is another artifact ({other})"
    return f"{other} needs a folder of that name" if two.startswith(f"{one}/") else ""
