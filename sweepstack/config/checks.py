"""Checks of a stack config that need more than one key.

They read the raw values, so they also run where other keys are wrong. Of cells over several nodes, the extension
`nodes` says what does not fit.

Which parameters of the cells do not reach the job as they are written is told by `given`: such a case is refused while
no cell of the sweep has started, and only told afterwards, since what ran is as it is. For that, `places` tells where
in a shell command its placeholders stand: in words, in quotes, in a comment.

The runner quotes each value for the shell and puts it in the placeholder's place, so the value is right where the shell
reads words, and nowhere else. Read as /bin/sh does; what it does not tell apart (a `case` inside `$(…)`) is not judged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Literal, cast

from pydantic_core import PydanticCustomError

from sweepstack.config.file import Document, Loc
from sweepstack.config.model import SweepConfig
from sweepstack.config.problems import MOST_HINTS, Mistake, dotted, keyed, quoted_value, shape_at
from sweepstack.config.secrets import ENV_NAME, RawMistakes, may_be_a_value, secrets_in
from sweepstack.config.types import artifact_path, relative_file
from sweepstack.core.cells import CHECKPOINTS, RESERVED
from sweepstack.core.curve_files import X, is_text, kind_of
from sweepstack.core.extensions import module_of, not_here, part_of
from sweepstack.core.loader_names import CORE, FOLDERS, LOADERS
from sweepstack.core.roster import Roster
from sweepstack.core.suggest import did_you_mean
from sweepstack.loaders.base import FILE
from sweepstack.onbox.common.groups import WILD, is_group
from sweepstack.onbox.common.longer import FROM
from sweepstack.onbox.common.placeholders import PLACEHOLDER, own_file

_UNCLOSED = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)(?![A-Za-z0-9_},])")
"""A placeholder without its closing brace. `{a,b}` is none: the shell expands it."""
CHECK_TORCH = "SWEEPSTACK_CHECK_TORCH"
"""The one variable of ours that a job sets: the runner's look whether torch sees the GPU names it as the way out."""
OF_FILES = frozenset({"cell", "name"})
"""Beside a cell's parameters, what a file may be named by."""
_MOST_LISTED = 20

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
_HUB_KEYS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_OFFLINE = "HF_HUB_OFFLINE"
"""Variables of huggingface_hub, which Trackio's client uses."""
_VARIABLE = "PARAM_"
"""So that no parameter is proposed as PATH or HOME."""


def cross_checks(
    values: dict[str, Any], roster: Roster | None, platforms: Collection[str], document: Document, at: Loc
) -> list[Mistake]:
    """Platforms without a profile, artifacts with the same path, placeholders that no cell fills, and the like."""
    found = [*_platforms(values, platforms), *_artifacts(values), *_env(values), *_secrets(values), *secrets_in(values)]
    found += [*several_nodes(values), *_of_platforms(values), *_tracker(values), *_metrics(values)]
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
        fix = "is not one of candidates; sweepctl place chooses again, sweepctl place clear takes the block out"
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
        for key, fix in (*_takes(str(path), _mapping(artifact)), *_loader(_mapping(artifact))):
            yield ("artifacts", path, key), fix, None


