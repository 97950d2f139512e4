"""Hydra: a multirun line (`python train.py -m lr=0.1,0.2`), or a config with `hydra.sweeper.params`.

Reads the grammar of overrides as far as sweeps need it: lists by commas, `range()`, `choice()`, `sort()`, `shuffle()`,
`tag()`, `interval()`, `glob()`. Nothing of Hydra is imported; the tests hold it to Hydra's own parser.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from pathlib import Path
from typing import Any

from sweepstack.config.file import Document
from sweepstack.extensions.importers.found import Found, drawn, few, quoted
from sweepstack.extensions.importers.submitit_jobs import asked
from sweepstack.onbox.common.errors import No

KEY = re.compile(r"(?P<sign>\+\+|\+|~|)(?P<key>[A-Za-z_][\w./@:$-]*)=(?P<value>.*)", re.DOTALL)
CALL = re.compile(r"(?P<name>[a-z_]+)\((?P<inside>.*)\)", re.DOTALL)
INT = re.compile(r"[+-]?\d+")
TAKEN = ("hydra.sweep.dir", "hydra.sweep.subdir", "hydra.run.dir", "hydra.job.name")


def fits(data: dict[str, Any]) -> bool:
    """Whether the file is a config of Hydra that says how a multirun goes, or a `defaults` list."""
    hydra = data.get("hydra")
    return isinstance(hydra, dict) and ("sweeper" in hydra or "launcher" in hydra)


def is_line(words: list[str]) -> bool:
    """Whether a command line is a multirun."""
    return any(word in ("-m", "--multirun") for word in words) and any(KEY.fullmatch(word) for word in words)


def of_line(text: str, shown: str, line: int, root: Path) -> Found:
    """The cells of a multirun line. `line`: where it stands in the file."""
    found = Found("Hydra multirun", shown)
    words = shlex.split(text, comments=True)
    program = next((at for at, word in enumerate(words) if word.endswith(".py")), 0)
    said = [_before(word) for word in words[: program + 1]]
    overrides: list[str] = []
    rest = iter(words[program + 1 :])
    for word in rest:
        if word in ("-m", "--multirun"):
            continue
        if KEY.fullmatch(word):
            overrides.append(_override(found, word, line, root))
        elif word.startswith("~"):
            overrides.append(quoted(word))
        else:
            said.append(quoted(word))
            if word in ("-cn", "-cp", "-cd", "--config-name", "--config-path", "--config-dir"):
                said.append(quoted(next(rest, "")))
    found.program = words[program] if words[program].endswith(".py") else ""
    found.run = " ".join([*said, *filter(None, overrides), "hydra.run.dir={out}"])
    _settle_search(found)
    return found


def of_config(document: Document, root: Path) -> Found:
    """The cells of `hydra.sweeper.params`, and what a launcher of Slurm asks for."""
    found = Found("Hydra config", document.shown)
    hydra = document.data["hydra"]
    sweeper = hydra.get("sweeper") or {}
    overrides = []
    spaces = [key for key in ("params", "search_space") if isinstance(sweeper.get(key), dict)]
    for space in spaces:
        for key, value in sweeper[space].items():
            at = document.line(("hydra", "sweeper", space, key))
            text = value if isinstance(value, str) else _said(value)
            if isinstance(value, dict):
                _old_space(found, key, value, at)
                overrides.append(quoted(f"{key}=") + found.slot(_bare(key)))
                continue
            overrides.append(_override(found, f"{key}={text}", at, root))
    _defaults(found, document, sweeper)
    for key, value in (hydra.get("launcher") or {}).items():
        _asked(found, key, value, document.line(("hydra", "launcher", key)))
    found.run = " ".join(["python train.py", *filter(None, overrides), "hydra.run.dir={out}"])
    found.note("a config names no script: the first word of `run` is a guess")
    _settle_search(found)
    return found


def _before(word: str) -> str:
    """A word before the script's own: it may set a variable."""
    name, equals, value = word.partition("=")
    return f"{name}={quoted(value)}" if equals and name.isidentifier() else quoted(word)


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_said, value))}]"
    return "null" if value is None else str(value)


def _bare(key: str) -> str:
    return key.lstrip("+~")


