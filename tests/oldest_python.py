"""Python 3.8, the oldest on boxes and hosts: where one is here, and what vermin does not see."""

from __future__ import annotations

import ast
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = (3, 8)
_PLACES = (".pyenv/versions/3.8.*/bin/python3.8", ".local/share/uv/python/cpython-3.8.*/bin/python3.8")
_LATER = {"removeprefix", "removesuffix", "is_relative_to", "readlink", "with_stem", "hardlink_to", "bit_count"}
"""Methods of str, Path and int that came after it."""
_BUILTINS = {"dict", "list", "set", "frozenset", "tuple", "type"}


def oldest_python() -> str | None:
    """A Python 3.8 that can be run here, or None. Looked for in the account's own home too, whatever HOME says: CI's
    has one, and an empty HOME must not be what makes a run green."""
    homes = {Path.home(), Path(pwd.getpwuid(os.getuid()).pw_dir)}
    there = sorted(str(path) for home in homes for place in _PLACES for path in home.glob(place))
    named = shutil.which("python3.8")  # maybe a shim of pyenv that only says that there is none
    return next((path for path in (*there, *filter(None, [named])) if _runs(path)), None)


def _runs(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", ""], capture_output=True, timeout=120, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def onbox_python() -> str:
    """What runs the runner in `tests/onbox`: `SWEEPSTACK_ONBOX_PYTHON`, a Python 3.8, or else this one."""
    return os.environ.get("SWEEPSTACK_ONBOX_PYTHON") or oldest_python() or sys.executable


def too_new(text: str, name: str) -> Iterator[str]:
    """What this source says that Python 3.8 can't, and vermin does not see: `name:line: what`. Unions of dicts of which
    one side only can be seen to be a dict, later methods of objects, and generic builtins outside of annotations. Only
    running it shows all."""
    tree = ast.parse(text, name)
    written = {id(part) for node in ast.walk(tree) for note in _annotations(node) for part in ast.walk(note)}
    for node in ast.walk(tree):
        if id(node) in written:
            continue
        what = None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and _dict(node.left) != _dict(node.right):
            what = "dict | dict"
        elif isinstance(node, ast.Attribute) and node.attr in _LATER and ast.unparse(node.value) != "os":
            what = f".{node.attr}"
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _BUILTINS:
            what = f"{node.value.id}[…] at run time"
        if what:
            yield f"{name}:{node.lineno}: {what}"


def _dict(node: ast.expr) -> bool:
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"
    return named or isinstance(node, ast.Dict | ast.DictComp)


def _annotations(node: ast.AST) -> list[ast.expr]:
    found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    return [note for note in found if isinstance(note, ast.expr)]
