"""Tells whether a script goes on from a checkpoint that it finds where it writes.

Its source alone is read. Hugging Face's Trainer and Lightning say so by what they are given. A script that loads a file
by itself says so where it also writes that file, and asks whether it is there. Anything less sure is put into words for
a person.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sweepstack.extensions.importers.python_file import assigned, called, dotted
from sweepstack.onbox.common.dataclass import dataclass

LOADS = re.compile(r"load|load_state|load_file|load_checkpoint|read_checkpoint")
SAVES = re.compile(
    r"save|save_state|save_file|save_checkpoint|dump|write_bytes|replace|rename|move|copy|copy2|copyfile"
)
"""Calls that leave a file where one of their arguments says; a rename, too, since what is written beside gets its name
by one."""
LOOKS = re.compile(r"exists|isfile|isdir|is_file|is_dir|lexists")
LISTS = re.compile(r"glob|iglob|rglob|listdir|iterdir|scandir")
SAME = frozenset({"str", "Path", "PurePath", "fspath", "abspath", "resolve", "expanduser", "open"})
"""What gives a path or a file of the path that it is given."""
DEPTH = 20


@dataclass(frozen=True)
class Resumes:
    """`sure`: a script goes on from what it finds where its option has it write; `switch`: it has to be given this for
    it, "" for nothing; `doubt`: why a person has to look, "" where nothing hints at a checkpoint."""

    sure: bool = False
    switch: str = ""
    doubt: str = ""


def resumes(tree: ast.Module, out: str | None, flags: Mapping[str, str], switches: Collection[str]) -> Resumes:
    """`out`: the name of the option that says where the script writes, None where there is none. `flags`: all options,
    name → as it is typed; `switches`: the names of those that take no value. Pure."""
    known = assigned(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if any(_of_a_trainer(call, known) for call in calls):
        return Resumes(sure=True)
    files, doubt = _Files(tree, calls, known), ""
    for call in calls:
        one = files.resumes(call, out, flags, switches)
        if one.sure:
            return one
        doubt = doubt or one.doubt
    return Resumes(doubt=doubt)


def _of_a_trainer(call: ast.Call, known: dict[str, ast.expr]) -> bool:
    """Whether a call has Hugging Face's Trainer or Lightning go on from what the script finds by itself. An option that
    a person gives (`args.resume`), or a file that the script names, is no such thing; `True` fails at a first start."""
    if called(call) == "get_last_checkpoint":
        return True
    said = [one.value for one in call.keywords if one.arg in ("resume_from_checkpoint", "ckpt_path")]
    said = [known.get(one.id, one) if isinstance(one, ast.Name) else one for one in said]
    found = [
        one for one in said
        if not isinstance(one, ast.Attribute | ast.Constant) or (isinstance(one, ast.Constant) and one.value == "last")
    ]  # fmt: skip
    return called(call) in ("train", "fit") and bool(found)


class _Files:
    """The files that a script loads and writes, as expressions in which each name is what it was set to."""

    def __init__(self, tree: ast.Module, calls: Sequence[ast.Call], known: dict[str, ast.expr]) -> None:
        self._known, self._calls = known, calls
        self._within: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(tree):
            self._within.update(dict.fromkeys(ast.iter_child_nodes(node), node))
        self._saves = [(call, self._of(call)) for call in calls if SAVES.fullmatch(called(call))]
        self._saved = {path for _, paths in self._saves for path in paths}
        self._looked = {path for call in calls if LOOKS.fullmatch(called(call)) for path in self._of(call, whose=True)}

    def resumes(self, load: ast.Call, out: str | None, flags: Mapping[str, str], switches: Collection[str]) -> Resumes:
        """What this call says, as `resumes` of this module."""
        if not LOADS.fullmatch(called(load)) or not load.args:
            return Resumes()
        path = self._spelled(load.args[0])
        own = out is not None and _names(path, out)
        if path.isidentifier():  # a parameter of a function, whose callers this does not follow
            hidden = dotted(load.func) == "torch.load" and self._saves and path not in flags
            return Resumes(doubt=f"which file it loads in line {load.lineno} can't be seen" if hidden else "")
        if self._is_listed(path):
            return Resumes(sure=own and any(_names(one, str(out)) for one in self._saved))
        if path not in self._saved or not self._comes_first(load, path):
            return Resumes()
        if not own:
            return Resumes(doubt=f"it goes on from {ast.unparse(load.args[0])}, and no option of it says where that is")
        asked = {name for name in flags if name != out and any(_names(one, name) for one in self._conditions(load))}
        if self._may_be_missing(load, path) and asked <= set(switches) and len(asked) < 2:
            return Resumes(sure=True, switch=flags[asked.pop()] if asked else "")
        return Resumes(doubt=f"under which condition it goes on from its checkpoint (line {load.lineno}) can't be seen")

    def _of(self, call: ast.Call, whose: bool = False) -> set[str]:
        """The paths that a call is given; `whose`: or that it is asked of, as `path.exists()`."""
        given = [*call.args, *(one.value for one in call.keywords)]
        if isinstance(call.func, ast.Attribute) and (whose or called(call) == "write_bytes"):
            given.append(call.func.value)
        return {self._spelled(one) for one in given}

    def _spelled(self, node: ast.expr) -> str:
        return ast.unparse(_Plain(self._known).visit(ast.parse(ast.unparse(node), mode="eval").body))

    def _is_listed(self, path: str) -> bool:
        """Whether it is one of the files that a folder has, looked up by the script."""
        return any(isinstance(node, ast.Call) and LISTS.fullmatch(called(node)) for node in ast.walk(ast.parse(path)))

    def _comes_first(self, load: ast.Call, path: str) -> bool:
        """Whether the file is written behind the place where it is loaded: a script that loads what it has written is
        at its end. Of other functions the order can't be seen."""
        saves = [call for call, paths in self._saves if path in paths]
        here = self._function(load)
        return any(self._function(call) is not here or call.lineno > load.lineno for call in saves)

    def _may_be_missing(self, load: ast.Call, path: str) -> bool:
        """Whether the script knows what to do where the file is not there, as at a first start."""
        if path in self._looked:
            return True
        around = list(self._around(load))
        return any(
            isinstance(node, ast.Try) and below in node.body and node.handlers
            for below, node in zip([load, *around], around, strict=False)
        )  # fmt: skip

    def _conditions(self, node: ast.AST) -> Iterator[str]:
        """What has to hold around a call, as far as `if` says so."""
        yield from (self._spelled(one.test) for one in self._around(node) if isinstance(one, ast.If | ast.IfExp))

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self._within:
            node = self._within[node]
            yield node

    def _function(self, node: ast.AST) -> ast.AST | None:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return next((one for one in self._around(node) if isinstance(one, kinds)), None)