def _override(found: Found, word: str, line: int, root: Path) -> str:
    """One override as a word of `run`; its values become an axis, or stay in the word where there is only one."""
    match = KEY.fullmatch(word)
    assert match is not None
    sign, key, text = match["sign"], match["key"], match["value"].strip()
    if key in TAKEN:
        found.lose(line, f"{key}: each cell has a folder of its own ({{out}})")
        return ""
    if key.startswith(("hydra/", "hydra.")):
        if "sweeper" in key or "launcher" in key or key.startswith("hydra.sweep"):
            _plugin(found, key, text, line)
            return ""
        return quoted(word)
    try:
        values = split(text)
    except ValueError as error:
        raise No(f"{found.file}:{line}: {word}: {error}. Close it") from None
    call = CALL.fullmatch(values[0]) if len(values) == 1 else None
    if call is not None:
        made = _called(found, key, call["name"], call["inside"], line, root)
        if made is None:
            return quoted(f"{sign}{key}=") + found.slot(key)
        values = made
    if len(values) == 1:
        return quoted(f"{sign}{key}={values[0]}")
    found.axis(key, [read(value) for value in values])
    return quoted(f"{sign}{key}=") + found.slot(key)


def _called(found: Found, key: str, name: str, inside: str, line: int, root: Path) -> list[str] | None:
    """The values of a function of the grammar; None where they are drawn from a range."""
    args = split(inside)
    plain = [arg for arg in args if not re.match(r"[a-z_]+=", arg)]
    named = dict(arg.split("=", 1) for arg in args if re.match(r"[a-z_]+=", arg))
    if name == "choice":
        return plain
    if name == "range":
        return ranged([named.get("start", "")] * ("start" in named) + plain, named, f"{found.file}:{line}: {key}")
    if name in ("shuffle", "sort", "tag"):
        inner = plain[-1:] if name == "tag" else plain
        nested = CALL.fullmatch(inner[0]) if len(inner) == 1 else None
        values = _called(found, key, nested["name"], nested["inside"], line, root) if nested else inner
        if values is None or name != "sort":
            return values
        ordered = sorted(values, key=lambda value: (0, float(value)) if _number(value) is not None else (1, value))
        return ordered[::-1] if named.get("reverse") == "true" else ordered
    if name == "interval":
        low, high = [*plain, named.get("start", ""), named.get("end", "")][:2]
        whole = bool(INT.fullmatch(low) and INT.fullmatch(high))
        number = int if whole else float
        _draw(found, key, drawn(number(low), number(high), whole=whole, log=False))
        return None
    if name == "glob":
        group = root / "conf" / key
        names = sorted(path.stem for path in group.glob("*.yaml")) if group.is_dir() else []
        matching = [one for one in names if any(fnmatch.fnmatchcase(one, pattern) for pattern in plain)]
        if not matching:
            found.lose(line, f"{key}=glob({inside}): conf/{key} has no file that it matches")
            return [f"glob({inside})"]
        return matching
    found.lose(line, f"{key}={name}(…): not known")
    return [f"{name}({inside})"]


def _draw(found: Found, key: str, axis: dict[str, Any]) -> None:
    found.search.setdefault("axes", {})[found.name(key)] = axis
    found.search.setdefault("at_most", {"cells": 20})


def _old_space(found: Found, key: str, space: dict[str, Any], line: int) -> None:
    """A `search_space` entry of the Optuna sweeper in its old form."""
    kind = str(space.get("type"))
    name = _bare(key)
    if kind == "categorical":
        found.axis(name, [read(_said(value)) for value in space.get("choices", [])])
        return
    low, high = space.get("low"), space.get("high")
    if kind not in ("int", "float") or low is None or high is None:
        found.lose(line, f"{key}: type {kind}")
        return
    log = bool(space.get("log"))
    _draw(found, name, drawn(low, high, whole=kind == "int", log=log, step=space.get("step")))


