"""The record of what people asked to run again."""

from __future__ import annotations

from pydantic import Field

from sweepstack.core.records import Again, Digest, Record, later
from sweepstack.core.timestamps import Moment


class Retry(Record):
    """A person asks that a cell runs again. `retry` counts these requests; 1 is the first.

    `salt`: 0, or the retry since which its checkpoints are others: a cell that had been sealed, or that is asked for
    `--from-start`, starts from nothing, and no box shows it those of before. `set_of`: the salt of the run whose set of
    checkpoints before the newest it goes on from (`--from-set`); None for no such run.
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
