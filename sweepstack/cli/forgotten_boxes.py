"""Boxes that are in the records but not in the state: a person can approve their end already.

If the provider is killed during a create, the state has no box, but the box bills. Its birth record says which sweep it
belongs to, and the platform says that it exists. That is enough for an approval; the delete checks everything again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.records import Birth
from sweepstack.core.roster import Roster
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.entries import living
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.operations.observe import observe, rented_at
from sweepstack.platforms.registry import has_address
from sweepstack.status.engine.state import BoxEntry, StackState
from sweepstack.status.snapshot import BoxSnapshot, Orphan, Snapshot
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.check import may_end

_ALL = TeardownFacts(verb="destroy", kills=("everything on it",), keeps=())
"""What an end does to each tier is written in the state, which lacks this box: so the worst case is assumed."""


def with_forgotten(snapshot: Snapshot, store: EvidenceStore | None, given_up: Container[str] = ()) -> Snapshot:
    """The snapshot with those of these boxes that the platform proves to exist; and with those of `given_up` on hosts
    that can't tell: what follows the approval there is a person's confirmation. Reads only."""
    if store is None:
        return snapshot
    known = {box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if not box_snapshot.gone}
    found = []
    for orphan in snapshot.orphans:
        birth = _birth(snapshot, orphan, given_up)
        if (
            birth is not None
            and birth.box not in known
            and (box_snapshot := _box_snapshot(snapshot, store, orphan, birth))
        ):
            found.append(box_snapshot)
            known.add(birth.box)
    return replace(snapshot, box_snapshots=(*snapshot.box_snapshots, *found)) if found else snapshot


def entry_of(store: EvidenceStore, birth: Birth, evidence: str) -> BoxEntry:
    """A state entry made from a birth record, which must have a native id."""
    return BoxEntry(
        urn="",
        identity=store.marker.identity,
        evidence=evidence,
        adapter=birth.platform,
        name=birth.box,
        native_id=birth.native_id or "",
        account=birth.account,
        generation=birth.generation,
        tag=birth.tag,
        price_per_hour=birth.price_per_hour,
        created_at=birth.created_at or birth.begun_at,
        mounts=birth.mounts,
        roster_digest=Roster(()).digest,
        teardown=_ALL,
    )


def _birth(snapshot: Snapshot, orphan: Orphan, given_up: Container[str]) -> Birth | None:
    """The open birth record of a box that is proved to exist, or that may be given up all the same."""
    if orphan.kind != "box" or orphan.native_id is None:
        return None
    if not orphan.proved and not (orphan.box in given_up and has_address(orphan.platform or "")):
        return None
    open_ones = (birth for birth in snapshot.births if birth.ended_at is None and birth.tag == orphan.tag)
    return next((birth for birth in open_ones if birth.native_id in (None, orphan.native_id)), None)


def _box_snapshot(snapshot: Snapshot, store: EvidenceStore, orphan: Orphan, birth: Birth) -> BoxSnapshot | None:
    assert orphan.native_id is not None
    box = entry_of(store, birth, snapshot.evidence or "").model_copy(
        update={
            "native_id": orphan.native_id,
            "price_per_hour": orphan.price_per_hour,
            "created_at": orphan.since,
            "roster_digest": Roster(snapshot.roster, dict(snapshot.dropped)).digest,
        }
    )
    try:
        rented = rented_at(birth.price_per_hour)
        known = box.context()
        seen, record = observe(known, rented=rented)
        launch = store.launch(box.name, box.generation)
    except (EvidenceError, SweepstackError):
        return None
    return BoxSnapshot(
        box=box,
        queue=None,
        launch=launch,
        seen=seen,
        verdict=may_end(BoxEnding(known, None, seen), now=snapshot.now, full=False),
        phase=record.phase.value if record else "unknown",
        where=record.location if record else "",
        price_per_hour=orphan.price_per_hour,
        since=orphan.since,
        journal=seen.journal,
    )


def cells_of_forgotten(state: StackState, store: EvidenceStore | None, orphans: Iterable[Orphan]) -> dict[str, str]:
    """The cells of boxes that the state lacks: cell → box. Empty if there is no such box."""
    names = {orphan.box for orphan in orphans if orphan.kind == "box"}
    if store is None or not names:
        return {}
    known = {box.native_id for box in state.boxes}
    return {
        cell: launch.box
        for launch in living(store)
        if launch.box in names and launch.native_id not in known
        for cell in launch.cells
    }
