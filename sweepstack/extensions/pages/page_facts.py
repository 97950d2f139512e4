"""Gathers what the page of a sweep shows, whether it runs or is over.

Results are of cells that are verified, curves of all that began; the patrols of boxes come from the box, else from the
copy of its logs. What can't be read is left out and named; nothing is waited for beyond the deadlines of the look at
the boxes.

Each cell's files are looked for and read once, and its curves are thinned out at once: of a thousand cells there are a
million rows, which would take half a gigabyte. A box that several workers share has a file for each start of each
worker. All tries of one task are one series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from sweepstack.cli.commands.results.order import Wanted
from sweepstack.config.searched import search_of
from sweepstack.core import trackers
from sweepstack.core.curve_files import has_holes, is_text
from sweepstack.core.heartbeat import Patrol, parse_patrols
from sweepstack.core.job import MetricsInput
from sweepstack.core.journal import Journal
from sweepstack.core.metrics import Row, Series, column, number, paired, parse_rows
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Approval, Birth, Cell
from sweepstack.core.results import CellResult
from sweepstack.evidence.box_logs import copied_logs, read_copied_log
from sweepstack.evidence.cell_store import each
from sweepstack.evidence.search_log import read_search_log
from sweepstack.evidence.store import EvidenceStore
from sweepstack.extensions.pages.curves import most_of, thinned
from sweepstack.extensions.pages.page_data import BoxStory, CellsRead, SweepFacts, task_of
from sweepstack.extensions.pages.pieces import WHOLE_BYTES, is_sampled, pieces
from sweepstack.launch.retries import recorded_retries
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.operations.sweep.cell_file import CellFile, find_pulled
from sweepstack.operations.sweep.cell_results import (
    CellFiles,
    files_of,
    find_own,
    joined,
    read_rows,
    result_of,
    whole_curve,
)
from sweepstack.operations.sweep.collect import LOOK_SECONDS
from sweepstack.operations.sweep.sources import Sources
from sweepstack.status.model import CellView, SweepView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.launched import copied_journal

AnswerT = TypeVar("AnswerT")


def sweep_facts(sources: Sources, snapshot: Snapshot, view: SweepView) -> SweepFacts:
    """All facts. Blocks for reads of the evidence, and for `LOOK_SECONDS` at most for the boxes. Costs nothing."""
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
        cells=of_cells(sources, snapshot, {cell.name: cell for cell in view.cells}),
        clearances=clearances,
        retries=_safely(lambda: recorded_retries(store) if store else {}, {}, notes),
        wanted=_wanted(sources, snapshot),
        pruned=_safely(lambda: _pruned(store) if store else (), (), notes),
        notes=tuple(dict.fromkeys(notes)),
        trackers=tuple(f"{one['tracker']}: {one['words']}" for one in trackers.links(sources.state)),
    )


def _wanted(sources: Sources, snapshot: Snapshot) -> Wanted | None:
    """What the stack declares of it: the goal of its search, else the first metric, by its name; None where it names
    neither."""
    try:
        search = search_of(sources.target.file.sweep())
    except SweepstackError:
        search = None
    if search is not None and search.metric is not None:
        return Wanted(search.metric, search.goal == "minimize")
    _, metrics = files_of(sources.target, snapshot)
    return Wanted.read(metrics.y[0]) if metrics is not None and metrics.y else None


def _pruned(store: EvidenceStore) -> tuple[CellResult, ...]:
    """The cells that a rule stopped, with the value that it went by. Raises EvidenceError."""
    log = read_search_log(store.objects)
    return tuple(
        CellResult(name, log.suggested[name].params, "pruned", {} if step.value is None else {step.metric: step.value})
        for name, step in log.pruned.items()
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


MOST_FROM_BOXES = 60
"""Of cells that are not verified, so many files are fetched from boxes; of all others, copies are read."""
MOST_METRICS = 16
NOT_BEGUN = ("pending", "blocked_disk")


@dataclass(frozen=True)
class Curves:
    """Those of one cell, metric → curve; empty where its file could not be read. `sampled`: only pieces of it were
    read. `longest`: the points of its longest curve, before they were thinned out. `joined`: they begin with rows of
    earlier tries."""

    made: Mapping[str, Series] = field(default_factory=dict)
    sampled: bool = False
    longest: int = 0
    joined: bool = False


def of_cells(sources: Sources, snapshot: Snapshot, states: Mapping[str, CellView]) -> CellsRead:
    """Blocks for reads of the evidence, and of at most `MOST_FROM_BOXES` files on boxes. What can't be read is left
    out."""
    _, metrics = files_of(sources.target, snapshot)
    begun = [cell.name for cell in snapshot.roster if states[cell.name].state not in NOT_BEGUN]
    from_boxes = set([name for name in begun if states[name].state != "verified"][:MOST_FROM_BOXES])
    most, wanted = most_of(len(begun)), frozenset(begun)

    def ask(cell: Cell) -> tuple[CellResult | None, Curves | None]:
        state = states[cell.name].state
        hold = WHOLE_BYTES if metrics is not None else 0
        there = CellFiles(sources, snapshot, cell.name, state, hold=hold, asks_box=cell.name in from_boxes)
        own = files_of(sources.target, snapshot, cell.name)
        earlier = states[cell.name].earlier  # whose curves are those of the run since
        copy = CellFiles(sources, snapshot, cell.name, state, earlier=True) if earlier else there
        result = result_of(cell, copy, *own) if states[cell.name].has_result else None
        if metrics is None or cell.name not in wanted:
            return result, None
        return result, _curves(sources, there, cell, metrics, most)

    cells = snapshot.roster
    found = list(each(sources.store.copies, ask, cells) if sources.store is not None else map(ask, cells))
    read = [curves for _, curves in found if curves is not None]
    by_metric: dict[str, list[Series]] = {metric: [] for metric in (metrics.y if metrics is not None else ())}
    for curves in read:
        for metric, one in curves.made.items():
            if one.points:
                by_metric.setdefault(metric, []).append(one)
    shown = {metric: tuple(lines) for metric, lines in list(by_metric.items())[:MOST_METRICS] if lines}
    return CellsRead(
        results=tuple(result for result, _ in found if result is not None),
        x=metrics.x if metrics is not None else "",
        curves=shown,
        thinned=most if any(curves.longest > most for curves in read) else 0,
        joined=sum(curves.joined for curves in read),
        sampled=sum(curves.sampled for curves in read),
        not_read=sum(
            curves is not None and not curves.made and states[cell.name].state != "verified"
            for cell, (_, curves) in zip(cells, found, strict=True)
        ),
    )


def _curves(sources: Sources, there: CellFiles, cell: Cell, entry: MetricsInput, most: int) -> Curves:
    """The curves of one cell, with about `most` points each."""
    file = find_own(there, cell, entry.file)
    if file is None:
        return Curves()
    try:
        rows, sampled = _rows(file, entry.file)
    except (SweepstackError, OSError):
        return Curves()
    if not rows:
        return Curves(sampled=sampled)
    own = own_file(entry.file, cell.name, cell.params)
    parts = joined(rows, file.attempt, entry.x, partial(_earlier_rows, sources, cell.name, own))
    whole = whole_curve(parts, rows, file.attempt, entry.x)
    across, made, longest = column(whole, entry.x), {}, 0
    for metric in _metrics(entry, whole):
        xs, ys = paired(across, column(whole, metric))
        made[metric] = Series(there.cell, metric, tuple(thinned(xs, ys, most)))
        longest = max(longest, len(ys))
    return Curves(made, sampled, longest, bool(parts))


def _rows(file: CellFile, name: str) -> tuple[list[Row], bool]:
    """The rows of a metrics file, and whether they are only some of it: of a long text. Raises as `read_rows`."""
    if not is_text(name):
        return read_rows(file, name), False
    size = file.size()
    found = pieces(file.read, size)
    header = found[0].partition(b"\n")[0] + b"\n"
    rows = parse_rows(found[0], name)
    for data in found[1:]:
        rows += parse_rows(data, name, header=header)
    return rows, is_sampled(size)


def _earlier_rows(sources: Sources, cell: str, path: str, attempt: int) -> tuple[str, list[Row]]:
    """The rows of the metrics file of an earlier attempt, from a copy. Raises SweepstackError, OSError."""
    file = find_pulled(sources, cell, attempt, path)
    return file.words, parse_rows(file.whole(WHOLE_BYTES), path) if is_text(path) else read_rows(file, path)


def _metrics(entry: MetricsInput, rows: Sequence[Row]) -> list[str]:
    """The metrics that the stack file names, and every other number in the first or the last row; where a row need not
    have all, in any."""
    looked = rows if has_holes(entry.file) else (*rows[:1], *rows[-1:])
    others = (key for row in looked for key, value in row.items() if number(value) is not None)
    return [key for key in dict.fromkeys([*entry.y, *others]) if key != entry.x][:MOST_METRICS]


WORKERS = 48
"""Of so many starts of workers the lines are read, those that began last: as many as `pull` copies."""
TAIL_BYTES = 128 << 10
"""The end of each of their files."""


@dataclass(frozen=True)
class Patrols:
    """`own`: of the box's one runner; `workers`: task → lines of its workers. Each by time."""

    own: tuple[Patrol, ...] = ()
    workers: Mapping[str, tuple[Patrol, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.own or self.workers)


def patrols_on(box_snapshot: BoxSnapshot) -> Patrols:
    """What the box itself has. Blocks for reads of it. Nothing where that can't be read."""
    try:
        channel, journal = box_snapshot.box.context().channel(), box_snapshot.journal
        if journal is not None and journal.workers:
            return _of_workers(channel, journal)
        read_at = lambda offset, limit: channel.read(box_layout.PATROL, offset=offset, limit=limit)  # noqa: E731
        found = pieces(read_at, channel.size(box_layout.PATROL) or 0)
    except (SweepstackError, OSError):
        return Patrols()
    return Patrols(tuple(patrol for data in found for patrol in parse_patrols(data)))


def patrols_of_copy(store: EvidenceStore | None, box: str, generation: int, journal: Journal | None) -> Patrols:
    """The ends of the patrols' files, as they were copied with the box's logs."""
    if store is None:
        return Patrols()
    try:
        kept = copied_logs(store, box, generation)
        copied = {
            log.path: read_copied_log(store, kept, log) or b""
            for log in kept.logs
            if log.path.endswith("/patrol.jsonl")
        }
    except (SweepstackError, OSError):
        return Patrols()
    own = tuple(parse_patrols(copied.get(box_layout.PATROL, b"")))
    return Patrols(own, _by_task(journal.workers if journal is not None else (), copied))


def _of_workers(channel: Channel, journal: Journal) -> Patrols:
    names = [one.name for one in sorted(journal.workers.values(), key=lambda one: one.began_at)][-WORKERS:]
    tails = channel.tails([box_layout.worker_patrol(name) for name in names], TAIL_BYTES)
    return Patrols(workers=_by_task(names, {path: data for path, (_, data) in tails.items()}))


def _by_task(names: Iterable[str], files: Mapping[str, bytes]) -> dict[str, tuple[Patrol, ...]]:
    found: dict[str, list[Patrol]] = {}
    for name in names:
        if lines := parse_patrols(files.get(box_layout.worker_patrol(name), b"")):
            found.setdefault(task_of(name), []).extend(lines)
    return {task: tuple(sorted(lines, key=lambda one: one.time)) for task, lines in found.items()}
