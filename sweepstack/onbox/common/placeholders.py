"""Placeholders, `{name}`: what a stack config leaves to each cell's parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""The form of a placeholder; `${NAME}` is left to the shell."""


def fill(text: str, values: Mapping[str, Any], quote: Callable[[str], str] = str) -> str:
    """`text` with its placeholders replaced by quoted values. Raises KeyError with the name that is not in `values`."""

    def value(match: re.Match[str]) -> str:
        found = values[match[1]]
        return quote(found if isinstance(found, str) else json.dumps(found))

    return PLACEHOLDER.sub(value, text)


def own_file(path: str, cell: str, params: Mapping[str, Any]) -> str:
    """The name that a file of each cell, as the stack config names it, has in this one. A name with a placeholder that
    the cell has no value for stays as it is written: such a file was never another one."""
    try:
        return fill(path, {**params, "cell": cell, "name": cell})
    except KeyError:
        return path
