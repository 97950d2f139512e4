"""Mutants that a rule makes: each comparison turned round, each value returned empty, each error not raised."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[2]
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
EMPTY = {
    "str": '""',
    "int": "0",
    "float": "0.0",
    "bytes": 'b""',
    "list": "[]",
    "tuple": "()",
    "dict": "{}",
    "set": "set()",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Change = ast.Compare | ast.Return | ast.Raise


@dataclass(frozen=True)
class Generated:
    """One change in one function. `number` counts the changes of the file; `what` says it for people."""

    path: str
    function: str
    line: int
    number: int
    what: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.what} #{self.number}"


def of_file(path: Path) -> list[Generated]:
    """All mutants of one file, in the order of its lines."""
    tree = ast.parse(path.read_text())
    place = str(path.relative_to(ROOT))
    return [
        Generated(place, function, node.lineno, number, what)
        for number, (function, node, what) in enumerate(_changes(tree))
    ]


REACHED = "__reached__"


def watched(path: Path) -> CodeType:
    """The compiled module, in which each place that a mutant changes calls `REACHED` with the mutant's number first; it
    gives back its second argument."""
    tree = ast.parse(path.read_text())
    for number, (_, node, _) in enumerate(list(_changes(tree))):

        def told(value: ast.expr, number: int = number) -> ast.expr:
            return ast.Call(ast.Name(REACHED, ast.Load()), [ast.Constant(number), value], [])

        if isinstance(node, ast.Compare):
            node.left = ast.copy_location(told(node.left), node.left)
        elif isinstance(node, ast.Return):
            node.value = told(node.value or ast.Constant(None))
        else:
            body = _body_of(tree, node)
            body.insert(body.index(node), ast.copy_location(ast.Expr(told(ast.Constant(None))), node))
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


def function_of(mutant: Generated, code: CodeType | None = None) -> CodeType:
    """The compiled function of the mutant: of the file with the change in it, or out of `code`, the module's."""
    if code is None:
        tree = ast.parse((ROOT / mutant.path).read_text())
        for number, (_, node, _) in enumerate(_changes(tree)):
            if number == mutant.number:
                _change(tree, node)
                break
        code = compile(ast.fix_missing_locations(tree), str(ROOT / mutant.path), "exec")
    for part in mutant.function.split("."):
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == part)
    return code


def _changes(tree: ast.Module) -> Iterator[tuple[str, Change, str]]:
    """Each node that can change, with the outermost function that holds it, and words for the change."""
    for name, function in _functions(tree, ()):
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
                yield name, node, f"turn `{ast.unparse(node)}` round"
            elif isinstance(node, ast.Return) and not _is_empty(node.value):
                yield (
                    name,
                    node,
                    f"return {ast.unparse(_instead(node, function))} for `{ast.unparse(node.value or node)}`",
                )
            elif isinstance(node, ast.Raise):
                yield name, node, f"go on instead of `{ast.unparse(node)}`"


def _functions(node: ast.AST, outer: tuple[str, ...]) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield ".".join((*outer, child.name)), child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, (*outer, child.name))
        else:
            yield from _functions(child, outer)


def _is_empty(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and not value.value and value.value is not False)


def _instead(node: ast.Return, function: Function) -> ast.expr:
    """What is returned instead: `not` what it was of a function that answers yes or no, else what is empty."""
    kind = ast.unparse(function.returns) if function.returns else ""
    inner = any(
        node in ast.walk(one) for one in ast.walk(function) if isinstance(one, Function) and one is not function
    )
    if kind == "bool" and node.value is not None and not inner:
        return ast.UnaryOp(ast.Not(), copy.deepcopy(node.value))
    empty = None if inner else EMPTY.get(kind.partition("[")[0])
    replaced = ast.parse(empty or "None", mode="eval").body
    same = node.value is not None and ast.unparse(node.value) == ast.unparse(replaced)
    return ast.Constant("mutant") if same else replaced


def _change(tree: ast.Module, node: Change) -> None:
    if isinstance(node, ast.Compare):
        node.ops = [TURNED[type(node.ops[0])]()]
    elif isinstance(node, ast.Return):
        empty = _instead(node, next(f for _, f in _functions(tree, ()) if node in ast.walk(f)))
        # What the function names of outer ones stays named: else its code can't be exchanged (`super()`, closures).
        node.value = ast.IfExp(ast.Constant(True), empty, node.value or ast.Constant(None))
    else:
        body = _body_of(tree, node)
        body[body.index(node)] = ast.copy_location(ast.Pass(), node)


def _body_of(tree: ast.Module, statement: ast.stmt) -> list[ast.stmt]:
    lists = (body for parent in ast.walk(tree) for _, body in ast.iter_fields(parent) if isinstance(body, list))
    return next(body for body in lists if statement in body)
