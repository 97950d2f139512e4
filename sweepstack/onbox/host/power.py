"""The power state of a local box (running, stopping, stopped): one small file, replaced by rename.

    <box>/power.json    {schema, state, at, ready_at}; not there while the box was never stopped
    <box>/power.lock    flock: held by a stop, or a start, from its first step to its last

A stop first writes `stopping` (from then on nothing is started), then ends the processes, wipes the tiers that a stop
kills, and writes `stopped` last. So after a kill -9 at any moment the next stop or start finishes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import NotYetGone, NotYetStopped, PlatformError, Unreachable
from sweepstack.onbox.common.locks import take
from sweepstack.onbox.host import peers, removal
from sweepstack.onbox.host.box_folders import LocalStore, answering, read_facts
from sweepstack.onbox.host.platform import Phase, Wait

POWER, LOCK = "power.json", "power.lock"
KILLED_BY_STOP = ("scratch",)
"""Tiers that a stop wipes; profiles/local.md says the same, and a test compares them."""
STORE_LOCK_SECONDS = 60.0
STOP_LOCK_SECONDS = 120.0
State = Literal["running", "stopping", "stopped"]
_PHASES: dict[str, Phase] = {"running": Phase.RUNNING, "stopping": Phase.STOPPING, "stopped": Phase.STOPPED}


@dataclass(frozen=True)
class Power:
    """The file's content. `at`: when it was written; `ready_at`: when a start is finished; None without a start."""

    phase: Phase = Phase.RUNNING
    ready_at: datetime | None = None
    at: datetime | None = None


def read_power(box: Path) -> Power:
    """The box's power state. Raises ValueError when the file can't be read: then the state is not known."""
    try:
        facts = read_facts(box / POWER)
    except FileNotFoundError:
        return Power()
    try:
        ready, at = (datetime.fromisoformat(facts[name]) if facts.get(name) else None for name in ("ready_at", "at"))
        return Power(_PHASES[facts["state"]], ready, at)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{POWER} does not read: {error!r}") from error


def closed(box: Path, ending: str) -> str:
    """Why nothing may be started on the box now, as the end of a sentence; "" when it may."""
    if (box / ending).exists():
        return "is being destroyed: nothing is started on it any more"
    try:
        phase = read_power(box).phase
    except ValueError as error:
        return f"may be stopped ({error}): nothing is started on it"
    return "" if phase is Phase.RUNNING else f"is {phase}: nothing runs on it until it is started again"


@dataclass(frozen=True)
class Switch:
    """Stops and starts one box. `ending`: the name of the file that marks a box which is being destroyed."""

    store: LocalStore
    box: Path
    native_id: str
    ending: str
    grace: float
    end: Callable[[float], None]
    """Ends all that runs of the box, with so many seconds of grace. Raises NotYetGone."""
    at_work: Callable[[], list[str]]
    """What runs of the box, in words."""

    def stop(self) -> None:
        """See `CanStop.stop`."""
        with self._locked():
            if self._state() is not Phase.STOPPED or self.at_work():
                self._finish_stop()

    def start(self, ready_at: datetime | None) -> None:
        """See `CanStop.start`; does not wait until the box is ready."""
        with self._locked():
            phase = self._state()
            if phase is Phase.STOPPING:  # its scratch may be half wiped: finish the stop first
                self._finish_stop()
            if phase is not Phase.RUNNING:
                self._write_state("running", ready_at)

    def _finish_stop(self) -> None:
        self._write_state("stopping")
        try:
            self.end(self.grace)
            peers.free(self.box, self.native_id)
            for tier in KILLED_BY_STOP:
                removal.wipe(self.box / tier)
            self.end(0)  # processes that were being started during the first look
        except NotYetGone as error:
            raise NotYetStopped(f"{self.native_id} is not at rest yet: {error}") from error
        self._write_state("stopped")

    def _state(self) -> Phase:
        """The phase. Raises PlatformError when the box is gone or is being destroyed. A file that can't be read counts
        as an interrupted stop."""
        with answering(self.box):
            if not os.path.lexists(self.box):
                raise PlatformError(f"{self.native_id} is gone: there is nothing to stop or start")
            if self.box.is_symlink() or os.path.lexists(self.box / self.ending):
                raise PlatformError(f"{self.native_id} is being destroyed: it is not stopped or started any more")
            try:
                return read_power(self.box).phase
            except ValueError:
                return Phase.STOPPING

    def _write_state(self, state: State, ready_at: datetime | None = None) -> None:
        facts = {"schema": 1, "state": state, "at": datetime.now(timezone.utc).isoformat()}
        if ready_at is not None:
            facts["ready_at"] = ready_at.isoformat()
        # Under the lock that a destroy takes, too: writing makes folders, and must not make the one just removed.
        with self.store.locked(Wait(STORE_LOCK_SECONDS)), answering(self.box):
            self._state()
            write_json_atomically(self.box / POWER, facts)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the box's power lock: a start must not begin while a stop still wipes."""
        self._state()
        with answering(self.box):
            try:
                holder = open(self.box / LOCK, "ab")  # noqa: SIM115 - closed below, after the caller's work
            except FileNotFoundError:
                self._state()
                raise
        with holder:
            wait = Wait(STOP_LOCK_SECONDS)
            why = wait.until(lambda: take(holder.fileno()), f"{self.native_id} to be free of another stop or start")
            if why:
                raise Unreachable(f"{why}; nothing was changed")
            yield


def phase_of(box: Path, now: datetime) -> Phase:
    """The phase of a box that is not being destroyed. Raises ValueError when the file can't be read."""
    power = read_power(box)
    if power.phase is Phase.RUNNING and power.ready_at is not None:
        return Phase.CREATING if being_made(power.at or now, power.ready_at, now) else Phase.RUNNING
    return power.phase


def being_made(begun: datetime, ready_at: datetime, now: datetime) -> bool:
    """Whether a start that began at `begun` is not finished. Before `begun` it is: the clock was set back since, and
    by it the box would not be ready for as long as that."""
    return begun <= now < ready_at
