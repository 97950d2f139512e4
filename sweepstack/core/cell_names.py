"""The name of a cell that got none of its own: made of its axes, and safe as a folder everywhere.

A value that can't be part of a name (`meta-llama/Llama-3-8B`, `[64,64]`) stands in it with `-` for what has no place
there, and with the first digits of a digest of itself. So a name depends on its own cell alone: a further value of an
axis renames nothing, and two values don't get one name because they look alike without their odd letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sweepstack.core.cells import Param, spell
from sweepstack.onbox.common.canonical import digest_of, hex_of

MOST = 128
"""Characters of a name."""
SAFE_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._+-]{{0,{MOST - 1}}}")
"""sweepstack.core.records.CellName, for the hot path."""
_OURS = re.compile(r".*\.(partial|superseded)-\d+", re.IGNORECASE)
"""What the runner calls copies that are not sealed."""
_ODD = re.compile(r"[^A-Za-z0-9._+-]+")
_SHOWN = 40
"""Characters that a name shows of a value that can't stand in it as it is."""
_DIGITS = 6


def name_of(params: Mapping[str, Param], axes: Sequence[str]) -> str:
    """`lr0.1-seed0`, `modelmeta-llama-Llama-3-8B_fa5df4-seed0`. Cells that ran have these names: they never change."""
    spelled = {axis: spell(params[axis]) for axis in axes}
    name = "-".join([axis + value for axis, value in spelled.items()])
    if is_safe(name):
        return name
    name = "-".join([axis + _part(value) for axis, value in spelled.items()])
    if is_safe(name):
        return name
    return _marked((name.lstrip("._+-") or "cell")[: MOST - _DIGITS - 1], name)


def is_safe(name: str) -> bool:
    """Whether a name can be a folder everywhere, and is none that unfinished copies get."""
    return SAFE_NAME.fullmatch(name) is not None and _OURS.fullmatch(name) is None


def unsafe(name: str) -> str:
    """Why a name that a person wrote can't be a folder everywhere; empty when it can."""
    if is_safe(name):
        return ""
    if len(name) > MOST:
        return f"the name {name[:40]!r}… has {len(name)} characters, and {MOST} is the most"
    if _OURS.fullmatch(name):
        return f"the name {name!r} is what unfinished copies are called; take another one"
    bad = sorted({character for character in name if _ODD.fullmatch(character)})
    what = f"has {' '.join(repr(character) for character in bad)}" if bad else "does not begin with a letter or digit"
    return f"the name {name!r} {what} and becomes a folder; take one of letters, digits and . _ + -"


def _part(value: str) -> str:
    if not _ODD.search(value):
        return value
    return _marked(_ODD.sub("-", value).strip("-")[:_SHOWN].rstrip("-"), value)


def _marked(shown: str, whole: str) -> str:
    return f"{shown}_{hex_of(digest_of(whole))[:_DIGITS]}"
