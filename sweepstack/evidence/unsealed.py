"""Copies logs, metrics and partial output of attempts without a seal, before their box ends.

They lie in `unsealed/`, apart from the sealed cells: they prove nothing, and nothing here is ever counted as verified.
They are for a person who asks, when the box is gone, why a cell failed. What is copied is bounded (see
`unsealed_copy`); whatever is left on the box is named with its size, and of each log at least the end is kept. Which
attempts were copied is on record by box (`records/unsealed/`); the check that ends a box reads that record.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from pydantic import Field

from sweepstack.core.journal import Journal
from sweepstack.core.printable import printable
from sweepstack.core.records import CellName, Record
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.onbox.common.units import count, spell_bytes

if TYPE_CHECKING:
    from sweepstack.core.observation import Observation
    from sweepstack.evidence.store import EvidenceStore

UNSEALED = "unsealed"
LOG = "log.txt"
NAMED = 20
"""Files of one attempt that were left on the box and are named, the largest first; the rest is counted."""
_MARK = "%_"
_PLAIN = " !#$&'()+,;=@[]{}~^`"
"""Characters that stay as they are in the name of a copy; others are written as %XX."""


class KeptFile(Record):
    """A file that was copied. `start`: where in the box's file the copy begins; 0 for the whole of it."""

    path: str
    size: int = Field(ge=0)
    sha256: str
    start: int = Field(default=0, ge=0)


class LeftFile(Record):
    """A file that was not copied, its bytes on the box, and why."""

    path: str
    size: int = Field(ge=0)
    why: str


class Unsealed(Record):
    """One attempt that ended without a seal. `log.txt` is its log, `out/…` what it had written below `{out}`.

    `ended`: False where its runner had died, so that its processes may have gone on writing. `more`, `more_bytes`:
    files that were left on the box beyond those in `left`. `note`: why not all could be listed.
    """

    cell: CellName
    attempt: int = Field(ge=1)
    ended: bool = True
    files: tuple[KeptFile, ...] = ()
    left: tuple[LeftFile, ...] = ()
    more: int = 0
    more_bytes: int = 0
    note: str = ""

    @property
    def bytes(self) -> int:
        """Bytes that were copied."""
        return sum(file.size for file in self.files)