def _names(path: str, option: str) -> bool:
    """Whether an expression has the value of this option in it: `args.out`, or a parameter `out`."""
    plain = option.replace("-", "_")
    return any(
        (isinstance(node, ast.Attribute) and node.attr == plain) or (isinstance(node, ast.Name) and node.id == plain)
        for node in ast.walk(ast.parse(path))
    )


class _Plain(ast.NodeTransformer):
    """Puts what names were set to in their places, and leaves away what only makes a path of a text."""

    def __init__(self, known: dict[str, ast.expr], depth: int = 0) -> None:
        self._known, self._depth = known, depth

    def visit_Name(self, node: ast.Name) -> Any:
        """Its value, where there is one that does not come back to itself."""
        value = self._known.get(node.id)
        if value is None or self._depth > DEPTH or not isinstance(node.ctx, ast.Load):
            return node
        again = ast.parse(ast.unparse(value), mode="eval").body
        return _Plain({name: one for name, one in self._known.items() if name != node.id}, self._depth + 1).visit(again)

    def visit_Call(self, node: ast.Call) -> Any:
        """`Path(x)`, `str(x)`, `open(x, "rb")`: x. `os.path.join(a, b)`: a / b."""
        self.generic_visit(node)
        if called(node) in SAME and node.args:
            return node.args[0]
        if called(node) == "joinpath" and isinstance(node.func, ast.Attribute):
            return _joined([node.func.value, *node.args])
        return _joined(node.args) if called(node) == "join" and len(node.args) > 1 else node


def _joined(parts: Sequence[ast.expr]) -> ast.expr:
    whole = parts[0]
    for part in parts[1:]:
        whole = ast.BinOp(whole, ast.Div(), part)
    return whole
