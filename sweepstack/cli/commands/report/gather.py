"""Gathers what a sweep's page shows: journals, curves, patrols, results, decisions.

What can't be read is left out and named; nothing is waited for beyond the deadlines of the look at the boxes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sweepstack.cli.commands.report.cells import of_cells
from sweepstack.cli.silent_hosts import LOOK_SECONDS
from sweepstack.cli.sources import Sources
from sweepstack.core.heartbeat import Patrol, parse_patrols
from sweepstack.core.parallel import in_parallel
from sweepstack.core.pieces import pieces
from sweepstack.core.records import Approval, Birth
from sweepstack.evidence.box_logs import known, read
from sweepstack.evidence.cell_store import each
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.retries import on_record
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.report.facts import BoxStory, SweepFacts
from sweepstack.status.model import SweepView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.launched import copied_journal

AnswerT = TypeVar("AnswerT")


def gather(sources: Sources, snapshot: Snapshot, view: SweepView) -> SweepFacts:
    """All facts. Blocks for reads of the evidence, and for `LOOK_SECONDS` at most for the boxes. Costs nothing."""
    states = {cell.name: cell for cell in view.cells}
    left = of_cells(sources, snapshot, states)
    store = sources.store
    notes: list[str] = []
    clearances: dict[str, Approval] = {}
    for birth in snapshot.births:
        approval = _safely(partial(_clearance, store, birth), None, notes)
        if birth.native_id is not None and approval is not None:
            clearances[birth.native_id] = approval
    return SweepFacts(
        snapshot=snapshot,
        view=view,
        boxes=tuple(_stories(snapshot, store)),
        results=left.results,
        x=left.x,
        curves=left.curves,
        clearances=clearances,
        retries=_safely(lambda: on_record(store) if store else {}, {}, notes),
        thinned=left.thinned,
        sampled=left.sampled,
        not_read=left.not_read,
        notes=tuple(dict.fromkeys(notes)),
    )


# Boxes


def _stories(snapshot: Snapshot, store: EvidenceStore | None) -> list[BoxStory]:
    """Every generation that was ever rented, by box and generation; those of the state with what they say now."""
    seen = {(one.box.name, one.box.generation): one for one in snapshot.box_snapshots}
    begun = {(one.box, one.generation): one.native_id for one in snapshot.births if one.native_id is not None}
    for key, one in seen.items():
        begun.setdefault(key, one.box.native_id)
    keys = sorted(begun)
    answering = {key: one for key, one in seen.items() if one.reachable}
    asked = in_parallel({key: partial(_patrols_on, one) for key, one in answering.items()}, LOOK_SECONDS)

    def story(key: tuple[str, int]) -> BoxStory:
        box, generation = key
        live = seen.get(key)
        journal = (
            live.journal if live is not None and live.journal is not None else copied_journal(store, box, generation)
        )
        patrols = asked.get(key) or _patrols_of_copy(store, box, generation)
        working = live.seen.runner_alive if live is not None else False
        return BoxStory(box, generation, begun[key], journal, working, tuple(patrols))

    return list(each(store.copies, story, keys) if store is not None else map(story, keys))


def _patrols_on(box_snapshot: BoxSnapshot) -> list[Patrol]:
    try:
        channel = box_snapshot.box.context().channel()
        read_at = lambda offset, limit: channel.read(box_layout.PATROL, offset=offset, limit=limit)  # noqa: E731
        found = pieces(read_at, channel.size(box_layout.PATROL) or 0)
    except (SweepstackError, OSError):
        return []
    return [patrol for data in found for patrol in parse_patrols(data)]


def _patrols_of_copy(store: EvidenceStore | None, box: str, generation: int) -> list[Patrol]:
    """The end of the patrol's file, as it was copied with the box's logs."""
    if store is None:
        return []
    try:
        kept = known(store, box, generation)
        log = next((one for one in kept.logs if one.path == box_layout.PATROL), None)
        return parse_patrols(read(store, kept, log) or b"") if log is not None else []
    except (SweepstackError, OSError):
        return []


def _clearance(store: EvidenceStore | None, birth: Birth) -> Approval | None:
    return store.clearance(birth.native_id) if store is not None and birth.native_id is not None else None


def _safely(ask: Callable[[], AnswerT], without: AnswerT, notes: list[str]) -> AnswerT:
    try:
        return ask()
    except SweepstackError as error:
        notes.append(str(error))
        return without
