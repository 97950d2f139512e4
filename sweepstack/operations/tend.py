"""A round of `sweepctl tend`: what it moves and stops, and the claim of the one that may.

Boxes with a drained queue (`when_done: stop`) or beyond the budget (`budget.stop`) are stopped, if no unsaved data is
lost by that. A runner can't do this itself: it has no key for its own platform.

Waiting cells move to an idle box by the engine, under the stack's lock: `pulumi up` with the queues as targets rents
nothing and ends nothing. A preview comes first. If it shows any change other than the cells of a queue, such as code
that was edited since the last `up`, nothing is done, and a person is told.

The claim is a record in the evidence. Each round renews it, and it lasts a little longer than a round. After a tend was
killed, another one may begin when the claim has run out; on the same host at once, since there it is seen that the
process is gone. Writing is conditional: if two claim at the same moment, one of them is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime

from sweepstack.billing.budget import to_stop
from sweepstack.billing.ledger import spent
from sweepstack.core import schema
from sweepstack.core.journal import asked_to_stop
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Record
from sweepstack.evidence import box_logs, unsealed
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import host_identity
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceChanged, SweepstackError
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.onbox.host.platform import Phase, Wait
from sweepstack.operations.power import drained, judge_stop, stop_box
from sweepstack.status.compose import SweepView
from sweepstack.status.engine.call import find_engine
from sweepstack.status.engine.state import STOP, BoxEntry
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.ownership import renew

STOP_SECONDS = 300.0
HOLD_SECONDS = 20.0
PREVIEW_SECONDS = 300.0
CELLS = frozenset({"cells", "elsewhere", "sources"})
"""The inputs of a queue with its cells, and with what they begin from."""
NAME = "tend.json"

Seals = set[tuple[str, str]]
"""(cell, manifest) of sealed copies."""
Tried = list[tuple[tuple[str, ...], tuple[str, ...]]]
"""The idle boxes and waiting cells at the last call of the engine; empty before it."""
Steps = Sequence[Mapping[str, Any]]
"""What a preview shows, as `pulumi preview --json` has it."""
Run = Callable[[Sequence[str]], int]
"""Runs the engine with these arguments to its end, and returns its exit code."""


@dataclass
class Round:
    """What a round found and did. `kept`: boxes that should stop and do not, with why; `answer`: the exit code if
    nothing is left to do (`over`)."""

    counts: dict[str, int] = field(default_factory=dict)
    pulled: int = 0
    bytes: int = 0
    receipt: str | None = None
    stopped: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    moved: dict[str, int] = field(default_factory=dict)
    """Box → the number of waiting cells that were moved to it."""
    searched: list[str] = field(default_factory=list)
    """Cells of the search that were brought to the queues, or stopped there."""
    search: list[str] = field(default_factory=list)
    """What was decided of the search."""
    begun: list[str] = field(default_factory=list)
    """Cells that were brought to the queues, since what they begin from is verified now."""
    tries_again: bool = False
    """Whether cells could not be brought to the queues, and the next round tries again."""
    alarms: list[str] = field(default_factory=list)
    """What a person must do about an account, as `status` shows it; it changes no exit code."""
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    over: bool = False
    answer: int = 0

    def as_json(self) -> dict[str, Any]:
        """The documented shape of a line of `--json`."""
        found = vars(self).copy()
        if not (self.search or self.searched):  # of a sweep without a search
            del found["search"], found["searched"]
        if not self.begun:
            del found["begun"]
        del found["tries_again"]
        return found


def begin(snapshot: Snapshot, view: SweepView, verified: Seals) -> Round:
    """What the boxes were seen to be at the start of the round. Renews the owner's hold of them, and adds the cells of
    the latest receipt to `verified`."""
    if snapshot.receipt is not None:
        verified |= {(cell.name, cell.manifest) for cell in snapshot.receipt.cells if cell.manifest is not None}
    round_ = Round(
        counts=view.counts(),
        gone=[box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if box_snapshot.gone],
    )
    round_.unknown += [
        f"box {box_snapshot.box.name}: {box_snapshot.seen.account_problem or box_snapshot.seen.note}"
        for box_snapshot in snapshot.box_snapshots
        if not box_snapshot.gone and not box_snapshot.reachable
    ]
    _hold(snapshot)
    return round_


def _hold(snapshot: Snapshot) -> None:
    """Renews the owner's hold of the boxes. Waits only shortly: the next round does it again."""

    def renewed(box: BoxEntry) -> None:
        with contextlib.suppress(SweepstackError, OSError):
            renew(box.context().channel())

    held = [
        box_snapshot.box
        for box_snapshot in snapshot.box_snapshots
        if box_snapshot.reachable and box_snapshot.phase == Phase.RUNNING
    ]
    in_parallel({box.native_id: partial(renewed, box) for box in held}, HOLD_SECONDS)


