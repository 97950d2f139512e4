"""Reads the jobs of submitit from a Python file, which is parsed and never run.

A job there is a function with its arguments. It becomes `python -c`, which imports the function and calls it.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from typing import Any

from sweepstack.extensions.importers.found import Found, param
from sweepstack.extensions.importers.python_file import Computed, assigned, called, imports, literal
from sweepstack.extensions.importers.slurm_array import duration, memory
from sweepstack.onbox.common.errors import No

RESOURCES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "timeout_min": ("time", lambda value: f"{int(value)}m"),
    "time": ("time", lambda value: duration(str(value))),
    "cpus_per_task": ("cpu", int),
    "mem_gb": ("memory", lambda value: f"{value}GB"),
    "mem": ("memory", lambda value: memory(str(value))),
    "partition": ("partition", str),
    "account": ("account", str),
    "qos": ("qos", str),
    "constraint": ("constraint", str),
}


def fits(tree: ast.Module) -> bool:
    """Whether the file imports submitit."""
    return imports(tree, "submitit")


def read(tree: ast.Module, shown: str) -> Found:
    """The jobs of the file. Raises No where none is found that is told by literals."""
    found = Found("submitit jobs", shown)
    found.note(f"{shown} was parsed, not run")
    known = assigned(tree)
    call = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node)
        if name == "update_parameters":
            _parameters(found, node, known)
        elif name in ("map_array", "submit") and node.args and isinstance(node.func, ast.Attribute):
            call = node if call is None or name == "map_array" else call
    if call is None:
        raise No(f"{shown}: no executor.map_array or executor.submit")
    function = call.args[0]
    if not isinstance(function, ast.Name):
        raise No(f"{shown}:{call.lineno}: {ast.unparse(function)}: only a function has a name")
    try:
        columns = _columns(tree, call, known)
    except Computed:
        raise No(
            f"{shown}:{call.lineno}: {ast.unparse(call)}: its arguments are computed, and the file is not run. "
            "Write them to a CSV file, and import that"
        ) from None
    names = _arguments(tree, function.id, len(columns))
    for values in zip(*columns, strict=False):
        found.rows.append({found.name(name): param(value) for name, value in zip(names, values, strict=True)})
    module = _module(tree, function.id, shown)
    if module == shown.removesuffix(".py").replace("/", ".") and not _guarded(tree, call):
        raise No(
            f"{shown}:{call.lineno}: the jobs are submitted when the file is imported, so no cell can import "
            f'{function.id} from it: put that below `if __name__ == "__main__":`'
        )
    code = (
        f"import sys; from ast import literal_eval as v; from {module} import {function.id} as f; "
        'w = sys.argv[1:]; f(*(v(a) if k == "v" else a for k, a in zip(w[::2], w[1::2])))'
    )
    kinds = ["t" if any(isinstance(row[name], str) for row in found.rows) else "v" for name in found.names.values()]
    pairs = " ".join(f"{kind} {{{name}}}" for kind, name in zip(kinds, found.names.values(), strict=True))
    found.run = f"python -c '{code}' {pairs}"
    return found


def _columns(tree: ast.Module, call: ast.Call, known: dict[str, ast.expr]) -> list[list[Any]]:
    if called(call) == "map_array":
        return [list(literal(arg, known)) for arg in call.args[1:]]
    loops = [
        node for node in ast.walk(tree) if isinstance(node, ast.For) and any(one is call for one in ast.walk(node))
    ]
    axes: list[tuple[list[str], list[tuple[Any, ...]]]] = []
    for loop in loops:
        axes.append(_turns(loop, known))
    rows = []
    for turn in itertools.product(*(values for _, values in axes)):
        bound = dict(known)
        for (names, _), values in zip(axes, turn, strict=True):
            bound |= {name: ast.Constant(value) for name, value in zip(names, values, strict=True)}
        rows.append([literal(arg, bound) for arg in call.args[1:]])
    return [list(column) for column in zip(*rows, strict=True)]


def _turns(loop: ast.For, known: dict[str, ast.expr]) -> tuple[list[str], list[tuple[Any, ...]]]:
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    names = [one.id for one in targets if isinstance(one, ast.Name)]
    if len(names) < len(targets):
        raise Computed
    if isinstance(loop.iter, ast.Call) and called(loop.iter) in ("product", "zip"):
        parts = [literal(arg, known) for arg in loop.iter.args]
        rows = itertools.product(*parts) if called(loop.iter) == "product" else zip(*parts, strict=False)
        return names, list(rows)
    values = literal(loop.iter, known)
    return names, [tuple(value) if len(names) > 1 else (value,) for value in values]


def _arguments(tree: ast.Module, function: str, count: int) -> list[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            names = [one.arg for one in node.args.args]
            return names[:count] if len(names) >= count else [f"arg{number}" for number in range(count)]
    return [f"arg{number}" for number in range(count)]


def _module(tree: ast.Module, function: str, shown: str) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any((one.asname or one.name) == function for one in node.names):
            return node.module or ""
    return shown.removesuffix(".py").replace("/", ".")


def _guarded(tree: ast.Module, call: ast.Call) -> bool:
    return not any(
        any(one is call for one in ast.walk(node))
        for node in tree.body
        if not isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not (isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))
    )


def _parameters(found: Found, call: ast.Call, known: dict[str, ast.expr]) -> None:
    for keyword in call.keywords:
        key = (keyword.arg or "").removeprefix("slurm_")
        try:
            value = literal(keyword.value, known)
        except Computed:
            found.lose(call.lineno, f"{keyword.arg}: {ast.unparse(keyword.value)}")
            continue
        if not asked(found, key, value):
            found.lose(keyword.value.lineno, f"{keyword.arg}={value!r}")


def asked(found: Found, key: str, value: Any) -> bool:
    """Takes over what an executor is asked for, by the name without `slurm_`. False where a stack file can't say it."""
    if value is None:
        return True  # the cluster's own
    if key in RESOURCES:
        name, made = RESOURCES[key]
        found.resources[name] = made(value)
    elif key in ("gpus_per_node", "gpus_per_task"):
        if int(value):
            found.resources["gpu"] = {"count": int(value)}
    elif key == "array_parallelism":
        found.workers = int(value)
    else:
        return key in ("name", "job_name") or (key in ("nodes", "tasks_per_node") and int(value) == 1)
    return True
