"""Moves cells that have not started from one box to another. No cell ever belongs to two boxes.

The launch records of the evidence say which box has a cell. A box gives one up in this order: (1) a tombstone is put
into its queue, on the condition that the cell has not started (the runner checks that under the lock under which it
claims cells); (2) the journal is read, in which an earlier claim would stand; (3) the launch record is changed. So a
runner that was faster keeps its cell. If a command is cut off, the next one finds a cell that no box has.

The new box takes the cells when it is there and its queue is brought up; no box pushes cells to another. So if a box
can't be rented, its cells wait, and run, where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from sweepstack.core.journal import started
from sweepstack.core.observation import Existence
from sweepstack.core.records import Birth, Launch
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.entries import MOVED, append_lines, drop_line, hands_on, living, queue_entries, staying
from sweepstack.launch.first_step import read_journal
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError, PlatformError, SweepstackError
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.host_shutdown import settled
from sweepstack.operations.observe import look_up, rented_at
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.close_box import close_gone


@dataclass(frozen=True)
class OtherBox:
    """Another box. `resting`: it is stopped, so its copied journal counts if it does not answer. `gone`: its platform
    proves that it does not exist any more, as a delete requires; an outage proves nothing. `emptied`: its rented host
    proves that nothing of it is left, and bills on; its records stay open."""

    channel: Channel | None
    resting: bool = False
    gone: bool = False
    emptied: bool = False


Find = Callable[[Birth], OtherBox]
"""Looks a box up on its platform. One without a channel is one of which nothing is known."""


def find(birth: Birth, evidence: Evidence | None = None) -> OtherBox:
    """The box of a birth record, as far as it answers. Never raises for an outage. `evidence`: may have a record that
    the host was ended, which no API can tell."""
    if birth.native_id is None:
        return OtherBox(None)
    resting = False
    try:
        box = BoxAt.of(birth, evidence)
        platform = box.platform
        over = settled(box)
        if over is not None and over[0].existence is Existence.GONE:
            return OtherBox(None, gone=True)
        record = look_up(platform, birth.native_id, birth.account, rented=rented_at(birth.price_per_hour))
        phase = record.phase
        resting = phase is Phase.STOPPED  # while it is stopping, its runner may still claim cells
        if record.emptied:
            return OtherBox(None, emptied=True)
        if phase is Phase.GONE:
            return OtherBox(None, gone=True)
        if phase is Phase.UNKNOWN:
            return OtherBox(None)
        return OtherBox(platform.channel(birth.native_id, birth.account), resting)
    except PlatformError:
        return OtherBox(None, resting)


@dataclass(frozen=True)
class MovedCells:
    """What was moved. `taken`: cell → box that had it; `kept`: cell → box that keeps it, since it started there;
    `unknown`: cell → why its box can't be told; `left`: cells that this queue no longer has."""

    taken: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()


def settle(
    store: EvidenceStore,
    box: str,
    generation: int,
    channel: Channel,
    wanted: Collection[str],
    *,
    keep: Collection[str],
    elsewhere: Mapping[str, str],
    find: Find,
) -> MovedCells:
    """Takes out of this box's queue what it is not to have, and takes over from other boxes what it is to have.

    `wanted`: the cells that the program gives this box; `elsewhere`: those that it gives others, with the first digits
    of their config (`staying` until they are taken); `keep`: further ones that are not to be touched (dropped by name).
    Idempotent. Reads and appends on other boxes, and starts nothing. Raises only for this box's own queue.
    """
    others = {launch.box: launch for launch in living(store) if launch.box != box}
    held = {cell: launch for launch in others.values() for cell in launch.cells}
    own = store.launch(box, generation)
    present = queue_entries(channel)
    stay = staying(present, own, elsewhere, held)
    surplus = {name for name in set(present) - set(keep) - set(stay) if name not in wanted or name in held}
    moved = {name for name in surplus if name in elsewhere or name in held}
    left = release(store, own, channel, moved, MOVED) if moved else set()
    if surplus - moved:
        left |= release(store, own, channel, surplus - moved, "taken off the roster before it started")
    left = {name for name in left if present[name].get("op") == "add"}  # not those that an earlier call took out
    taken: dict[str, str] = {}
    kept: dict[str, str] = {}
    unknown: dict[str, str] = {}
    mine = set(own.cells) if own else set()
    births = {(birth.box, birth.generation): birth for birth in store.births()}
    for launch in others.values():
        names = {name for name in launch.cells if name in wanted and name not in mine}
        if not names:
            continue
        try:
            gone = _take_from(store, launch, names, births.get((launch.box, launch.generation)), box, find)
        except (SweepstackError, OSError) as error:
            unknown |= dict.fromkeys(names, f"box {launch.box}: {error}")
            continue
        taken |= dict.fromkeys(gone, launch.box)
        kept |= dict.fromkeys(names - gone, launch.box)
    return MovedCells(taken, kept, unknown, tuple(sorted(left)))


