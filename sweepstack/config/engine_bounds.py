"""What the engine takes of a stack file, looked at before it runs, since its words name no key.

`python -m sweepstack.config.engine_bounds FOLDER STACK`, for scripts/launcher: ends with `REFUSED` and an error on
stderr where the engine would not read the file, or could not pass it on; else with 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.config.find import PROJECT, find
from sweepstack.config.project import stack_path
from sweepstack.config.yaml_bounds import composed, read_text
from sweepstack.onbox.common.errors import ConfigError

ENGINE_TAKES = 131_000
"""In bytes. Linux's MAX_ARG_STRLEN is 131,072, including the variable's name."""
REFUSED = 3
SHORTER = "write the cells as grid or zip, or split the sweep"


def too_long(key: str, values: Mapping[str, Any]) -> str:
    """That a config is too long, with the key that holds most of it; "" where it is not. The engine passes it in one
    environment variable."""
    length = _bytes({f"{PROJECT}:{key}": _json(values)})
    if sys.platform != "linux" or length < ENGINE_TAKES:
        return ""
    path = ".".join(_longest(values))
    return f"is too long for the engine: {length:,} bytes as JSON, {ENGINE_TAKES:,} at most; most is in {path}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _bytes(value: Any) -> int:
    return len(_json(value).encode(errors="replace"))


def _longest(values: Mapping[str, Any]) -> Iterator[str]:
    """The way down to what holds more than half."""
    name = max(values, key=lambda one: _bytes(values[one]), default="")
    if name and 2 * _bytes(values[name]) > _bytes(values):
        yield name
        if isinstance(values[name], Mapping):
            yield from _longest(values[name])


def main(folder: str, stack: str) -> int:
    """Prints what is wrong. Returns the exit code."""
    path = stack_path(Path(folder), stack)
    shown = f"{path.parent.name}/{path.name}"
    try:
        composed(read_text(path, shown), shown)
        found = find(Path(folder), stack)
        if found.at is None:
            return 0  # not ours, or a mistake that the program names
        said = too_long(found.kind, found.values)
        if not said:
            return 0
        at = tuple(_longest(found.values))
        text = f"{shown}, line {found.document.line((*found.at, *at))}: it {said}. Next: {SHORTER}"
    except ConfigError as error:
        text = str(error)
    print(f"error: {text}", file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
