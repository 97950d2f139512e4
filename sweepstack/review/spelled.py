"""A value of an input as a text for people: different values have different texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.canonical import DIGEST, DIGEST_PREFIX

NOTHING = "nothing"
"""What stands for an absent value. A text of a person that is spelled so is in quotes."""
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine's preview prints for a value that is known only once something is made."""
_LATER = "known once it is made"
_SPELLED = re.compile(r"[A-Za-z0-9_/.$~(][^\n\r\"`,]*(?<! )")
_OURS = frozenset({"yes", "no", NOTHING, _LATER, "an empty list", "an empty map"})


def spelled(value: Any) -> str:
    """A value for people. Different values have different texts; a text that could be taken for another one is in
    quotes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(spelled, value)) if value else "an empty list"
    if isinstance(value, Mapping):
        return "an empty map"
    if not isinstance(value, str):
        return json.dumps(value)
    if value == _UNKNOWN:
        return _LATER
    if DIGEST.fullmatch(value):
        return value.removeprefix(DIGEST_PREFIX)[:16]
    plain = _SPELLED.fullmatch(value) and not _is_json(value) and value not in _OURS
    return value if plain else json.dumps(value, ensure_ascii=False)


def _is_json(text: str) -> bool:
    """Whether it reads like a number."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
