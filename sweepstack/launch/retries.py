"""The retries that people asked for, on record; the next `pulumi up` brings them to the queues.

`sweepctl retry` writes them down; a count in `cells.retry` of the stack file, by the `up` that brings it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field

from sweepstack.core.journal import CellProgress
from sweepstack.core.records import Again, Digest, Record, later
from sweepstack.core.timestamps import Moment
from sweepstack.evidence.store import EvidenceStore

RECORD = "retries.json"
Begin = Literal["", "start", "set"]
"""With which checkpoints: those that are there, none, or the set before the newest."""


def recorded_retries(store: EvidenceStore) -> dict[str, Retry]:
    """The last retry that was asked for of each cell; empty where there was none."""
    record = store.record(RECORD, Retries)
    return dict(record.cells) if record else {}


def add(store: EvidenceStore, retries: Mapping[str, Retry]) -> None:
    """Adds to those on record, and replaces those of the same cells. Two people at once lose nothing."""
    store.update_record(RECORD, Retries, lambda record: Retries(cells=(record.cells if record else {}) | dict(retries)))


def waits(before: Retry, progress: CellProgress | None, sealed: str | None) -> bool:
    """Whether no `pulumi up` has brought this retry to the boxes yet."""
    return before.retry > (progress.retry if progress else 0) and (sealed is None or sealed == before.manifest)


def next_retry(
    before: Retry | None,
    progress: CellProgress | None,
    sealed: str | None,
    *,
    by: str,
    at: datetime,
    begin: Begin = "",
    ends: bool = False,
    reason: str = "",
) -> Retry:
    """One more retry of a cell, or `before` where that waits already. `progress`: what its box's journal says;
    `sealed`: the manifest of its sealed copy: that one starts from nothing, others go on from their checkpoint."""
    waiting = before is not None and waits(before, progress, sealed)
    if before is not None and waiting and (not begin or before.salt == before.retry):
        return before
    reached = max(before.retry if before else 0, progress.retry if progress else 0)
    number = reached if waiting else reached + 1
    salt, set_of = (before.salt, before.set_of) if before else (0, None)
    if sealed is not None or begin:
        salt, set_of = number, salt if begin == "set" else None
    return Retry(
        retry=number,
        salt=salt,
        set_of=set_of,
        ends=ends,
        counted=before.counted if before else 0,
        code=progress.code if progress else None,
        manifest=sealed or (before.manifest if before else None),
        by=by,
        at=at,
        reason=reason,
    )


def too_low(counts: Mapping[str, int], record: Mapping[str, Retry]) -> list[str]:
    """What is wrong with these counts of a stack file: those below what was brought up."""
    return [
        f"cells.retry.{name}: {count} is lower than {record[name].counted}, which was brought up already, and the "
        f"count only grows. Write {record[name].counted + 1} to run it again, or take the line out"
        for name, count in counts.items()
        if name in record and count < record[name].counted
    ]


def not_yet_recorded(given: Mapping[str, Again], record: Mapping[str, Retry]) -> dict[str, Again]:
    """Those of the stack file that are not on record yet."""
    return {
        name: again for name, again in given.items() if again.counted > (record[name].counted if name in record else 0)
    }


def write_down(store: EvidenceStore, given: Mapping[str, Again], *, by: str, at: datetime) -> None:
    """Puts those of the stack file on record that are not there yet. Raises EvidenceError."""
    new = not_yet_recorded(given, recorded_retries(store)) if any(again.counted for again in given.values()) else {}
    if new:
        reason = "cells.retry of the stack file"
        add(store, {name: Retry(**again.model_dump(), by=by, at=at, reason=reason) for name, again in new.items()})


class Retry(Record):
    """A person asks that a cell runs again. `retry` counts these requests; 1 is the first.

    `salt`: 0, or the retry since which its checkpoints are others: a cell that had been sealed, or that is asked for
    `--from start`, starts from nothing, and no box shows it those of before. `set_of`: the salt of the run whose set of
    checkpoints before the newest it goes on from (`--from set`); None for no such run.
    `ends`: whether it is ended for that, where it runs. `counted`: the count in `cells.retry` of the stack file that
    was brought up last; 0 for none.
    `code`: what it had last run with; `manifest`: the sealed copy that counts no more, where there is one.
    """

    retry: int = Field(ge=1)
    salt: int = Field(ge=0)
    set_of: int | None = later(None, ge=0)
    ends: bool = later(False)
    counted: int = later(0, ge=0)
    code: Digest | None = None
    manifest: Digest | None = None
    by: str
    at: Moment
    reason: str = ""

    @property
    def again(self) -> Again:
        """What of it a box is told."""
        return Again.model_validate(self.model_dump(include=set(Again.model_fields)))


class Retries(Record):
    """All retries that were ever asked for, by cell: the last one of each."""

    cells: dict[str, Retry] = Field(default={})
