"""A round of a search: what the extension decides, on record, and new cells to the queues.

A decision is one write to the log. What stands there and in no queue is brought by the engine, under the stack's lock:
first what an earlier round left behind. Of two at once the log takes one, and the other decides anew in its next round.

A box is told at once what a rule stopped on it, by the line that the engine would append: a cell that need not run
costs money in each of the engine's seconds. The engine's state follows with the next new cells, or a minute later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any

from sweepstack.billing.ledger import Spent
from sweepstack.config.search import SearchConfig
from sweepstack.config.searched import search_of
from sweepstack.core.curve_files import missing_reader
from sweepstack.core.extensions import module_of, not_here
from sweepstack.core.journal import Journal, cell_times
from sweepstack.core.parallel import in_parallel
from sweepstack.core.search_log import Step
from sweepstack.evidence.search_log import append, read_search_log
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.entries import append_lines, drop_line, hands_on, queue_entries
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError, EvidenceChanged, SweepstackError
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.cell_results import files_of
from sweepstack.operations.sweep.roster_diff import file_roster
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.tend import Round, Run, changed_by_engine, preview
from sweepstack.status.compose import SweepView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.launched import copied_journal

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


def decide(sources: Sources, store: EvidenceStore, snapshot: Snapshot, view: SweepView) -> Decided:
    """Decides what can be decided now, and writes it down in one write. Costs no money by itself. Raises ConfigError,
    EvidenceError; nothing for a log that another process wrote to meanwhile: then nothing is decided."""
    search = search_of(sources.target.file.sweep())
    if search is None:
        return Decided()
    note = _why_not(search, sources, snapshot)
    if note:
        return Decided(note=note)
    module = module_of("search", "decisions")
    if module is None:
        raise ConfigError(f"search: needs {not_here('search')}")
    log = read_search_log(store.objects)
    steps = import_module(module).decisions(sources, snapshot, view, search, log)
    try:
        log = append(store.objects, log, steps)
    except EvidenceChanged as error:
        return Decided(note=str(error))
    return Decided(
        drawn=tuple(step.cell for step in steps if step.kind == "suggested"),
        stopped=tuple(step.cell for step in steps if step.kind == "pruned"),
        pruned=log.pruned,
    )


def _why_not(search: SearchConfig, sources: Sources, snapshot: Snapshot) -> str:
    """Why nothing may be decided now; "" where it may."""
    identity, up = snapshot.state.identity, f"pulumi up --stack {snapshot.state.stack}"
    metrics = files_of(sources.target, snapshot)[1]
    if metrics is not None and (lacking := missing_reader(metrics.file)):
        return f"search: {lacking}; until then nothing is drawn"
    if identity is None or identity.search != search.text:
        return f"search: the stack file has another one than what is up, and nothing is drawn. Next: {up}"
    if snapshot.teardown is not None:
        return "search: a teardown has begun, and nothing is drawn"
    if snapshot.approval is not None or any(box.box.approval is not None for box in snapshot.box_snapshots):
        return "search: an approval stands, which is of the cells that are there, and nothing is drawn"
    return ""


def tell_boxes(snapshot: Snapshot, pruned: Mapping[str, Step]) -> None:
    """Has the runners end those of these cells that run. Raises nothing: a box that could not be told is told by the
    engine. Blocks for `TELL_SECONDS` at most. Idempotent."""
    tasks = {
        snap.box.native_id: partial(_tell, snap, pruned)
        for snap in snapshot.box_snapshots
        if snap.reachable and snap.seen.runner_alive and not pruned.keys().isdisjoint(snap.running)
    }
    in_parallel(tasks, TELL_SECONDS)


def _tell(snap: BoxSnapshot, pruned: Mapping[str, Step]) -> None:
    with contextlib.suppress(SweepstackError, OSError):
        channel = snap.box.context().channel()
        with hands_on(channel.native_id):
            queue = queue_entries(channel)
            ends = [name for name in snap.running if name in pruned and queue.get(name, {}).get("op") == "add"]
            append_lines(channel, [drop_line(name, pruned[name].why) for name in ends])


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
    if later and not new and any(snap.running and snap.seen.runner_alive for snap in snapshot.box_snapshots):
        round_.search_waits = True
        return
    urns = [state.identity.urn] if state.identity is not None else []
    for snap in snapshot.box_snapshots:
        if not snap.gone:
            urns += [snap.box.urn, *([snap.queue.urn] if snap.queue is not None else [])]
    urns += [gate.urn for gate in state.gates]
    words = [word for urn in urns for word in ("--target", urn)]
    what = " and ".join(
        [f"{count(len(new), 'new cell')}"] * bool(new) + [f"{count(len(stopped), 'stopped cell')}"] * bool(stopped)
    )
    try:
        other = changed_by_engine(preview(target.root, target.stack, words), MOVES)
    except SweepstackError as error:
        round_.problems.append(f"search: the preview of {what} failed: {error}")
        round_.search_waits = True
        return
    up = f"pulumi up --stack {target.stack}"
    if other:
        round_.problems.append(
            f"search: {what} wait, but `pulumi up` would also change {', '.join(other)}: type it yourself ({up})"
        )
        return
    command = ["up", "--stack", target.stack, "--yes", "--non-interactive", "--skip-preview", *words]
    say(f"$ {up} --yes --target {len(urns)} resources: {what} of the search")
    code = run(command)
    if code:
        round_.problems.append(f"search: `pulumi up` ended with {code}: the next round tries again")
        round_.search_waits = True
        return
    round_.searched = [*new, *stopped]


def shown(decided: Decided) -> Sequence[str]:
    """What a round's line says of it."""
    parts: list[Any] = [f"drew {', '.join(decided.drawn)}"] if decided.drawn else []
    return [*parts, *([f"stops {', '.join(decided.stopped)}"] if decided.stopped else [])]


