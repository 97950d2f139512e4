"""A W&B sweep: `parameters`, `method`, `command`. Nothing of wandb is imported, and nothing is sent.

What an agent of W&B starts is `command`, with `${args}` as `--name=value`, values spelled as Python spells them.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from sweepstack.config.file import Document
from sweepstack.extensions.importers.found import Found, quoted

DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
HARMLESS = ("name", "project", "entity", "description", "program", "method", "parameters", "metric", "command")
LOSSES = {
    "early_terminate": "runs are not stopped early by {type}",
    "controller": "a local controller is W&B's own",
    "image_uri": "job.image says which image",
    "job": "a W&B Launch job is W&B's own",
    "scheduler": "a W&B Launch scheduler is W&B's own",
    "queue": "a W&B Launch queue is W&B's own",
}
BY_DISTRIBUTION = {
    "uniform": "uniform", "log_uniform_values": "log_uniform", "int_uniform": "int", "q_uniform": "uniform",
    "log_uniform": "log_uniform", "q_log_uniform_values": "log_int",
}  # fmt: skip


def fits(data: dict[str, Any]) -> bool:
    """Whether the file is a sweep of W&B."""
    return isinstance(data.get("parameters"), dict) and ("method" in data or "program" in data or "command" in data)


def read(document: Document) -> Found:
    """The sweep. Pure; what it can't carry is in `lost`."""
    found, data = Found("W&B sweep", document.shown), document.data
    drawn: dict[str, dict[str, Any]] = {}
    _parameters(found, document, (), data["parameters"], drawn)
    method = str(data.get("method", "grid"))
    line = document.line(("method",))
    cap = data.get("run_cap")
    if drawn or method in ("random", "bayes"):
        _search(found, document, method, drawn, cap)
    elif cap is not None:
        _first(found, document, int(cap))
    if method not in ("grid", "random", "bayes"):
        found.lose(line, f"method: {method} is none that W&B's own tool documents")
    for key, value in data.items():
        if key == "early_terminate" and _stops(found, value):
            continue
        if key in LOSSES:
            kind = value.get("type", "a rule") if isinstance(value, dict) else "a rule"
            found.lose(document.line((key,)), f"{key}: {LOSSES[key].format(type=kind)}")
        elif key not in (*HARMLESS, "run_cap"):
            found.lose(document.line((key,)), f"{key}: not known")
    if data.get("project") or data.get("entity"):
        found.note("project and entity are the tracker's: a script that calls wandb.init names its own")
    found.program = str(data.get("program", ""))
    found.run = _command(found, document, data)
    return found


def spelled(value: Any) -> Any:
    """A value as the agent puts it on a command line: `True`, `None` and lists as Python spells them."""
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else str(value)


def _parameters(
    found: Found, document: Document, above: tuple[str, ...], group: dict[str, Any], drawn: dict[str, Any]
) -> None:
    for key, spec in group.items():
        name, at = ".".join((*above, key)), document.line(("parameters", *_path(above), key))
        if not isinstance(spec, dict):
            found.lose(at, f"parameters.{name}: expected value, values, or a range")
        elif isinstance(spec.get("parameters"), dict):
            _parameters(found, document, (*above, key), spec["parameters"], drawn)
            if not above:
                found.note(f"{name}: W&B hands a group over as one dict; here as --{name}.KEY=VALUE each")
        elif "value" in spec:
            found.fixed[found.name(name)] = spelled(spec["value"])
        elif "values" in spec:
            if "probabilities" in spec:
                found.lose(at, f"parameters.{name}: probabilities (each value is as likely as the others)")
            found.axis(name, [spelled(value) for value in spec["values"]])
        else:
            axis = _range(found, at, name, spec)
            if axis:
                found.name(name)
                drawn[name] = axis


