"""The copied journal counts for a stopped box, if our own stop ended its runner.

A box that was stopped by its platform or at a console may have claimed cells after its journal was copied last.
"""

from __future__ import annotations

from pydantic import AwareDatetime

from sweepstack.core.journal import Journal
from sweepstack.core.records import Record


class Rest(Record):
    """Written when a box's runner was ended for a stop, and again when something is to be started there.

    `head`: that of the journal then, which was copied; None: something may have been started since.
    """

    box: str
    generation: int
    native_id: str
    head: str | None
    at: AwareDatetime

    def speaks_for(self, native_id: str, journal: Journal) -> bool:
        """Whether this copied journal of that very box is the whole of it: nothing was started there since."""
        return self.native_id == native_id and self.head == journal.head
