"""Tells which files of the work dir stay here when it ships.

A job that reads one of them would lose every cell to it. Files that a job needs to start, by its command and its
imports, are told one by one. The box looks again, in its own environment (`onbox.runner.probe`); what can be told here
is told before it is rented.
"""

from __future__ import annotations

import ast
import os
import posixpath
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from sweepstack.core.workdir import Shipment, ignored, no_code
from sweepstack.onbox.common.units import spell_bytes
from sweepstack.onbox.runner.probe import not_shipped, understood

SHOWN = 3
MOST_FILES = 20_000
"""So many files of one folder are counted at most."""
_CACHES = ("__pycache__", "node_modules", ".egg-info", ".pyc")

MOST_READ = 500
"""So many files are read for their imports at most."""
_PATH_CHANGES = (b"sys.path", b"addsitedir", b"meta_path")
"""A source with one of these decides itself where Python looks."""


def words(path: Path, shipment: Shipment, own: Iterable[str]) -> list[str]:
    """A line for what git does not track there and one for what it ignores, the largest first; empty without such.

    Caches, virtual environments, what begins with a dot, and what is no code of a job are not named.
    """
    lines = []
    if shipment.left_behind:
        more = " …" if shipment.left_behind[SHOWN:] else ""
        lines.append(f"not tracked by git and left behind: {', '.join(shipment.left_behind[:SHOWN])}{more}")
    names = [name for name in ignored(path) if not _is_cache(path, name)]
    mine, ships = no_code(path, own, (f"{name}x" for name in names)), {file.path for file in shipment.files}
    left = [
        (size, name, count)
        for name in names
        if not name.startswith(mine) and not any(one.startswith(name) for one in mine)
        for count, size in [_sized(path, name, ships)]
        if count
    ]
    left.sort(key=lambda one: (-one[0], one[1]))
    shown = [f"{name} ({_files(name, count)}{spell_bytes(size)})" for size, name, count in left[:SHOWN]]
    if shown:
        more = f" and {len(left) - SHOWN} more" if left[SHOWN:] else ""
        lines.append(f"ignored by git and left behind: {', '.join(shown)}{more}; job.include ships what the job reads")
    return lines


def _is_cache(path: Path, name: str) -> bool:
    last = name.rstrip("/").rpartition("/")[2]
    return last.startswith(".") or last.endswith(_CACHES) or (path / name / "pyvenv.cfg").is_file()


def _sized(path: Path, name: str, ships: set[str]) -> tuple[int, int]:
    """Number and bytes of the files in a folder, or of the one file, that do not ship."""
    if not name.endswith("/"):
        return (0, 0) if name in ships else (1, _size(path / name))
    count = size = 0
    for folder, _, files in os.walk(path / name):
        below = Path(folder).relative_to(path).as_posix()
        for file in files:
            if f"{below}/{file}" not in ships:
                count, size = count + 1, size + _size(Path(folder) / file)
        if count >= MOST_FILES:
            break
    return count, size


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _files(name: str, count: int) -> str:
    if not name.endswith("/"):
        return ""
    return f"{'at least ' if count >= MOST_FILES else ''}{count:,} file{'' if count == 1 else 's'}, "


def unshipped_scripts(workdir: Path, shipped: Collection[str], run: str) -> list[str]:
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
                elif name not in seen and len(seen) < MOST_READ:
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
