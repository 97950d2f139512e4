"""What a Python file says that is parsed and never run: its imports, calls, and literals."""

from __future__ import annotations

import ast
from typing import Any

from sweepstack.extensions.importers.found import few
from sweepstack.onbox.common.errors import No, SweepstackError


class Computed(SweepstackError):
    """A value that the file computes."""


def parsed(text: str, shown: str) -> ast.Module:
    """The file. Raises No with the line that is no Python."""
    try:
        return ast.parse(text)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise No(f"{shown}{line}: {error.msg}") from error


def imports(tree: ast.Module, package: str) -> bool:
    """Whether the file imports a package, or a part of it."""
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
    return any(name.partition(".")[0] == package for name in named)


def dotted(node: ast.AST) -> str:
    """`a.b.c` of names and attributes; of anything else what of it is one."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    return dotted(call.func).rpartition(".")[2]


def assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """The values of names, wherever they are set; the last one counts."""
    made: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            made[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            made[node.target.id] = node.value
    return made


def literal(node: ast.expr, known: dict[str, ast.expr], depth: int = 0) -> Any:
    """A value, with the names that are `known`. Raises Computed."""
    if depth > 20:
        raise Computed
    if isinstance(node, ast.Name) and node.id in known:
        return literal(known[node.id], known, depth + 1)
    if isinstance(node, ast.Call) and called(node) in ("list", "range", "tuple"):
        args = [literal(arg, known, depth + 1) for arg in node.args]
        try:
            return few(range(*args), ast.unparse(node)) if called(node) == "range" else list(*args)
        except (TypeError, ValueError):
            raise Computed from None
    if isinstance(node, ast.List | ast.Tuple):
        return [literal(one, known, depth + 1) for one in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.Mult | ast.Div | ast.Add | ast.Sub):
        left, right = literal(node.left, known, depth + 1), literal(node.right, known, depth + 1)
        return _number(node.op, left, right)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        raise Computed from None


def _number(op: ast.operator, left: Any, right: Any) -> Any:
    if not all(type(one) in (int, float) for one in (left, right)) or (isinstance(op, ast.Pow) and abs(right) > 64):
        raise Computed
    try:
        if isinstance(op, ast.Pow):
            return left**right
        if isinstance(op, ast.Div):
            return left / right
        return left * right if isinstance(op, ast.Mult) else left + right if isinstance(op, ast.Add) else left - right
    except (ArithmeticError, ValueError):
        raise Computed from None