def to_bring_in(store: EvidenceStore, snapshot: Snapshot, verified: Seals) -> tuple[bool, bool]:
    """Whether there is anything to pull; and whether to verify: a sealed cell is in no receipt."""
    fresh = bool(seals(snapshot.box_snapshots) - verified)
    return fresh or _logs_to_copy(store, snapshot), fresh


def _logs_to_copy(store: EvidenceStore, snapshot: Snapshot) -> bool:
    """Whether a box that answers has logs without a copy: of an attempt without a seal, or, once its runner has ended,
    its own logs."""
    for box_snapshot in snapshot.box_snapshots:
        box, journal = box_snapshot.box, box_snapshot.seen.journal
        dead = box_snapshot.seen.runner_alive is False
        if journal is None:
            continue
        if unsealed.uncopied_attempts(store, box.name, box.generation, journal, dead=dead):
            return True
        if dead and box_logs.due(store, box.name, box.generation, journal):
            return True
    return False


def seals(box_snapshots: Iterable[BoxSnapshot]) -> Seals:
    """The cells that these boxes have sealed, by their journals."""
    return {
        (name, progress.manifest)
        for box_snapshot in box_snapshots
        if box_snapshot.journal is not None
        for name, progress in box_snapshot.journal.cells.items()
        if progress.state == "sealed" and progress.manifest is not None
    }


def stop_finished_boxes(store: EvidenceStore, snapshot: Snapshot, round_: Round, verified: Seals) -> None:
    """Stops boxes with a drained queue, beyond the budget, or on which nothing was launched long after their lease, if
    no unsaved data is lost by that."""
    broke = set(to_stop(snapshot.budget, spent(store, snapshot.now) if snapshot.spent is None else snapshot.spent))
    bare = {one.birth.native_id for one in snapshot.billing_unheld if one.long_over}
    for box_snapshot in snapshot.box_snapshots:
        if box_snapshot.phase != Phase.RUNNING or not box_snapshot.reachable:
            continue
        due = box_snapshot.box.when_done == STOP or asked_to_stop(box_snapshot.journal)
        done = (
            due
            and not box_snapshot.seen.runner_alive
            and drained(store, box_snapshot.box.name, box_snapshot.box.generation, box_snapshot.seen)
        )
        left = box_snapshot.box.native_id in bare and not box_snapshot.seen.runner_alive
        if done or left or box_snapshot.box.native_id in broke:
            why = "its queue is drained" if done else "the budget is used up"
            why = "nothing was launched on it, and its lease is long over" if left else why
            _stop_finished_box(store, box_snapshot, why, round_, verified)


def _stop_finished_box(
    store: EvidenceStore, box_snapshot: BoxSnapshot, why: str, round_: Round, verified: Seals
) -> None:
    box = box_snapshot.box
    if box.teardown.stop is None:
        round_.kept[box.name] = f"{why}, and {box.adapter} has no stop"
        return
    left = sorted(name for name, _ in seals([box_snapshot]) - verified)
    if left:
        round_.kept[box.name] = f"{why}, and {', '.join(left[:3])} could not be pulled and verified yet"
        return
    pause = judge_stop(box.context(STOP), box.teardown.paths, None, full=False)
    if not pause.verdict.allowed:
        round_.kept[box.name] = f"{why}, and a stop would lose {pause.risk.words(pause.facts.kills)}"
        return
    profile = box.teardown.stop.price_per_hour
    try:
        record = stop_box(
            pause,
            dict(box.teardown.paths),
            price_after=profile,
            wait=Wait(deadline=STOP_SECONDS),
            say=lambda _line: None,
            issued=box.teardown.stop.issue,
        )
    except SweepstackError as error:
        round_.problems.append(f"box {box.name} could not be stopped: {error}")
        return
    price = record.bills_at_rest(profile)
    after = "at a price that is not known" if price is None else f"${spell_rate(price)}/h"
    round_.stopped[box.name] = f"{why}; {after} from now"


