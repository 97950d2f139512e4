"""A platform's list of boxes: which of them carry a tag, and what can't be read of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common.json_values import identifier

LOOKS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)
"""Seconds before each look for a box whose create may have been carried out."""


@dataclass(frozen=True)
class Names:
    """What messages call a platform, its adapter, and its boxes (in the plural)."""

    platform: str
    adapter: str
    boxes: str


@dataclass(frozen=True)
class Listed:
    """A complete list of boxes by id. `damaged`: how many entries have no id; with any, no absence is proved."""

    names: Names
    by_id: Mapping[str, Mapping[str, Any]]
    damaged: int = 0

    @classmethod
    def of(cls, names: Names, rows: Iterable[Any]) -> Listed:
        """The list of these entries; of two with the same id it has the last one."""
        rows = list(rows)
        by_id = {identifier(row): row for row in rows if identifier(row)}
        return cls(names, by_id, sum(1 for row in rows if not identifier(row)))

    @property
    def unreadable(self) -> str:
        """How many entries can't be read, for messages."""
        return f"{self.damaged} of {self.names.platform}'s {self.names.boxes} can't be read"

    def must_be_whole(self, tag: str) -> None:
        """Raises Unreachable when it has entries that can't be read: then it proves no absence of the tag."""
        if self.damaged:
            raise Unreachable(f"whether there is a box {tag} is not known: {self.unreadable}. Look at the console")

    def tagged(self, records: Iterable[BoxRecord], prefix: str, account: str) -> list[BoxRecord]:
        """Those of its `records` whose tag begins with `prefix` or can't be read, sorted by id; last, one record for
        all entries without an id."""
        found = [record for record in records if record.tag.startswith(prefix) or not record.tag]
        found.sort(key=lambda record: record.native_id)
        if self.damaged:
            names = self.names
            place = f"{names.platform}, {self.damaged} {names.boxes} whose id can't be read: look at the console"
            found.append(BoxRecord("", "", account, Phase.UNKNOWN, None, None, place, place))
        return found


def first_of(found: list[BoxRecord], known: str, names: Names) -> BoxRecord:
    """Of boxes with the same tag, one or more: the one on record (`known`, an id), else the oldest, and one that is
    ending only when all are. Its note names the others that may bill."""
    found = sorted(found, key=lambda one: (one.phase is Phase.ENDING, one.native_id != known, _age(one)))
    others = [other.native_id for other in found[1:] if other.phase is not Phase.ENDING]
    if not others:
        return found[0]
    ends = ", ".join(f"sweepctl audit --end {names.adapter}:{other}" for other in others)
    return noted(
        found[0],
        f"{len(others) + 1} {names.boxes} carry this tag, and {', '.join(others)} may bill beside it: end what is too "
        f"many: {ends}",
    )


def noted(record: BoxRecord, note: str) -> BoxRecord:
    """The record with a note more."""
    return replace(record, note="; ".join(part for part in (record.note, note) if part))


def _age(record: BoxRecord) -> tuple[datetime, str]:
    return record.created_at or datetime.max.replace(tzinfo=UTC), record.native_id
