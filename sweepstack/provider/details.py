"""What changed inside an input: paths, in the engine's form, each added, deleted or updated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from sweepstack.provider.wire import holds_unknown

PLACES: Final = 10
"""In a list where more places differ, the list is what changed: an engine shows its own difference of the two then."""
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Kind(Enum):
    """What happened at a path; the words are the engine's."""

    ADD = "ADD"
    DELETE = "DELETE"
    UPDATE = "UPDATE"


def details(path: str, before: Any, after: Any) -> Iterator[tuple[str, Kind]]:
    """The smallest parts that differ, with the paths of `before` and `after` below `path`. None is what is not there;
    what is not known yet differs."""
    if not differs(before, after):
        return
    if before is None or after is None:
        yield path, Kind.ADD if before is None else Kind.DELETE
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            yield from details(_below(path, key), before.get(key), after.get(key))
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        places = [at for at, pair in enumerate(zip(before, after, strict=True)) if differs(*pair)]
        if len(places) > PLACES:
            yield path, Kind.UPDATE
        else:
            for at in places:
                yield from details(f"{path}[{at}]", before[at], after[at])
    else:
        yield path, Kind.UPDATE


def differs(before: Any, after: Any) -> bool:
    """Whether two inputs differ. What is null, and what is not there, is the same."""
    return holds_unknown(after) or _without_nulls(before) != _without_nulls(after)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value


def _below(path: str, key: str) -> str:
    if _PLAIN.fullmatch(key):
        return f"{path}.{key}"
    return path + '["' + key.replace("\\", "\\\\").replace('"', '\\"') + '"]'