def move_cells_to_idle(
    root: Path, snapshot: Snapshot, round_: Round, tried: Tried, run: Run, say: Callable[[str], None]
) -> None:
    """Moves waiting cells to idle boxes. Calls the engine only once for the same boxes and cells: `tried` has those of
    the last call. `say`: shows the command before it runs."""
    idle = tuple(box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if box_snapshot.idles)
    waits = tuple(sorted(name for box_snapshot in snapshot.box_snapshots for name in box_snapshot.waiting))
    if not idle or not waits or tried == [(idle, waits)]:
        return
    tried[:] = [(idle, waits)]
    what = f"box {', '.join(idle)} {'has' if len(idle) == 1 else 'have'} nothing to do, and cells wait elsewhere"

    def more(steps: Steps) -> dict[str, int]:
        return {box: amount for box, amount in _more_cells(steps, idle).items() if amount}

    queues = queues_of(snapshot)
    steps = up_alone(root, snapshot, queues, {"Queue": CELLS}, what, round_, run, say, if_any=more, again=False)
    round_.moved = more(steps or ())


def queues_of(snapshot: Snapshot) -> list[str]:
    """The URNs of the queues of all boxes that are not gone."""
    return [one.queue.urn for one in snapshot.box_snapshots if one.queue is not None and not one.gone]


def up_alone(
    root: Path,
    snapshot: Snapshot,
    urns: Sequence[str],
    allowed: Mapping[str, frozenset[str]],
    what: str,
    round_: Round,
    run: Run,
    say: Callable[[str], None],
    *,
    if_any: Callable[[Steps], object] = lambda _: True,
    again: bool = True,
) -> Steps | None:
    """Has the engine bring up these resources alone, and returns what its preview said of them. None where nothing was
    done: the preview shows nothing of `if_any`, or a change that is not `allowed` (`changed_by_engine`), which is left
    to a person; or the engine failed, and the next round tries `again`. The round's problems say why. `what`: why it is
    done, as half a sentence. Rents and ends nothing; blocks as `pulumi up` does."""
    stack, words = snapshot.state.stack, [word for urn in urns for word in ("--target", urn)]

    def failed(why: str) -> None:
        after = "the next round tries again" if again else "they stay where they wait"
        round_.problems.append(f"{what}, and {why}: {after}")
        round_.tries_again |= again

    try:
        steps = preview(root, stack, words)
    except SweepstackError as error:
        failed(f"the preview of that failed ({error})")
        return None
    if other := changed_by_engine(steps, allowed):
        yourself = f"type it yourself (pulumi up --stack {stack})"
        round_.problems.append(f"{what}, but `pulumi up` would also change {', '.join(other)}: {yourself}")
        return None
    if not if_any(steps):
        return None
    command = ["up", "--stack", stack, "--yes", "--non-interactive", "--skip-preview", *words]
    say(f"$ pulumi {' '.join(command[:6])} --target {count(len(urns), 'resource')}: {what}")
    code = run(command)
    if code:
        failed(f"`pulumi up` ended with {code}")
    return None if code else steps


def preview(root: Path, stack: str, targets: Sequence[str]) -> Steps:
    """The steps of the engine's preview with these targets. Blocks for `PREVIEW_SECONDS` at most. Raises
    SweepstackError."""
    command = [find_engine(), "preview", "--json", "--stack", stack, "--non-interactive", *targets]
    try:
        found = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PREVIEW_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SweepstackError(str(error)) from error
    try:
        document = json.loads(found.stdout)
    except ValueError:
        document = None
    if found.returncode or not isinstance(document, dict):
        print(found.stderr, end="", file=sys.stderr)
        raise SweepstackError(f"`pulumi preview` ended with {found.returncode}")
    return [step for step in document.get("steps", []) if isinstance(step, dict)]


