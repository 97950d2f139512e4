"""A round of a search: what the extension decides, on record, and new cells to the queues.

A decision is one write to the log. What stands there and in no queue is brought by the engine, under the stack's lock:
first what an earlier round left behind. Of two at once the log takes one, and the other decides anew in its next round.

A box is told at once what a rule stopped on it, by the line that the engine would append: a cell that need not run
costs money in each of the engine's seconds. The engine's state follows with the next new cells, or a minute later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sweepstack.config.search import SearchConfig
from sweepstack.config.searched import search_of
from sweepstack.core.curve_files import missing_reader
from sweepstack.core.parallel import in_parallel
from sweepstack.core.search_log import Step
from sweepstack.evidence.object_store import ObjectStore
from sweepstack.evidence.search_log import append, read_search_log
from sweepstack.evidence.store import EvidenceStore
from sweepstack.extensions.search.decisions import decisions
from sweepstack.launch.entries import append_lines, drop_line, hands_on, queue_and_size
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceError, SweepstackError
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.cell_results import files_of
from sweepstack.operations.sweep.roster_diff import file_roster
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.tend import Round, Run, up_alone
from sweepstack.status.compose import SweepView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot

MOVES: Mapping[str, frozenset[str]] = {
    "Queue": frozenset({"cells", "elsewhere", "sources", "dropped", "roster_digest", "rosterDigest"}),
    "Box": frozenset({"roster_digest", "rosterDigest"}),
    "Gate": frozenset({"roster_digest", "rosterDigest"}),
    "Identity": frozenset({"roster_digest", "rosterDigest", "outlook"}),
}
"""What may change where cells of a search are brought in: the lists of cells, and their digest."""
TELL_SECONDS = 20.0
LATER_SECONDS = 60.0
"""So long the engine's state may not know of a stop that the boxes know: each call of the engine takes seconds."""


@dataclass(frozen=True)
class Decided:
    """What a round decided. `drawn`, `stopped`: cells; `pruned`: all that are stopped by now, and by which line;
    `note`: why it does not go on, "" where it does."""

    drawn: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    pruned: Mapping[str, Step] = field(default_factory=dict)
    note: str = ""


def search_on(sources: Sources, store: EvidenceStore, snapshot: Snapshot, view: SweepView, round_: Round) -> bool:
    """Decides what can be decided of a search, and has the boxes end what is stopped. Returns whether it goes on. Costs
    no money by itself. Raises ConfigError."""
    try:
        decided = decide(sources, store, snapshot, view)
    except EvidenceError as error:  # all else of a round goes on
        round_.problems.append(f"search: nothing is drawn or stopped: {error}")
        return False
    enough = "the budget is used up, so nothing more is drawn" if snapshot.budget_is_used_up else ""
    round_.search = [*shown(decided), *filter(None, [decided.note or enough])]
    tell_boxes(store.objects, snapshot, decided.pruned)
    return not decided.note


def decide(
    sources: Sources, store: EvidenceStore, snapshot: Snapshot, view: SweepView, *, draws: bool = True
) -> Decided:
    """Decides what can be decided now, and writes it down in one write. `draws`: whether cells are drawn, too, while
    the sweep's budget lasts. Raises
    ConfigError, EvidenceError; nothing for a log that another process wrote to meanwhile: then nothing is decided."""
    search = search_of(sources.target.file.sweep())
    note = _why_not(search, sources, snapshot)
    if search is None or note:
        return Decided(note=note)
    log = read_search_log(store.objects)
    steps = decisions(sources, snapshot, view, search, log, draws=draws and not snapshot.budget_is_used_up)
    try:
        log = append(store.objects, log, steps)
    except EvidenceChanged as error:
        return Decided(note=str(error))
    return Decided(
        drawn=tuple(step.cell for step in steps if step.kind == "suggested"),
        stopped=tuple(step.cell for step in steps if step.kind == "pruned"),
        pruned=log.pruned,
    )