def ranged(args: list[str], named: dict[str, str], where: str) -> list[str]:
    """The values of `range(…)`, which ends before its end. Raises No for more than a roster takes."""
    numbers = [_number(arg) or 0 for arg in args]
    start, stop = (0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
    stop = _number(named["stop"]) or 0 if "stop" in named else stop
    step = numbers[2] if len(numbers) > 2 else (_number(named.get("step", "1")) or 1)
    count = max(0, -int(-(stop - start) // step) if step else 0)
    return [repr(start + index * step) for index in few(range(count), where)]


def _number(text: str) -> float | int | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def split(text: str) -> list[str]:
    """Values between commas, those within brackets and quotes left whole. Raises ValueError where one is not closed."""
    parts, depth, quote, begin = [], 0, "", 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote and text[at - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[begin:at].strip())
            begin = at + 1
    if depth or quote:
        raise ValueError("a quote is open" if quote else "a bracket is open" if depth > 0 else "a bracket is too many")
    return [*parts, text[begin:].strip()]


def read(text: str) -> Any:
    """A value of an override: a number or a boolean where Hydra reads it so; text keeps its quotes, since Hydra takes
    them off."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = _number(text) if re.fullmatch(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?", text) else None
    return text if number is None else number


def _plugin(found: Found, key: str, text: str, line: int) -> None:
    if key == "hydra/sweeper":
        if text == "optuna":
            found.search.setdefault("sampler", "tpe")
        elif text != "basic":
            found.lose(line, f"hydra/sweeper={text}: that sweeper's own way to choose")
    elif key in ("hydra.sweeper.n_trials", "hydra.sweeper.n_jobs"):
        if key.endswith("n_trials"):
            found.search.setdefault("at_most", {})["cells"] = int(text)
        else:
            found.search["at_once"] = int(text)
    elif key == "hydra.sweeper.direction":
        found.search["goal"] = text
    elif key == "hydra/launcher":
        found.note(f"hydra/launcher={text}: the cells run where `candidates` says")
    elif key.startswith("hydra.launcher."):
        _asked(found, key.removeprefix("hydra.launcher."), text, line)
    elif key.startswith("hydra.sweeper.sampler"):
        found.lose(line, f"{key}={text}")
    else:
        found.lose(line, f"{key}={text}: not known")


def _defaults(found: Found, document: Document, sweeper: dict[str, Any]) -> None:
    for number, entry in enumerate(document.data.get("defaults") or []):
        if not isinstance(entry, dict):
            continue
        for key, value in entry.items():
            plain = key.removeprefix("override ").strip()
            if plain.startswith("hydra/"):
                _plugin(found, plain, str(value), document.line(("defaults", number)))
    for key, value in sweeper.items():
        at = document.line(("hydra", "sweeper", key))
        if key in ("params", "search_space", "_target_", "max_batch_size"):
            continue
        if key in ("n_trials", "n_jobs", "direction"):
            if key == "direction" and not isinstance(value, str):
                found.lose(at, "direction: several goals at once")
                continue
            _plugin(found, f"hydra.sweeper.{key}", str(value), at)
        elif key == "sampler":
            target = str((value or {}).get("_target_", "")) if isinstance(value, dict) else str(value)
            if not target.endswith("TPESampler"):
                found.lose(at, f"sampler: {target or value}")
            for one in value if isinstance(value, dict) else ():
                if one == "seed":
                    found.search["seed"] = value[one]
                elif one != "_target_":
                    found.lose(document.line(("hydra", "sweeper", "sampler", one)), f"sampler.{one}")
        elif value is not None:
            found.lose(at, f"sweeper.{key}")


def _asked(found: Found, key: str, value: Any, line: int) -> None:
    if not asked(found, key, value) and key not in ("_target_", "submitit_folder"):
        found.lose(line, f"hydra.launcher.{key}")


def _settle_search(found: Found) -> None:
    """Where a sampler draws, values of the grid are choices of it; a sampler without a range needs none."""
    if not found.search:
        return
    learns = found.search.get("sampler") == "tpe"
    if not learns and "axes" not in found.search:
        found.search = {}
        return
    axes = found.search.setdefault("axes", {})
    axes |= {name: {"choice": values} for name, values in found.grid.items()}
    found.grid = {}
    found.search.setdefault("at_most", {}).setdefault("cells", 20)
    if learns:
        found.search.setdefault("metric", "value")
        found.note("the sampler learns from what the script returns: write it as a column of metrics.jsonl")
