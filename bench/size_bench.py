"""How large the project is, against what one owner can hold: `python -m bench.size_bench`.

Counted from `git ls-files` (files on disk that git does not know count nothing) and from the commands themselves.
`EXTENSIONS` are the folders and files that few users need; what moved to `sweepstack/extensions/` loses its line.
"""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import PurePosixPath
from typing import Any

import typer

from bench.clone import ROOT
from sweepstack.cli import app

LIMITS = {
    "lines of the core": 71_500,
    "modules of the core": 487,
    "lines of the extensions": 16_000,
    "lines of the tests": 95_000,
    "commands": 30,
    "options": 95,
}
"""What issue L allows. A later issue that adds to a figure moves its line here, and says by how much: M adds
1,500 lines, in seven modules."""
EXTENSIONS = (
    "sweepstack/extensions",
    "sweepstack/teardown/signatures.py",
    "sweepstack/teardown/who_signed.py",
)
CORE = ("sweepstack", "components")
FOR_ALL = {"stack", "json", "help"}
"""Options that most commands have, and that are counted once for all."""


def measure() -> dict[str, Any]:
    """The figures, by name, with lines and modules by layer below `layers`. Reads the files of the checkout."""
    files = [PurePosixPath(name) for name in _tracked() if name.endswith(".py")]
    lines = {path: (ROOT / path).read_text(encoding="utf-8").count("\n") for path in files if (ROOT / path).is_file()}
    extensions = [path for path in lines if _below(path, EXTENSIONS)]
    core = [path for path in lines if _below(path, CORE) and path not in extensions]
    commands, options = _typed()
    return {
        "found": {
            "lines of the core": sum(lines[path] for path in core),
            "modules of the core": len(core),
            "lines of the extensions": sum(lines[path] for path in extensions),
            "lines of the tests": sum(count for path, count in lines.items() if _below(path, ("tests",))),
            "commands": commands,
            "options": options,
        },
        "limits": LIMITS,
        "layers": _by_layer(lines),
    }


def _tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True, timeout=60
    )
    return listed.stdout.split("\0")


def _below(path: PurePosixPath, roots: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _by_layer(lines: dict[PurePosixPath, int]) -> dict[str, dict[str, int]]:
    """Modules, lines, classes and functions of each layer."""
    found: dict[str, dict[str, int]] = {}
    for path, count in lines.items():
        if not _below(path, CORE) or (path.parts[0] == "sweepstack" and len(path.parts) < 3):
            continue
        layer = found.setdefault(path.parts[1] if path.parts[0] == "sweepstack" else path.parts[0], {})
        nodes = list(ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))))
        for what, more in (
            ("modules", 1),
            ("lines", count),
            ("classes", sum(isinstance(node, ast.ClassDef) for node in nodes)),
            ("functions", sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)),
        ):
            layer[what] = layer.get(what, 0) + more
    return dict(sorted(found.items()))


def _typed() -> tuple[int, int]:
    """How many commands there are, verbs below them counted, and how many options in all. None is hidden: old spellings
    stand in `cli/old_spellings.py` alone."""
    commands = options = 0
    for command in app.all_commands().values():
        commands += 1
        options += sum(isinstance(one, typer.core.TyperOption) and one.name not in FOR_ALL for one in command.params)
    return commands, options


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
