"""Gathers what a sweep's page shows: journals, curves, patrols, results, decisions.

What can't be read is left out and named; nothing is waited for beyond the deadlines of the look at the boxes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sweepstack.cli.commands.report.cells import of_cells
from sweepstack.cli.commands.report.patrols import Patrols, patrols_of_copy, patrols_on
from sweepstack.cli.silent_hosts import LOOK_SECONDS
from sweepstack.cli.sources import Sources
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Approval, Birth
from sweepstack.evidence.cell_store import each
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.retries import on_record
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.report.facts import BoxStory, SweepFacts, task_of
from sweepstack.status.model import SweepView
from sweepstack.status.snapshot import Snapshot
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
        joined=left.joined,
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
    asked = in_parallel({key: partial(patrols_on, one) for key, one in answering.items()}, LOOK_SECONDS)

    def story(key: tuple[str, int]) -> BoxStory:
        box, generation = key
        live = seen.get(key)
        journal = (
            live.journal if live is not None and live.journal is not None else copied_journal(store, box, generation)
        )
        working = live.seen.runner_alive if live is not None else False
        found = asked.get(key) or Patrols()
        if not found:
            found = patrols_of_copy(store, box, generation, journal)
        whole = len({task_of(name) for name in journal.workers}) if journal is not None else 0
        more = max(whole - len(found.workers), 0) if found.workers else 0
        return BoxStory(box, generation, begun[key], journal, working, found.own, found.workers, more)

    return list(each(store.copies, story, keys) if store is not None else map(story, keys))


def _clearance(store: EvidenceStore | None, birth: Birth) -> Approval | None:
    return store.clearance(birth.native_id) if store is not None and birth.native_id is not None else None


def _safely(ask: Callable[[], AnswerT], without: AnswerT, notes: list[str]) -> AnswerT:
    try:
        return ask()
    except SweepstackError as error:
        notes.append(str(error))
        return without
