"""What a start command runs so that a lease holds from a container's first second.

The program is `onbox.start_lease`, whose text goes to the vendor with the request that rents the box.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from sweepstack.onbox import start_lease
from sweepstack.onbox.host.capabilities import OwnStop

HERE = start_lease.HERE
"""Stands for the box's own id in its requests: a start command is written before there is one."""
VARIABLE = "SWEEPSTACK_LEASE"
COMMAND = (
    f'while :; do command -v python3 > /dev/null && python3 -c "${VARIABLE}"; sleep 5; done > /dev/null 2>&1 '
    "< /dev/null &"
)
"""Runs the text in `VARIABLE`, in the background, as soon as there is a Python, and again should it be killed."""
PAUSE_SECONDS = 5.0
GONE_SECONDS = 120.0
"""A box may take so long to end after it was asked for. `launch` waits longer than for this and two requests."""


def text(seconds: float, home: str, key: str, here: str, requests: Iterable[OwnStop]) -> str:
    """The program, to be run by `COMMAND`. `key` and `here`: the variables of the container that hold the key and the
    box's id. `requests`: as `CanStopItself.own_stop`, with `HERE` for the id."""
    asked = {"seconds": seconds, "home": home, "key": key, "here": here, "pause": PAUSE_SECONDS, "gone": GONE_SECONDS}
    sent = [(asked.method, asked.url, dict(asked.body)) for asked in requests]
    return f"{_program()}\nhold(**{asked | {'requests': sent}!r})"


@cache
def _program() -> str:
    """The source without what only people read: docstrings, annotations, comments."""
    tree = ast.parse(Path(start_lease.__file__).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            said = ast.get_docstring(node, clean=False) is not None
            node.body = node.body[1:] if said else node.body
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    tree.body = [one for one in tree.body if not (isinstance(one, ast.ImportFrom) and one.module == "typing")]
    return ast.unparse(tree).replace("    ", " ")