@dataclass(frozen=True)
class Saved:
    """What a rule saved, estimated: what the stopped cells would have taken, if each had run as long as the median of
    those that ended, without what they took. `usd`: by what the sweep has cost for a second of a cell; None where that
    is not known."""

    cells: int
    hours: float
    usd: float | None

    def as_json(self) -> dict[str, Any]:
        """As `ledger --json` says it, of one sweep or of all."""
        return {"cells": self.cells, "hours": round(self.hours, 6), "usd": self.usd}

    @property
    def words(self) -> str:
        """For a person."""
        price = "" if self.usd is None else f", ${self.usd:.2f}"
        hours = f"about {self.hours:.2f} hours of cells{price}"
        return f"saved  {hours} by {count(self.cells, 'cell')} that a rule stopped early"


def saved_by_stops(store: EvidenceStore, found: Spent) -> Saved | None:
    """None where no rule stopped a cell, or no cell has ended to tell what one takes. Reads the log and the copies of
    the journals. Raises EvidenceError."""
    stopped = read_search_log(store.objects).pruned
    took: list[float] = []
    spent_on: dict[str, float] = {}
    for bill in found.bills if stopped else ():
        journal = copied_journal(store, bill.box, bill.generation) if bill.generation is not None else None
        if journal is not None:
            took += cell_times(journal).took.values()
            for cell, seconds in _until_dropped(journal):
                spent_on[cell] = spent_on.get(cell, 0.0) + seconds
    if not took:
        return None
    each = median(took)
    seconds = sum(max(each - spent_on.get(cell, 0.0), 0.0) for cell in stopped)
    busy = sum(took) + sum(spent_on.values())
    return Saved(len(stopped), seconds / 3600, found.usd / busy * seconds if found.complete and busy else None)


def _until_dropped(journal: Journal) -> Iterator[tuple[str, float]]:
    """(cell, seconds) of each run that a drop ended."""
    began: dict[str, datetime] = {}
    for entry in journal.entries:
        if entry["event"] == "cell-started":
            began[entry["cell"]] = datetime.fromisoformat(str(entry["time"]))
        elif entry["event"] == "cell-dropped" and entry["cell"] in began:
            ended = datetime.fromisoformat(str(entry["time"]))
            yield entry["cell"], max((ended - began.pop(entry["cell"])).total_seconds(), 0.0)