def _takes(path: str, artifact: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Files for a loader of folders, folders for one of files, and a loader that is not installed."""
    load = str(artifact.get("load"))
    if load in FOLDERS and not path.endswith("/"):
        yield "load", f"{load} is for a folder: end its name with a slash, such as {path}/"
    elif path.endswith("/") and load in LOADERS and load not in (*FOLDERS, "command"):
        yield "load", f"{load} is for a file, and {path} is a folder; for a folder: {', '.join(FOLDERS)} or command"
    elif load in LOADERS and load not in CORE and module_of("formats", "table") is None:
        yield "load", f"{load} belongs to {not_here('formats')}"
    if path.endswith("/") and isinstance(artifact.get("finite"), list | tuple):
        yield "finite", "of a folder require or report; what may be infinite by design: infinite"


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


def _tracker(values: dict[str, Any]) -> RawMistakes:
    """That what asks for trackers needs their extension, and a client that may wait for a network a person's word."""
    job = _mapping(values.get("job"))
    if job.get("tracker") is not None and module_of("trackers", "variables") is None:
        yield ("job", "tracker"), f"needs {not_here('trackers')}", None
    secrets, env = _listed_secrets(job), _mapping(job.get("env"))
    keys = [name for name in _HUB_KEYS if name in secrets or name in env]
    if "trackio" in _mapping(job.get("tracker")) and keys and _OFFLINE not in env:
        yield (
            ("job", "tracker", "trackio"),
            f"with {keys[0]} its client asks huggingface.co at trackio.init, and waits without an end where that "
            f'says nothing. Say in job.env whether cells go there: {_OFFLINE}: "1" (they do not, and download nothing '
            'from there) or "0"',
            None,
        )


def _metrics(values: dict[str, Any]) -> RawMistakes:
    """What the format of the metrics file, which its name tells, does not have."""
    metrics = _mapping(values.get("metrics"))
    file = metrics.get("file")
    if not isinstance(file, str):
        return
    kind = kind_of(file)
    if not is_text(file) and module_of("formats", "curves") is None:
        yield ("metrics", "file"), f"needs {not_here('formats')}", None
    if kind in X and isinstance(metrics.get("x"), str) and metrics["x"] != X[kind]:
        yield ("metrics", "x"), f"of {kind}'s files it is {X[kind]}", metrics["x"]
    if metrics.get("stop_on_nan") is True and (is_group(file) or not is_text(file)):
        yield ("metrics", "stop_on_nan"), "reads one file of JSON lines, or a CSV, by its name; see metrics.file", None


def _tracked(job: dict[str, Any]) -> dict[Loc, Any]:
    """The texts of `job.tracker` in which placeholders are filled."""
    asked = _mapping(job.get("tracker"))
    found: dict[Loc, Any] = {}
    for tracker, said in asked.items():
        own = _mapping(said)
        found |= {(tracker, key): own.get(key) for key in ("name", "group")}
        tags = own.get("tags")
        each = tags.items() if isinstance(tags, dict) else enumerate(tags if isinstance(tags, list) else [tags])
        found |= {(tracker, "tags", key): text for key, text in each}
    return {("job", "tracker", *loc): text for loc, text in found.items()}


def _secrets(values: dict[str, Any]) -> RawMistakes:
    """Names that are not valid, that sweepstack or the engine sets, or that stand in `job.env` too.

    Whether each has a value is checked where `pulumi` runs.
    """
    job = _mapping(values.get("job"))
    seen: set[str] = set()
    for index, name in enumerate(_listed_secrets(job)):
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


def _listed_secrets(job: dict[str, Any]) -> list[Any]:
    """What `job.secrets` lists, right or wrong: it may be one name."""
    names = job.get("secrets")
    return [names] if isinstance(names, str) else names if isinstance(names, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _placeholders(values: dict[str, Any], roster: Roster) -> RawMistakes:
    """Placeholders that not every cell has a value for."""
    job = _mapping(values.get("job"))
    texts: dict[Loc, Any] = {("job", "run"): job.get("run")}
    texts[("job", "smoke", "run")] = _mapping(job.get("smoke")).get("run")
    texts |= {("job", "env", name): text for name, text in _mapping(job.get("env")).items()}
    texts |= _tracked(job)
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
            fix = _no_file(own, path if loc[0] == "artifacts" else "") or next(
                (_clash(own, one) for one in rest if _clash(own, one)), ""
            )
            if fix:
                yield loc, f"is {own!r} in {cell.name}; {fix}", None
                break


def _no_file(path: str, written: str) -> str:
    """What is wrong with the name that an artifact, `written` so in the stack file, has in a cell."""
    if is_group(written) and [path.count(char) for char in WILD] != [written.count(char) for char in WILD]:
        return "a value with * or ? can't stand in the name of an artifact"
    try:
        (artifact_path if is_group(written) else relative_file)(path)
    except PydanticCustomError as error:
        return error.message()
    return ""


def _clash(path: str, other: str) -> str:
    one, two = path.casefold(), other.casefold()
    if one == two:
        return f"so is another artifact ({other})"
    return f"{other} needs a folder of that name" if two.startswith(f"{one}/") else ""


def several_nodes(values: dict[str, Any]) -> RawMistakes:
    """What of a stack config does not fit `job.nodes`. Nothing where the extension is not installed: then no platform
    takes such a sweep (`profiles.clusters`)."""
    job, boxes = values.get("job"), values.get("boxes")
    asked = isinstance(job, dict) and not job.keys().isdisjoint(("nodes", "restores"))
    named = isinstance(boxes, dict) and any(isinstance(box, dict) and "peers" in box for box in boxes.values())
    nodes = part_of("nodes", "config") if asked or named else None
    return cast(RawMistakes, nodes.mistakes(values) if nodes is not None else iter(()))


def _of_platforms(values: dict[str, Any]) -> RawMistakes:
    """What extensions that are adapters say of `overrides`."""
    for name in _mapping(values.get("overrides")):
        if (adapter := part_of(str(name).replace("-", "_"), "config")) is not None:
            yield from adapter.mistakes(values)


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
            of = f" (in {cell.name} it is {quoted_value(cell.params[name])})"
            instead = _INSTEAD[place].format(of=of, name=f"{{{name}}}")
            yield (
                loc,
                f'{{{name}}} {instead}, or give it to the job by {_var(name)} and "${_VARIABLE}{name.upper()}"',
                None,
            )


def _var(name: str) -> str:
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
    used |= {FROM} if any(cell.source for cell in roster.cells) else set()
    for name, loc in _telling(cells):
        if name in used or _chooses(name, cells, used, roster):
            continue
        where = "names it in a comment only" if name in commented else "does not use it"
        fix = f"the job never gets {name}: job.run {where}, so cells that differ in {name} alone run the same. Write "
        yield (
            loc,
            f"{fix}{{{name}}} into job.run, or, where the job reads it by itself or need not know it, add {_var(name)}",
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
