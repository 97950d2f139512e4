"""Ray Tune: a `param_space` in a Python file, which is parsed and never run.

Carried are literals, names of literals of the same file, `list`, `range`, and the functions of `ray.tune`. What else
the space is computed by is named with its line.
"""

from __future__ import annotations

import ast
from typing import Any

from sweepstack.extensions.importers.found import Found, param, quoted
from sweepstack.extensions.importers.python_file import Computed, assigned, called, imports, literal
from sweepstack.onbox.common.errors import No

DRAWN = {
    "uniform": "uniform", "quniform": "uniform", "loguniform": "log_uniform", "qloguniform": "log_uniform",
    "randint": "int", "qrandint": "int", "lograndint": "log_int", "qlograndint": "log_int",
}  # fmt: skip
NAMED = ("param_space", "config")
CALLS = ("Tuner", "run", "tune_run")
STOPPERS = (
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PB2",
    "HyperBandForBOHB",
)


def fits(tree: ast.Module) -> bool:
    """Whether the file imports Ray Tune."""
    return imports(tree, "ray")


def read(tree: ast.Module, shown: str) -> Found:
    """The space. Raises No where none is found."""
    found = Found("Ray Tune space", shown)
    found.note(f"{shown} was parsed, not run")
    known = assigned(tree)
    space = _space(tree, known)
    if space is None:
        raise No(f"{shown}: no param_space with a dict of this file")
    samples, metric, mode = 1, "", "min"
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for keyword in call.keywords:
            try:
                value = literal(keyword.value, known)
            except Computed:
                value = None
            if keyword.arg == "num_samples" and isinstance(value, int):
                samples = value
            elif keyword.arg in ("metric", "mode") and isinstance(value, str):
                metric, mode = (value, mode) if keyword.arg == "metric" else (metric, value)
            elif keyword.arg == "resources_per_trial":
                _resources(found, keyword.value)
        name = called(call)
        if name in STOPPERS:
            found.lose(call.lineno, f"{name}: trials are not stopped early, nor changed while they run")
        elif name == "with_resources" and len(call.args) > 1:
            _resources(found, call.args[1])
        elif name.endswith("Search") and name != "grid_search":
            found.lose(call.lineno, f"{name}: its own way to draw")
    axes: dict[str, Any] = {}
    _walk(found, space, (), known, axes)
    _settle(found, axes, samples, metric, mode, space.lineno)
    found.run = " ".join(["python train.py", *(f"{quoted(f'--{name}')} {found.slot(name)}" for name in found.names)])
    found.note("a space names no command, only a function: the first words of `run` are a guess")
    return found


def _settle(found: Found, axes: dict[str, Any], samples: int, metric: str, mode: str, line: int) -> None:
    """A grid alone is a grid; with something drawn, all is drawn."""
    if not axes:
        if samples > 1:
            found.axis("repeat", range(samples))
            found.note(f"num_samples={samples} without anything drawn: each cell {samples} times, by `repeat`")
        return
    total = samples * found.count
    if found.grid:
        found.lose(line, "grid_search beside what is drawn: values of the grid are drawn, too")
    axes = {name: {"choice": values} for name, values in found.grid.items()} | axes
    found.grid = {}
    found.search = {"axes": axes, "at_most": {"cells": max(total, 1)}}
    if samples < 1:
        found.lose(line, "num_samples=-1: draws without end; 20 cells here")
        found.search["at_most"] = {"cells": 20}
    if metric:
        found.search |= {"metric": metric, "goal": "maximize" if mode == "max" else "minimize"}


def _space(tree: ast.Module, known: dict[str, ast.expr]) -> ast.Dict | None:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) in CALLS):
        for keyword in call.keywords:
            value = keyword.value
            if keyword.arg in NAMED:
                value = known.get(value.id, value) if isinstance(value, ast.Name) else value
                if isinstance(value, ast.Call) and called(value) == "dict":
                    value = _as_dict(value)
                if isinstance(value, ast.Dict):
                    return value
    for name in ("param_space", "search_space", "space", "config"):
        value = known.get(name, ast.Constant(None))
        if isinstance(value, ast.Dict):
            return value
    return None


def _as_dict(call: ast.Call) -> ast.Dict:
    pairs = [(ast.Constant(keyword.arg, lineno=call.lineno), keyword.value) for keyword in call.keywords if keyword.arg]
    return ast.Dict([key for key, _ in pairs], [value for _, value in pairs], lineno=call.lineno)


def _walk(
    found: Found, space: ast.Dict, above: tuple[str, ...], known: dict[str, ast.expr], axes: dict[str, Any]
) -> None:
    for key, value in zip(space.keys, space.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            found.lose(getattr(value, "lineno", space.lineno), "a key that is computed, or `**`")
            continue
        name = ".".join((*above, key.value))
        if isinstance(value, ast.Name) and isinstance(known.get(value.id), ast.Dict | ast.Call):
            value = known[value.id]
        if isinstance(value, ast.Dict):
            _walk(found, value, (*above, key.value), known, axes)
            continue
        try:
            _one(found, name, value, known, axes)
        except Computed:
            found.lose(value.lineno, f"{name}: {ast.unparse(value)}")


def _one(found: Found, name: str, value: ast.expr, known: dict[str, ast.expr], axes: dict[str, Any]) -> None:
    kind = called(value) if isinstance(value, ast.Call) else ""
    if not isinstance(value, ast.Call) or kind in ("list", "range"):
        found.fixed[found.name(name)] = param(literal(value, known))
        return
    args = [literal(arg, known) for arg in value.args]
    named = {keyword.arg: literal(keyword.value, known) for keyword in value.keywords}
    if kind == "grid_search":
        found.axis(name, map(param, args[0]))
    elif kind == "choice":
        axes[found.name(name)] = {"choice": [param(one) for one in (args or [named["categories"]])[0]]}
    elif kind in DRAWN:
        low, high, *rest = [*args, *named.values()]
        target = DRAWN[kind]
        if target in ("int", "log_int") and not kind.startswith("q"):
            high -= 1  # Ray's upper end is not drawn, but by the quantized ones
        axis: dict[str, Any] = {target: [low, high]}
        if kind.startswith("q") and target in ("uniform", "int"):
            axis["step"] = rest[0] if rest else 1
        elif kind.startswith("q"):
            found.lose(value.lineno, f"{name}: steps of {kind}")
        axes[found.name(name)] = axis
    else:
        raise Computed


def _resources(found: Found, node: ast.expr) -> None:
    try:
        said = ast.literal_eval(node)
    except (ValueError, TypeError):
        found.lose(node.lineno, f"resources {ast.unparse(node)}")
        return
    for key, value in said.items() if isinstance(said, dict) else ():
        if key == "cpu":
            found.resources["cpu"] = value
        elif key == "gpu" and value:
            if value < 1:
                found.lose(node.lineno, f"gpu: {value}: job.slots says how many cells share one")
            found.resources["gpu"] = {"count": max(1, int(value))}
        elif value:
            found.lose(node.lineno, f"resources {key}: {value}")
