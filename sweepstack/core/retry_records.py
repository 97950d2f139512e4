"""The record of what people asked to run again."""

from __future__ import annotations

from pydantic import Field

from sweepstack.core.records import Digest, Record
from sweepstack.core.timestamps import Moment


class Retry(Record):
    """A person asks that a cell runs again. `retry` counts these requests; 1 is the first.

    `salt`: 0, or the retry since which its checkpoints are others: a cell that had been sealed starts from nothing.
    `code`: what it had last run with; `manifest`: the sealed copy that counts no more, where there is one.
    """

    retry: int = Field(ge=1)
    salt: int = Field(ge=0)
    code: Digest | None = None
    manifest: Digest | None = None
    by: str
    at: Moment
    reason: str = ""


class Retries(Record):
    """All retries that were ever asked for, by cell: the last one of each."""

    cells: dict[str, Retry] = Field(default={})
