"""What a box's queue is told, and what launching answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweepstack.core.records import Again, ArtifactSpec, Cell
from sweepstack.onbox.common.errors import SweepstackError


@dataclass(frozen=True)
class LaunchSpec:
    """All that a box's queue is told. `workdir` is a folder on this machine whose digest must be `code`, unless the
    evidence has that version."""

    identity: str
    box: str
    native_id: str
    generation: int
    cells: tuple[Cell, ...]
    dropped: Mapping[str, str]
    elsewhere: Mapping[str, str]
    """Roster cells that the program gives another box → first digits of their config's digest; empty: not known."""
    workdir: Path
    include: tuple[str, ...]
    code: str
    run: str
    env: Mapping[str, str]
    slots: int
    artifacts: tuple[ArtifactSpec, ...]
    metrics: Mapping[str, Any] | None
    own: tuple[str, ...] = ()
    """How absolute paths begin that ship no code (`core.workdir.collect`)."""
    setup: str = ""
    gpus: int = 0
    """How many the box was rented with; 0: none were asked for."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """cell → digest of the code that it runs instead of `code`; it is in the evidence, or is `code`"""
    retries: Mapping[str, Again] = field(default_factory=dict)
    """Cells that a person asked to run again: of this box's, and of those that it was given before they moved."""
    across: bool = False
    """Whether a cell goes on from its checkpoint with another version (`job.resume: across-code`)."""
    secret_names: tuple[str, ...] = ()
    secrets: Mapping[str, str] | None = field(default=None, repr=False)
    """Their values; None where they are unknown on this side: those on the box stay."""
    min_free: Mapping[str, int] = field(default_factory=dict)
    """`bytes` and `inodes` that must be free before a cell starts; empty: the runner's own."""
    stall_seconds: float | None = None
    timeout_seconds: float | None = None
    """How long one try of a cell may take; None: as long as it likes."""
    grace_seconds: float | None = None
    """Between SIGTERM and SIGKILL of a cell; None: the runner's own."""
    on_hang: str = ""
    """`retry` or `drop`: what the runner does with a hung cell; empty: it only says so."""
    tries_again: int | None = None
    """How often a failed cell is tried again; None: `sweepstack.launch.ship.RETRIES` times."""
    mounts: Sequence[Mapping[str, Any]] = ()
    """Buckets: `path`, `source`, `mode`, `endpoint`; of no version either."""
    network: Mapping[str, Any] = field(default_factory=dict)
    """Proxy, mirrors and caches of the box; of no version: a cell that starts later has them as they are then."""
    keep: Sequence[str] = ()
    """Packages of the image that no set-up replaces (`sweepstack.onbox.runner.keep`)."""
    when_drained: Mapping[str, str] = field(default_factory=dict)
    """`native` and `command`: how the box ends its own bill then; empty: it does not."""
    lease: Mapping[str, Any] = field(default_factory=dict)
    """How the box stops itself when no command looks at it (`sweepstack.onbox.runner.lease`); empty: it does not."""
    smoke: Mapping[str, Any] = field(default_factory=dict)
    """`run` and `seconds` of a smoke run on the box, before the first cell that runs `code`; empty: none."""
    by_hand: Mapping[str, Any] = field(default_factory=dict)
    """How a person starts the box's runner (`sweepstack.profiles.access.ByHand`); empty: we do."""
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    """What each worker asks of a cluster (`sweepstack.provider.job_input.SchedulerInput`); empty: it is no cluster's
    box."""
    nodes: Mapping[str, Any] = field(default_factory=dict)
    """`peers` and `restores` of cells over several nodes (`sweepstack.onbox.runner.nodes`); empty: each has one. How
    many a cell has is in `env`."""
    image: str = ""
    """The container image that the box was rented with, for the record of each cell; empty: none is known."""

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