def _take_from(
    store: EvidenceStore, launch: Launch, names: set[str], birth: Birth | None, box: str, find: Find
) -> set[str]:
    if birth is None:
        raise EvidenceError("it has no birth record")
    with hands_on(launch.native_id):  # before the look: a stopped box must not begin to run meanwhile
        other = find(birth)
        if not other.gone:
            return _taken(store, launch, names, other, box)
        # Its records are closed first: from then on its launch record holds nothing back. That record stays as it is,
        # since the delete of what is left of the box in the state names from it which cells were lost.
        close_gone(store, box=launch.box, generation=launch.generation, native_id=launch.native_id)
        return names


def _taken(store: EvidenceStore, launch: Launch, names: set[str], other: OtherBox, box: str) -> set[str]:
    if other.emptied:
        return _forget(store, launch, names)
    if other.channel is not None:
        try:
            return release(store, launch, other.channel, names, f"moved to box {box}")
        except (PlatformError, OSError):
            if not other.resting:
                raise
    elif not other.resting:
        raise PlatformError("it can't be reached")
    journal, rest = store.journal(launch.box, launch.generation), store.rest(launch.box, launch.generation)
    if journal is None:
        raise EvidenceError("it is stopped, and no copy of its journal was kept")
    if rest is None or not rest.speaks_for(launch.native_id, journal):
        raise EvidenceError(
            "it was not stopped by sweepstack and can't be read: a cell may have started there after its journal was "
            f"copied last. Start it (boxes.{launch.box}.want: running), or give up what is only there: "
            f"sweepctl give-up data/{launch.box}"
        )
    # Nothing runs there. Before its runner starts again, `settle` takes out of its queue what others have.
    return _forget(store, launch, {name for name in names if not started(journal.cells.get(name))})


def release(
    store: EvidenceStore, launch: Launch | None, channel: Channel, names: Iterable[str], reason: str
) -> set[str]:
    """Takes cells out of a box's queue unless they have started. Returns those that it has no more."""
    with hands_on(channel.native_id):
        present = queue_entries(channel)
        asked = set(names)
        gone = [name for name in sorted(asked) if present.get(name, {}).get("op") == "add"]
        before = read_journal(channel)
        waits = [name for name in gone if not started(before.cells.get(name))]
        append_lines(channel, [drop_line(name, reason, unless_started=True) for name in waits])
        after = read_journal(channel)
        free = {name for name in asked if not started(after.cells.get(name))}
        return _forget(store, launch, free)


def _forget(store: EvidenceStore, launch: Launch | None, names: set[str]) -> set[str]:
    now = store.launch(launch.box, launch.generation) if launch is not None else None
    if now is not None and names & set(now.cells):
        cells = {name: digest for name, digest in now.cells.items() if name not in names}
        store.write_launch(now.model_copy(update={"cells": cells}))
    return names


def unplaced(
    store: EvidenceStore,
    box: str,
    generation: int,
    wanted: Collection[str],
    find: Find,
    again: Mapping[str, str | None] | None = None,
) -> list[str]:
    """Cells that the program gives this box, that have not started anywhere, and that its queue was not given yet.

    A move that failed or was cut off leaves such cells. Empty if that can't be told. No box runs verified cells, unless
    they are to run `again`: cell → the manifest of the result that does not count any more.
    """
    again = again or {}
    try:
        own = store.launch(box, generation)
        digest = store.latest_receipt()
        known = store.receipt(digest).cells if digest else ()
        verified = {c.name for c in known if c.state == "verified" and again.get(c.name, "") != c.manifest}
        missing = set(wanted) - set(own.cells if own else ()) - verified
        if not missing:
            return []
        found = set(missing)
        births = {(birth.box, birth.generation): birth for birth in store.births()}
        for launch in living(store):
            theirs = missing & set(launch.cells)
            if launch.box == box or not theirs:
                continue
            found -= theirs
            birth = births.get((launch.box, launch.generation))
            other = find(birth) if birth else OtherBox(None)
            if other.gone or other.emptied:
                found |= theirs
            elif other.channel is not None:
                journal = read_journal(other.channel)
                found |= {name for name in theirs if not started(journal.cells.get(name))}
    except (SweepstackError, OSError):
        return []
    return sorted(found)
