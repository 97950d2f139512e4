"""Gathers what a sweep's page shows: journals, curves, patrols, results, decisions.

What can't be read is left out and named; nothing is waited for beyond the deadlines of the look at the boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sweepstack.cli.artifact_specs import files_of
from sweepstack.cli.cell_file import CellFile, find_copy, find_file, find_pulled
from sweepstack.cli.cell_results import gather as gather_results
from sweepstack.cli.silent_hosts import LOOK_SECONDS
from sweepstack.cli.sources import Sources
from sweepstack.core.heartbeat import Patrol, parse_patrols
from sweepstack.core.metrics import Row, Series, number, parse_rows, series
from sweepstack.core.parallel import in_parallel
from sweepstack.core.pieces import is_sampled, pieces
from sweepstack.core.records import Approval, Birth
from sweepstack.evidence.box_logs import known, read
from sweepstack.evidence.cell_store import each
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.retries import on_record
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.report.curves import most_of, thinned
from sweepstack.report.facts import BoxStory, SweepFacts
from sweepstack.status.model import CellView, SweepView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.launched import copied_journal

MOST_FROM_BOXES = 60
"""Of cells that are not verified, so many files are fetched from boxes; of all others, copies are read."""
MOST_METRICS = 16
NOT_BEGUN = ("pending", "blocked_disk")

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


def gather(sources: Sources, snapshot: Snapshot, view: SweepView) -> SweepFacts:
    """All facts. Blocks for reads of the evidence, and for `LOOK_SECONDS` at most for the boxes. Costs nothing."""
    states = {cell.name: cell for cell in view.cells}
    results, _ = gather_results(sources, snapshot, list(snapshot.roster), states, False)
    x, curves, sampled, not_read = _curves(sources, snapshot, states)
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
        results=tuple(results),
        x=x,
        curves=curves,
        clearances=clearances,
        retries=_safely(lambda: on_record(store) if store else {}, {}, notes),
        sampled=sampled,
        not_read=not_read,
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

    return [*_each(store, story, keys)]


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


# Curves


def _curves(
    sources: Sources, snapshot: Snapshot, states: dict[str, CellView]
) -> tuple[str, dict[str, tuple[Series, ...]], int, int]:
    """The x, metric → curves, of how many cells pieces were read, and of how many cells nothing was."""
    _, entry = files_of(sources.target, snapshot)
    if entry is None:
        return "", {}, 0, 0
    begun = [cell.name for cell in snapshot.roster if states[cell.name].state not in NOT_BEGUN]
    on_boxes = [name for name in begun if states[name].state != "verified"][:MOST_FROM_BOXES]
    fetched = set(on_boxes)
    most = most_of(len(begun))

    def ask(name: str) -> tuple[str, dict[str, Series] | None, bool]:
        """The cell's curves, thinned at once: the rows of a thousand cells would take half a gigabyte."""
        file = _file(sources, snapshot, name, entry.file, states[name].state, name in fetched)
        if file is None:
            return name, None, False
        try:
            size = file.size()
            found = pieces(file.read, size)
        except (SweepstackError, OSError):
            return name, None, False
        header = found[0].partition(b"\n")[0] + b"\n"
        rows = list(parse_rows(found[0], entry.file))
        for data in found[1:]:
            rows += parse_rows(data, entry.file, header=header)
        made = {metric: series(rows, name, entry.x, metric) for metric in _metrics(entry.y, entry.x, rows)}
        some = {metric: replace(one, points=tuple(thinned(one.points, most))) for metric, one in made.items()}
        return name, some if rows else None, is_sampled(size)

    answers = list(_each(sources.store, ask, begun))
    curves: dict[str, list[Series]] = {metric: [] for metric in entry.y}
    for _, made, _ in answers:
        for metric, one in (made or {}).items():
            if one.points:
                curves.setdefault(metric, []).append(one)
    shown = {metric: tuple(found) for metric, found in list(curves.items())[:MOST_METRICS] if found}
    not_read = sum(made is None and states[name].state != "verified" for name, made, _ in answers)
    return entry.x, shown, sum(sampled for _, _, sampled in answers), not_read


def _metrics(first: Iterable[str], x: str, rows: Sequence[Row]) -> list[str]:
    """The metrics that the stack file names, and every other number in the first or the last row."""
    others = (key for row in (*rows[:1], *rows[-1:]) for key, value in row.items() if number(value) is not None)
    return [key for key in dict.fromkeys([*first, *others]) if key != x][:MOST_METRICS]


def _file(sources: Sources, snapshot: Snapshot, cell: str, file: str, state: str, from_box: bool) -> CellFile | None:
    """A verified cell is read only from its verified copy."""
    try:
        if state == "verified":
            return find_copy(sources, cell, None, file)
        return find_file(sources, snapshot, cell, None, file) if from_box else find_pulled(sources, cell, None, file)
    except (SweepstackError, OSError):
        return None


def _each(store: EvidenceStore | None, ask: Callable[[ItemT], AnswerT], items: Iterable[ItemT]) -> Iterable[AnswerT]:
    """One by one, or side by side where the evidence is far away."""
    return each(store.copies, ask, items) if store is not None else map(ask, items)


def _safely(ask: Callable[[], AnswerT], without: AnswerT, notes: list[str]) -> AnswerT:
    try:
        return ask()
    except SweepstackError as error:
        notes.append(str(error))
        return without
