"""The facts of a box that lie in its folder."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sweepstack.onbox.host.box_folders import TAG, read_facts

FACTS, ENDING, TAG_FILE = "box.json", "ending.json", "tag"
SHOWN = "shown"
"""The field of a box's facts with its places (see `mounts`), which outlive it. The runner reads it, too."""


def now() -> datetime:
    return datetime.now(timezone.utc)


def moment(text: str) -> datetime:
    read = datetime.fromisoformat(text)
    if read.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return read


def facts_in(path: Path) -> dict[str, Any] | None:
    try:
        return read_facts(path)
    except FileNotFoundError:
        return None


def shown_by(box: Path) -> dict[str, tuple[str, str]]:
    """The places that a box was made with: path on the box → (folder, id). Empty when its facts can't be read."""
    try:
        facts = facts_in(box / FACTS) or facts_in(box / ENDING) or {}
        return {str(mount): (str(folder), str(native_id)) for mount, (folder, native_id) in facts[SHOWN].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def spare_tag(box: Path) -> str:
    try:
        tag = (box / TAG_FILE).read_bytes().decode("ascii")
    except (OSError, ValueError):
        return ""
    return tag if TAG.fullmatch(tag) else ""
