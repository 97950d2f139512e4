"""Finds files that a job needs to start and that do not ship, by its command and its imports.

The box looks again, in its own environment (`onbox.runner.probe`); what can be told here is told before it is rented.
"""

from __future__ import annotations

import ast
import posixpath
import sys
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from sweepstack.onbox.runner.probe import not_shipped, understood

MOST_FILES = 500
"""So many files are read for their imports at most."""
_PATH_CHANGES = (b"sys.path", b"addsitedir", b"meta_path")
"""A source with one of these decides itself where Python looks."""


def missing(workdir: Path, shipped: Collection[str], run: str) -> list[str]:
    """A sentence for the script of `run`, or else for each module, that is not shipped; empty where none is known.

    Of modules only those count that lie in `workdir`: what else a box has is not known here. Runs no code of the job.
    """
    command = understood(run)
    if command is None:
        return []
    if command.kind == "module":
        starts = _files_of(workdir, "", _ours(command.name))
        return [not_shipped(name) for name in starts if name not in shipped] or _imports(workdir, shipped, starts, "")
    script = posixpath.normpath(command.name)
    if script.startswith(("/", "..")):
        return []
    if script not in shipped:
        return [not_shipped(command.name)]
    return _imports(workdir, shipped, [script], posixpath.dirname(script))


def _imports(workdir: Path, shipped: Collection[str], starts: list[str], top: str) -> list[str]:
    """A sentence for each file that one of `starts` imports, also through others; `top`: where Python looks first."""
    found: dict[str, str] = {}
    seen = list(starts)
    for file in seen:  # grows
        try:
            source = (workdir / file).read_bytes()
            names = list(_names(ast.parse(source, file), file, top))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        if any(word in source for word in _PATH_CHANGES):
            return []  # it is not known where Python looks
        for folder, parts in names:
            for name in _files_of(workdir, folder, parts):
                if name not in shipped:
                    found.setdefault(name, f"{file} imports {'.'.join(parts)}, and {not_shipped(name)}")
                elif name not in seen and len(seen) < MOST_FILES:
                    seen.append(name)
    return list(found.values())


def _names(tree: ast.Module, file: str, top: str) -> Iterator[tuple[str, list[str]]]:
    """What a module imports when it is loaded: the folder to look in, and the parts of the name."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((top, _ours(alias.name)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = [top, *map(str, PurePosixPath(file).parents)]
            names = [f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names]
            if node.level < len(above):
                folder = above[node.level].removesuffix(".")
                yield from ((folder, name.split(".") if node.level else _ours(name)) for name in names)


def _ours(name: str) -> list[str]:
    """The parts of an absolute name; empty for a module of Python's own."""
    parts = name.split(".")
    return [] if parts[0] in sys.stdlib_module_names else parts


def _files_of(workdir: Path, folder: str, parts: list[str]) -> list[str]:
    """The files there that Python would load for a name, package by package."""
    names = [posixpath.join(folder, *parts[: number + 1]) for number in range(len(parts))]
    return [file for name in names for file in (f"{name}.py", f"{name}/__init__.py") if (workdir / file).is_file()]
