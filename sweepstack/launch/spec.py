"""What a box's queue is told, and what launching answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.core.job import JobInput
from sweepstack.core.records import Again, ArtifactSpec, Cell
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError


@dataclass(frozen=True)
class LaunchSpec:
    """All that a box's queue is told. `workdir` is a folder on this machine whose digest must be the job's code, unless
    the evidence has that version."""

    identity: str
    box: str
    native_id: str
    generation: int
    cells: tuple[Cell, ...]
    dropped: Mapping[str, str]
    elsewhere: Mapping[str, str]
    """Roster cells that the program gives another box → first digits of their config's digest; empty: not known."""
    job: JobInput
    workdir: Path
    artifacts: tuple[ArtifactSpec, ...]
    metrics: Mapping[str, Any] | None
    own: tuple[str, ...] = ()
    """How absolute paths begin that ship no code (`core.workdir.collect`)."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Cell that begins from another one → the manifest of the verified copy of that. One that is not here waits."""
    priority: tuple[str, ...] = ()
    """Which cells start first, as JSON (`onbox.common.priority`)."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """cell → digest of the code that it runs instead of the job's; it is in the evidence, or is the job's"""
    retries: Mapping[str, Again] = field(default_factory=dict)
    """Cells that a person asked to run again: of this box's, and of those that it was given before they moved."""
    secrets: Mapping[str, str] | None = field(default=None, repr=False)
    """The values of `job.secrets`; None where they are unknown on this side: those on the box stay."""
    lease: Mapping[str, Any] = field(default_factory=dict)
    """How the box stops itself when no command looks at it (`sweepstack.onbox.runner.lease`); empty: it does not."""
    way_off: str | None = None
    """Where the box's logins find the command that ends its bill; None: not asked."""

    @property
    def code(self) -> str:
        """The digest of the code that the job runs."""
        return self.job.code

    def code_of(self, cell: str) -> str:
        """The code that a cell would start with now."""
        return self.pins.get(cell, self.code)


@dataclass(frozen=True)
class Launched:
    """What launching did. `waiting`: cells that another box still holds; `staying`: cells that are to move, and stay
    in this queue until the other box takes them."""

    appended: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    staying: tuple[str, ...] = ()
    started_runner: bool = False
    by_hand: str = ""
    """What a person has to do now, where only they can start the runner."""
    workers: str = ""
    """What a cluster's scheduler has of the box now, in words; "" where it is no cluster's."""
    notes: tuple[str, ...] = field(default_factory=tuple)


class FirstCellFailed(SweepstackError):
    """No cell came to work: the settings are wrong, or it is too early to tell. The box and its queue are there."""


class WaitEnded(FirstCellFailed):
    """A person ended the wait (Ctrl-C). Nothing is known to be wrong, and what the box was given goes on."""


class SetupFailed(FirstCellFailed):
    """`job.setup`, or the smoke run on the box, failed: no cell of that version was started."""