class UnsealedOfBox(Record):
    """The attempts of one generation of a box that were copied."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    box: str
    generation: int
    attempts: tuple[Unsealed, ...] = ()

    model_config = Record.model_config | {"populate_by_name": True}


@dataclass(frozen=True)
class CopiedAttempt:
    """An attempt that was copied, and from which box."""

    box: str
    generation: int
    attempt: Unsealed


def ended_unsealed(journal: Journal, *, dead: bool) -> list[tuple[str, int]]:
    """(cell, attempt) of every attempt that was started, has ended, and was not sealed; in the order of their starts.

    `dead`: no runner is alive on the box, so what the journal calls running has ended, too.
    """
    found: dict[tuple[str, int], None] = {}
    for entry in journal.entries:
        if entry["event"] == "cell-started":
            found[entry["cell"], entry["attempt"]] = None
        elif entry["event"] == "cell-sealed":
            found.pop((entry["cell"], entry["attempt"]), None)
    if not dead:
        for name, progress in journal.cells.items():
            if progress.state == "running":
                found.pop((name, progress.attempts), None)
    return list(found)


def uncopied_attempts(
    store: EvidenceStore, box: str, generation: int, journal: Journal, *, dead: bool
) -> list[tuple[str, int]]:
    """The attempts that ended on the box without a seal and of which nothing was copied. Raises EvidenceError."""
    ended = ended_unsealed(journal, dead=dead)
    if not ended:
        return []
    known = {(one.cell, one.attempt) for one in of_box(store, box, generation).attempts}
    return [one for one in ended if one not in known]


def why_logs_hold_box(
    store: EvidenceStore, box: str, generation: int, kills: Collection[str], seen: Observation
) -> list[str]:
    """Why the box may not end: logs of attempts without a seal would die that are in no copy. Empty when none would.

    `kills`: the tiers that die, all of them where it is empty.
    """
    if seen.journal is None or (kills and box_layout.HOME.split("/")[0] not in kills):
        return []
    try:
        lacking = uncopied_attempts(store, box, generation, seen.journal, dead=not seen.runner_alive)
    except EvidenceError as error:
        return [str(error)]
    named = ", ".join(f"{cell} (attempt {attempt})" for cell, attempt in lacking[:3])
    named += f" and {len(lacking) - 3} more" if lacking[3:] else ""
    return [f"the log of {named}, not sealed, is in no copy: `sweepctl pull` copies it"] if lacking else []


def dying(store: EvidenceStore, box: str, generation: int, journal: Journal | None, *, dead: bool) -> str:
    """What ended attempts without a seal left on the box that is in no copy and dies with it; empty for nothing.

    `journal`: None where the box can't be read, so that only what is on record is told. Raises EvidenceError.
    """
    known = of_box(store, box, generation).attempts
    lacking = uncopied_attempts(store, box, generation, journal, dead=dead) if journal is not None else []
    words = []
    if lacking:
        names = list(dict.fromkeys(cell for cell, _ in lacking))
        more = f" and {len(names) - NAMED} more" if names[NAMED:] else ""
        words.append(f"all that {', '.join(names[:NAMED])}{more} left without a seal, logs too")
    left = [
        (file.size, f"{one.cell} {printable(file.path)} {spell_bytes(file.size)}")
        for one in known
        for file in one.left
        if file.size
    ]
    left_out = len(left) + sum(one.more for one in known)
    if left_out:
        total = spell_bytes(sum(size for size, _ in left) + sum(one.more_bytes for one in known))
        largest = ", ".join(text for _, text in sorted(left, reverse=True)[:3])
        files = f"{count(left_out, 'file')}, {total}"
        words.append(f"{files}, too large, too many, or not readable: {largest}")
    return "; ".join(words)


def of_box(store: EvidenceStore, box: str, generation: int) -> UnsealedOfBox:
    """What was copied from one generation of a box. Raises EvidenceError."""
    return store.record(record_of(box, generation), UnsealedOfBox) or UnsealedOfBox(box=box, generation=generation)


def of_cell(store: EvidenceStore, cell: str) -> list[CopiedAttempt]:
    """What was copied of a cell, from all boxes; the newest attempt of the newest generation last."""
    found = [
        CopiedAttempt(one.box, one.generation, attempt)
        for one in store.records(UNSEALED, UnsealedOfBox)
        for attempt in one.attempts
        if attempt.cell == cell
    ]
    return sorted(found, key=lambda one: (one.generation, one.attempt.attempt, one.box))


def read_attempt_copy(store: EvidenceStore, found: CopiedAttempt, path: str) -> bytes | None:
    """The copy of a file of such an attempt (`log.txt`, `out/…`); None where none was made. Raises EvidenceError."""
    if all(file.path != path for file in found.attempt.files):
        return None
    held = store.objects.read(key_of(found.box, found.generation, found.attempt.cell, found.attempt.attempt, path))
    return None if held is None else held.data


def recorded(path: str) -> str:
    """A path of the box as records have it. A part that is no UTF-8, or begins as these do, is `%_` and its bytes, the
    odd ones as %XX: `unquote_to_bytes(part[2:])` gives it back."""
    return "/".join(
        _MARK + quote(os.fsencode(part), safe=_PLAIN) if _is_marked(part) else part for part in path.split("/")
    )


def _is_marked(part: str) -> bool:
    return part.startswith(_MARK) or any("\ud800" <= char <= "\udfff" for char in part)


def name_of(part: str) -> str:
    """A name that every place can hold, and that no listing leaves out; reversible (%XX)."""
    name = quote(part, safe=_PLAIN)
    return f"%2E{name[1:]}" if name.startswith(".") else name


def key_of(box: str, generation: int, cell: str, attempt: int, path: str) -> str:
    inside = "/".join(map(name_of, path.split("/")))
    return f"{UNSEALED}/{cell}/{box}-g{generation}-{attempt}/{inside}"


def record_of(box: str, generation: int) -> str:
    return f"{UNSEALED}/{box}-g{generation}.json"