def _path(above: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(itertools.chain.from_iterable((key, "parameters") for key in above))


def _range(found: Found, line: int, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    low, high = spec.get("min"), spec.get("max")
    kind = spec.get("distribution")
    if low is None or high is None:
        found.lose(line, f"parameters.{name}: distribution {kind or 'uniform'} without min and max")
        return {}
    low, high = float(low), float(high)
    whole = all(isinstance(spec[end], int) for end in ("min", "max"))
    kind = kind or ("int_uniform" if whole else "uniform")
    if kind not in BY_DISTRIBUTION:
        found.lose(line, f"parameters.{name}: distribution {kind}")
        return {}
    if kind == "log_uniform":
        low, high = math.exp(low), math.exp(high)
    ends: list[Any] = (
        [int(low), int(high)] if low == int(low) and high == int(high) and kind != "log_uniform" else [low, high]
    )
    axis: dict[str, Any] = {BY_DISTRIBUTION[kind]: ends}
    if kind == "q_uniform":
        axis["step"] = spec.get("q", 1)
    if kind == "q_log_uniform_values" and (spec.get("q", 1) != 1 or low != int(low) or high != int(high)):
        found.lose(line, f"parameters.{name}: q: {spec.get('q', 1)} of {kind} (drawn as log_uniform, not in steps)")
        axis = {"log_uniform": [low, high]}
    return axis


def _search(found: Found, document: Document, method: str, drawn: dict[str, Any], cap: Any) -> None:
    """Ranges, or values of which some are drawn."""
    line = document.line(("method",))
    axes = {found.name(name): axis for name, axis in drawn.items()}
    axes |= {name: {"choice": values} for name, values in found.grid.items()}
    if method == "grid":
        for name in drawn:
            found.lose(document.line(("parameters", *name.split("."))), f"parameters.{name}: a range in a grid")
        return
    if cap is None:
        found.lose(line, f"method: {method} without run_cap draws until it is stopped; 20 cells here")
    search: dict[str, Any] = {"axes": axes, "at_most": {"cells": int(cap or 20)}}
    metric = document.data.get("metric")
    metric = metric if isinstance(metric, dict) else {}
    named = metric.get("name")
    if method == "bayes":
        if named:
            search["sampler"] = "tpe"
            found.note("method: bayes is W&B's Gaussian process; here Optuna's tpe, which also learns")
        else:
            found.lose(line, "method: bayes without a metric: cells are drawn at random")
    if named:
        search |= {"metric": str(metric["name"]), "goal": metric.get("goal", "minimize")}
        if "target" in metric:
            found.lose(document.line(("metric", "target")), "metric.target: the sweep does not end at a value")
    found.search, found.grid = search, {}


def _stops(found: Found, rule: Any) -> bool:
    """W&B's hyperband as asha, where the cells are drawn by a metric: its brackets are the rungs."""
    if not isinstance(rule, dict) or rule.get("type") != "hyperband" or "metric" not in found.search:
        return False
    eta = int(rule.get("eta", 3))
    if "min_iter" in rule:
        rungs = [rule["min_iter"] * eta**power for power in range(4)]
    elif "max_iter" in rule and "s" in rule:
        rungs = sorted(rule["max_iter"] // eta**power for power in range(1, int(rule["s"]) + 1))
    else:
        return False
    found.search["stop"] = {"rule": "asha", "rungs": rungs, "factor": eta}
    found.note(
        f"early_terminate: hyperband counts logged lines; here asha at {', '.join(map(str, rungs))} of metrics.x"
    )
    return True


def _first(found: Found, document: Document, cap: int) -> None:
    total = found.count
    if cap < total:
        cells = itertools.islice(itertools.product(*found.grid.values()), cap)
        found.rows = [dict(zip(found.grid, values, strict=True)) for values in cells]
        found.grid = {}
        found.note(f"run_cap: {cap} of {total} combinations: the first of the grid")


def _command(found: Found, document: Document, data: dict[str, Any]) -> str:
    program = found.program
    parts = data.get("command") or list(DEFAULT)
    if isinstance(parts, str):
        parts = parts.split()
    names = list(found.names)
    options = [quoted(f"--{name}=") + found.slot(name) for name in names]
    flags = [name for name in names if _is_flag(found, name)]
    words: list[str] = []
    for number, part in enumerate(map(str, parts)):
        if part == "${env}":
            continue  # /usr/bin/env: the shell finds the program
        if part == "${interpreter}":
            words.append("python")
        elif part == "${program}":
            words.append(quoted(program))
        elif part == "${args}":
            words += options
        elif part == "${args_no_hyphens}":
            words += [quoted(f"{name}=") + found.slot(name) for name in names]
        elif part == "${args_no_boolean_flags}":
            words += [word for name, word in zip(names, options, strict=True) if name not in flags]
            words += _constant_flags(found, document, number, flags)
        elif part.startswith("${envvar:"):
            words.append(f'"${part[9:-1]}"')
        elif part.startswith("${args_json"):
            found.lose(document.line(("command", number)), f"{part}: the parameters as JSON; here as options")
            words += options
        elif part.startswith("${"):
            found.lose(document.line(("command", number)), f"{part}: not known")
        else:
            if part.endswith(".py") and not program:
                found.program = program = part
            words.append(quoted(part))
    return " ".join(words)


def _is_flag(found: Found, name: str) -> bool:
    safe = found.name(name)
    values = found.grid.get(safe, [found.fixed[safe]] if safe in found.fixed else [])
    return bool(values) and all(value in ("True", "False") for value in values)


def _constant_flags(found: Found, document: Document, number: int, flags: list[str]) -> list[str]:
    """`--flag` where it is true, nothing where it is false. An axis is one word of the shell, which tests it."""
    words = []
    for name in flags:
        safe = found.name(name)
        if safe in found.fixed:
            words += [f"--{name}"] if found.fixed.pop(safe) == "True" else []
        else:
            words.append(f"$(test {found.slot(name)} = False || echo --{name})")
    return words
