"""What sweepstack has to know of a tracker: one `Kind` for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweepstack.extensions.trackers.tries import Try
from sweepstack.onbox.common.dataclass import dataclass, field

FOLDER = "tracker"
"""Below `{out}`: what the clients write."""


@dataclass(frozen=True)
class Sweep:
    """What is sent on is of this sweep. `cells`: cell → its parameters."""

    identity: str
    evidence: str = ""
    cells: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def values(self, cell: str) -> dict[str, Any]:
        """What fills the placeholders of a cell's texts."""
        return {**self.cells.get(cell, {}), "cell": cell, "name": cell}


Send = Callable[[Any, Sequence[Try], Sweep, float], Iterator[tuple[Try, str]]]
"""(what `job.tracker` says of it, tries, their sweep, seconds): sends tries in their order, and gives each that was
sent with the address of its run, "" where that is not known. Blocks for about so many seconds at most. Raises
SweepstackError, OSError for the first that was not sent."""


@dataclass(frozen=True)
class Kind:
    """A tracker. `asked` is what `job.tracker` says of it, a record of `core.job`; only `send` asks a server.

    `name`: its key there. `offline`: variables by which its client stays offline and writes below `folder` of `{out}`,
    also in a smoke run. `variables`: (asked, the sweep's identity) → those that a cell gets besides; empty ones are
    left out. `place`: where the run of a cell is, for its manifest; `{run}` stands for its id. `words`: where all runs
    can be seen. `send`: None where there is no server.
    """

    name: str
    folder: str
    offline: Mapping[str, str]
    variables: Callable[[Any, str], Mapping[str, str | None]]
    place: Callable[[Any], str]
    words: Callable[[Any, Sweep], str]
    send: Send | None = None