def _more_cells(steps: Steps, idle: Sequence[str]) -> dict[str, int]:
    """From a preview: idle box → how many more cells it would have."""
    more = dict.fromkeys(idle, 0)
    for step in steps:
        name = str(step.get("urn")).rpartition("::")[2]
        if name in more and step.get("op") == "update" and "Queue::" in str(step.get("urn")):
            before, after = (_cells_of_queue(step.get(key)) for key in ("oldState", "newState"))
            more[name] = len(after - before)
    return more


def changed_by_engine(steps: Steps, allowed: Mapping[str, frozenset[str]]) -> list[str]:
    """What a preview would change beside these inputs, as text. `allowed`: resource → inputs whose update is no more
    than a list of cells. Anything but an update is more."""
    other: list[str] = []
    for step in steps:
        op, urn = str(step.get("op")), str(step.get("urn"))
        if op in ("same", "refresh", "read"):
            continue
        kind, name = urn.split("::")[2].rpartition("$")[2].rpartition(":")[2], urn.rpartition("::")[2]
        reasons = set(step.get("diffReasons") or step.get("detailedDiff") or ())
        known = allowed.get(kind, frozenset())
        if op == "update" and kind in allowed and {re.split(r"[.[]", reason)[0] for reason in reasons} <= known:
            continue
        if kind != "Stack":
            other.append(f"{kind.lower()} {name} ({', '.join(sorted(reasons - known)) or op})")
    return other


def _cells_of_queue(state: Any) -> set[str]:
    cells = schema.inputs(schema.mapping(state)).get("cells")
    return {str(cell) for cell in cells} if isinstance(cells, list) else set()


class Tending(Record):
    """A claim. `until`: when it runs out, unless it is renewed."""

    host: str
    pid: int
    since: AwareDatetime
    at: AwareDatetime
    until: AwareDatetime


class AlreadyTended(SweepstackError):
    """Another process tends this sweep; the message says which, and when its claim runs out."""


def claim(store: EvidenceStore, lasts: timedelta, mine: Tending | None, *, now: datetime | None = None) -> Tending:
    """Claims the sweep, or renews the claim `mine`. Idempotent. Talks to the evidence only. Raises AlreadyTended."""
    now = now or datetime.now(UTC)
    host, pid = host_identity(), os.getpid()
    found = store.record(NAME, Tending)
    if found is not None and (found.host, found.pid) != (host, pid) and _holds(found, now, host):
        raise AlreadyTended(_words(found, now))
    since = mine.since if mine is not None else now
    fresh = Tending(host=host, pid=pid, since=since, at=now, until=now + lasts)
    try:
        store.write_record(NAME, fresh)
    except EvidenceChanged as error:
        raise AlreadyTended("another tend claimed this sweep at the same moment") from error
    after = store.record(NAME, Tending)
    if after is None or (after.host, after.pid) != (host, pid):
        raise AlreadyTended("another tend claimed this sweep at the same moment")
    return fresh


def is_tended(store: EvidenceStore, now: datetime) -> bool:
    """Whether another process tends this sweep, by its claim. Raises EvidenceError."""
    found, host = store.record(NAME, Tending), host_identity()
    return found is not None and (found.host, found.pid) != (host, os.getpid()) and _holds(found, now, host)


def let_go(store: EvidenceStore, mine: Tending) -> None:
    """Gives the claim up, if it is still ours. Never raises: it runs out by itself."""
    try:
        found = store.record(NAME, Tending)
        if found is not None and (found.host, found.pid) == (mine.host, mine.pid):
            store.write_record(NAME, None)
    except SweepstackError:
        return


def _holds(found: Tending, now: datetime, host: str) -> bool:
    if now >= found.until:
        return False
    if found.host != host:
        return True
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _words(found: Tending, now: datetime) -> str:
    ago, left = (now - found.at).total_seconds(), (found.until - now).total_seconds()
    return (
        f"this sweep is tended by process {found.pid} on {found.host} since {found.since:%Y-%m-%d %H:%M} UTC; it was "
        f"at work {max(ago, 0):.0f} s ago, and its claim runs out in {left:.0f} s if it is dead"
    )
