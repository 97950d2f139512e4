"""The cells of other boxes as a queue knows them: name and part of the config's digest."""

from __future__ import annotations

from collections.abc import Iterable

from sweepstack.core.records import Cell
from sweepstack.onbox.common.canonical import hex_of

CONFIG_DIGITS = 16


def elsewhere_text(cell: Cell) -> str:
    """Another box's cell as it passes the engine: `<name> <first digits of its config's digest>`."""
    return f"{cell.name} {hex_of(cell.config_digest)[:CONFIG_DIGITS]}"


def read_elsewhere(texts: Iterable[str]) -> dict[str, str]:
    """Cell → first digits of its config's digest; empty where the text has none (a state from before)."""
    return {name: digits for name, _, digits in (text.partition(" ") for text in texts)}


def same_config(digest: str, digits: str) -> bool:
    """Whether `digits` are the first ones of a config's digest."""
    return bool(digits) and hex_of(digest).startswith(digits)