def _why_not(search: SearchConfig | None, sources: Sources, snapshot: Snapshot) -> str:
    """Why nothing may be decided now; "" where it may."""
    identity, up = snapshot.state.identity, f"pulumi up --stack {snapshot.state.stack}"
    metrics = files_of(sources.target, snapshot)[1]
    if metrics is not None and (lacking := missing_reader(metrics.file)):
        return f"search: {lacking}; until then nothing is drawn"
    if search is None or identity is None or identity.search != search.text:
        return f"search: the stack file has another one than what is up, and nothing is drawn. Next: {up}"
    if snapshot.teardown is not None:
        return "search: a teardown has begun, and nothing is drawn"
    if snapshot.approval is not None or any(box.box.approval is not None for box in snapshot.box_snapshots):
        return "search: an approval stands, which is of the cells that are there, and nothing is drawn"
    return ""


def tell_boxes(objects: ObjectStore, snapshot: Snapshot, pruned: Mapping[str, Step]) -> None:
    """Has the runners end those of these cells that run. Raises nothing: a box that could not be told is told by the
    engine. Blocks for `TELL_SECONDS` at most. Idempotent."""
    tasks = {
        snap.box.native_id: partial(_tell, objects, snap, pruned)
        for snap in snapshot.box_snapshots
        if snap.reachable and snap.seen.runner_alive and not pruned.keys().isdisjoint(snap.running)
    }
    in_parallel(tasks, TELL_SECONDS)


def _tell(objects: ObjectStore, snap: BoxSnapshot, pruned: Mapping[str, Step]) -> None:
    """A cell that a person brought back meanwhile is not ended: that is in the log before any `pulumi up` tells the
    box. So the log is read behind the queue, and nothing is written where a line came to the queue since."""
    with contextlib.suppress(SweepstackError, OSError):
        channel = snap.box.context().channel()
        with hands_on(channel.native_id):
            queue, size = queue_and_size(channel)
            runs = [name for name in snap.running if name in pruned and queue.get(name, {}).get("op") == "add"]
            still = read_search_log(objects).pruned if runs else {}
            append_lines(channel, [drop_line(name, still[name].why) for name in runs if name in still], at=size)


def bring_in(
    sources: Sources, snapshot: Snapshot, round_: Round, run: Run, say: Callable[[str], None], *, later: bool = False
) -> None:
    """Brings cells of the log that no queue has to the queues, and stops there what a rule stopped, by the engine, with
    all that is up as its targets. `later`: where there are only stops, which the boxes were told, they wait while
    others run. Rents nothing, ends no box. Blocks as `pulumi up` does. Idempotent."""
    target, state = sources.target, snapshot.state
    roster, problem = file_roster(target.file, target.root)
    if roster is None:
        round_.problems.append(problem)
        return
    queued = {cell.name for queue in state.queues for cell in queue.cells}
    dropped = {name for queue in state.queues for name in queue.dropped}
    new = sorted(set(roster.names) - queued)
    stopped = sorted(set(roster.dropped) - dropped)
    if not (new or stopped) or not state.queues:
        return
    if new and any(map(snapshot.has_no_money_for, snapshot.box_snapshots)):
        waits = f"{count(len(new), 'new cell')} of the search {'waits' if len(new) == 1 else 'wait'}"
        round_.problems.append(f"{waits}: the budget is used up")
        return
    if later and not new and any(snap.running and snap.seen.runner_alive for snap in snapshot.box_snapshots):
        round_.tries_again = True
        return
    urns = [state.identity.urn] if state.identity is not None else []
    for snap in snapshot.box_snapshots:
        if not snap.gone:
            urns += [snap.box.urn, *([snap.queue.urn] if snap.queue is not None else [])]
    urns += [gate.urn for gate in state.gates]
    parts = (count(len(new), "new cell") if new else "", count(len(stopped), "stopped cell") if stopped else "")
    what = " and ".join(filter(None, parts)) + (" waits" if len(new) + len(stopped) == 1 else " wait")
    if up_alone(target.root, snapshot, urns, MOVES, f"search: {what}", round_, run, say) is not None:
        round_.searched = [*new, *stopped]


def shown(decided: Decided) -> Sequence[str]:
    """What a round's line says of it."""
    parts: list[Any] = [f"drew {', '.join(decided.drawn)}"] if decided.drawn else []
    return [*parts, *([f"stops {', '.join(decided.stopped)}"] if decided.stopped else [])]
