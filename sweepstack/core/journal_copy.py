"""The copied journal counts for a stopped box, if our own stop ended its runner.

A box that was stopped by its platform or at a console may have claimed cells after its journal was copied last.
"""

from __future__ import annotations

from pydantic import AwareDatetime

from sweepstack.core.journal import Journal
from sweepstack.core.records import Digest, Record, later


class Look(Record):
    """All that one look read of a box between the end of its runner and our stop (`teardown.rested`).

    `head`: that of its journal, which was copied; `files`, `problem`: of its own tiers (`Listing`); `started_at`: the
    platform's last start of it then; `queued`: the digest of what its queue had been given. `evidence_on`: see
    `Observation`.
    """

    box: str
    generation: int
    native_id: str
    head: str
    started_at: AwareDatetime
    queued: Digest
    at: AwareDatetime
    files: tuple[tuple[str, int, float], ...] = ()
    problem: str = ""
    evidence_on: tuple[str, str] | None = None


class Rest(Record):
    """Written when a box's runner was ended for a stop, and again when something is to be started there.

    `head`: that of the journal then, which was copied; None: something may have been started since. `look`: the digest
    of the `Look` before that stop, written once the platform proves that the box stands still; None: there was none.
    """

    box: str
    generation: int
    native_id: str
    head: str | None
    at: AwareDatetime
    look: Digest | None = later(None)

    def speaks_for(self, native_id: str, journal: Journal) -> bool:
        """Whether this copied journal of that very box is the whole of it: nothing was started there since."""
        return self.native_id == native_id and self.head == journal.head
