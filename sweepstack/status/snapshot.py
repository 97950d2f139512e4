"""What was gathered about a sweep: the state, the evidence, and what was seen of each box just now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from sweepstack.billing.balance import BalanceLeft
from sweepstack.billing.budget import use_of
from sweepstack.billing.ledger import Spent
from sweepstack.billing.stray import Stray
from sweepstack.billing.unlaunched import Unheld
from sweepstack.core.budget import Budget
from sweepstack.core.heartbeat import Patrol
from sweepstack.core.journal import CellProgress, CellTimes, Journal, SetupProgress, cell_times, started
from sweepstack.core.metrics import Point
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Approval, Birth, Cell, Launch, Loss, Receipt, Teardown
from sweepstack.launch.entries import finished
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.host.platform import Told
from sweepstack.status.engine.state import BoxEntry, QueueEntry, StackState
from sweepstack.teardown.box_check import Verdict
from sweepstack.teardown.close_box import StillBilled
from sweepstack.teardown.handover_records import Handover
from sweepstack.teardown.who_signed import OnRecord


@dataclass(frozen=True)
class BoxSnapshot:
    """One box of the state, and what was seen of it.

    `journal` is the box's own, or, when it could not be read, the last copy in the evidence (`copied`). `verdict` is by
    the approval in the state; `proposed` by the one in the stack file, where that is another.
    """

    box: BoxEntry
    queue: QueueEntry | None
    launch: Launch | None
    seen: Observation
    verdict: Verdict
    phase: str
    where: str
    price_per_hour: float | None
    since: datetime | None
    journal: Journal | None
    copied: bool = False
    proposed: Verdict | None = None
    points: Mapping[str, Point] = field(default_factory=dict)
    patrol: Patrol | None = None
    lease_note: str = ""
    """Why the box can't look after its lease, and can't write that into its journal; "" mostly."""
    claims_cleared: bool = False
    handed: Handover | None = None
    """An end that was begun, and that a person or a host's command has to finish; None where there is none."""
    bare: str = ""
    """So many GPUs it has of those that its cells were promised (`0 of 1`), and nothing is started on it; "" where it
    has them all."""
    said: str = ""
    """What its platform says of it beside its phase, in words; "" mostly."""
    told: Told | None = None
    """What programs act on of that."""
    drift: Mapping[str, str] = field(default_factory=dict)
    """What of it is not as it was rented, or as it is wanted: `price`, `gpus`, `image`, `want` → in words."""
    ends_at: datetime | None = None
    """When the contract with its host ends; None where there is no such end, or the platform does not say it now."""
    approvals: tuple[OnRecord, ...] = ()
    """The approvals of its end, valid or not, with those who signed them."""

    @property
    def gone(self) -> bool:
        return self.seen.existence is Existence.GONE

    @property
    def lost(self) -> bool:
        """Whether nothing of it is left to read, by proof; a rented host that bills on may be there still."""
        return self.seen.lost

    @property
    def reachable(self) -> bool:
        return self.seen.existence is Existence.EXISTS and self.seen.journal is not None

    @property
    def silent(self) -> bool:
        """Whether what is on it can't be read just now, although it is to run. Not where its end was begun."""
        unread = self.seen.journal is None and not self.seen.stopped and not self.lost
        return unread and not self.verdict.allowed and self.handed is None

    def approval_ran_out(self, now: datetime) -> bool:
        """Whether the approval in its state holds no more, by its time alone."""
        approval = self.box.approval
        return approval is not None and approval.expires < now

    def there(self, now: datetime) -> datetime:
        """What the box's clock shows at `now`: with that its times are compared, and nothing else."""
        return now + timedelta(seconds=self.seen.skew)

    @property
    def heartbeat(self) -> datetime | None:
        """When its runner last wrote a patrol line, by the box's clock."""
        return self.patrol.time if self.patrol else None

    @cached_property
    def times(self) -> CellTimes:
        """What its journal says of times."""
        return cell_times(self.journal) if self.journal else CellTimes()

    @property
    def hung(self) -> tuple[str, ...]:
        """Cells at work that its patrol calls hung."""
        if self.patrol is None or not self.seen.runner_alive:
            return ()
        doing = self.patrol.running
        return tuple(name for name in self.running if name in doing and doing[name].verdict == "hung")

    @cached_property
    def running(self) -> tuple[str, ...]:
        """Cells that its journal has as started and not ended."""
        cells = self.journal.cells.values() if self.journal else ()
        return tuple(progress.name for progress in cells if progress.state == "running")

    @cached_property
    def stranded(self) -> tuple[str, ...]:
        """Cells that its queue was given and that are not through, while no runner is alive to run them. None of a box
        that is stopped, gone, or may end: those are not to run now."""
        if self.launch is None or not self.reachable or self.seen.stopped or self.verdict.allowed:
            return ()
        if self.seen.runner_alive is not False:
            return ()
        held = self.held
        return tuple(n for n in sorted(self.launch.cells) if n not in held and not finished(self.progress(n), 0))

    @cached_property
    def unsourced(self) -> Mapping[str, str]:
        """Cells that no queue was given yet → the cell that each is to begin from, which was not verified at the last
        `pulumi up`."""
        if self.queue is None:
            return {}
        known = {*(self.queue.sources or {}), *self.queue.dropped}
        return {cell.name: cell.source for cell in self.queue.cells if cell.source and cell.name not in known}

    @cached_property
    def held(self) -> tuple[str, ...]:
        """Cells that its queue was given and that may not begin, since one left the wrong files (`Journal.hold`)."""
        if self.launch is None or self.journal is None or not self.journal.hold:
            return ()
        return tuple(name for name in sorted(self.launch.cells) if self.journal.waits(name))

    @property
    def held_by(self) -> str:
        """That cells are held back, for which one, and why; "" while none is."""
        if self.journal is None or not self.held:
            return ""
        first = self.journal.hold[0]
        reason = self.journal.cells[first].reason or "no reason is on record"
        they = (
            "1 cell that has not begun waits"
            if len(self.held) == 1
            else f"{len(self.held)} cells wait that have not begun"
        )
        return f"{they}: {first} left the wrong files ({reason})"

    @property
    def by_hand(self) -> bool:
        """Whether only a person can start its runner, so that a runner which is not alive is no alarm."""
        return self.queue is not None and self.queue.job.by_hand is not None

    def retry_at_hand(self, cell: str) -> int:
        """The last retry of a cell that an `up` has told its queue, while the runner is alive: it runs, or waits for
        its turn, and a further `up` changes nothing. 0 for none."""
        again = (self.queue.retries or {}).get(cell) if self.queue is not None and self.seen.runner_alive else None
        return again.retry if again is not None else 0

    @property
    def idles(self) -> bool:
        """Whether the box bills and has nothing that it may run: not while it may end, is to stop, or failed its
        set-up."""
        if self.phase != "running" or not self.reachable or self.seen.runner_alive is not False:
            return False
        failed = self.setup is not None and self.setup.state != "finished"
        return not (self.stranded or self.verdict.allowed or failed or self.box.want != "running")

    @cached_property
    def slots(self) -> int:
        """So many cells it runs at once, on all workers that are at work; 0 where it has several, and none is."""
        each = max(self.queue.job.slots if self.queue else 1, 1)
        if self.seen.workers:  # as the scheduler has them: the journal does not know yet of one that was killed
            return each * len([one for one in self.seen.workers if one.get("state") == "RUNNING"])
        workers = self.journal.workers.values() if self.journal else ()
        return each * len([one for one in workers if not one.ended]) if workers else each

    @cached_property
    def waiting(self) -> tuple[str, ...]:
        """Cells of its queue that can't start now, since all slots are taken. Of a runner that is alive."""
        if self.launch is None or not self.reachable or not self.seen.runner_alive:
            return ()
        if len(self.running) < (self.slots or 1) and self.blocked is None:
            return ()
        dropped = self.queue.dropped if self.queue else {}
        never = {*dropped, *self.held}
        return tuple(n for n in self.launch.cells if not started(self.progress(n)) and n not in never)

    @property
    def blocked(self) -> Mapping[str, Any] | None:
        """Why its runner, which is alive, starts nothing new: `why`, and what else is known. None while it may."""
        if not self.seen.runner_alive:
            return None
        if self.journal is not None:
            return vars(self.journal.blocked) if self.journal.blocked else None
        return self.patrol.blocked if self.patrol else None

    @property
    def between_workers(self) -> bool:
        """Whether all workers that its journal knows have ended, and another one waits or has just begun."""
        workers = self.journal.workers.values() if self.journal else ()
        return bool(workers) and all(one.ended for one in workers) and self.seen.runner_alive is True

    @property
    def setup(self) -> SetupProgress | None:
        """The set-up step that its journal spoke of last."""
        return next(reversed(self.journal.setups.values()), None) if self.journal else None

    def progress(self, cell: str) -> CellProgress | None:
        """What the journal says of a cell."""
        return self.journal.cells.get(cell) if self.journal else None

    def holds(self, cell: str) -> int:
        """How surely the cell is this box's: 3 it ran here, 2 its queue was given it, 1 it is meant for it, 0 not."""
        progress = self.progress(cell)
        if started(progress):
            return 3
        if self.launch is not None and cell in self.launch.cells:
            return 2
        return 1 if self.queue is not None and cell in self.queue.names else 0


@dataclass(frozen=True)
class Snapshot:
    """Everything that was gathered for one picture."""

    state: StackState
    now: datetime
    roster: tuple[Cell, ...]
    dropped: Mapping[str, str]
    box_snapshots: tuple[BoxSnapshot, ...] = ()
    births: tuple[Birth, ...] = ()
    unheld: tuple[Unheld, ...] = ()
    """Boxes on record on which nothing was launched."""
    spent: Spent | None = None
    """What everything ever rented cost; None where the ledger can't be read."""
    budget: Budget | None = None
    losses: tuple[Loss, ...] = ()
    teardown: Teardown | None = None
    approval: Approval | None = None
    """The one in the stack file."""
    weaker_policy: Approval | None = None
    """The approval of a weaker policy that stands in the evidence."""
    receipt: Receipt | None = None
    receipt_digest: str | None = None
    broken: Mapping[str, str] = field(default_factory=dict)
    """Verified cells of the receipt whose copy is not there as it was: name → reason."""
    aside: frozenset[str] = frozenset()
    """Those whose verified copy a pull put aside for one that is not verified yet."""
    saved: frozenset[str] = frozenset()
    """Cells that were sealed on a box which is gone, and whose copy is here or on a volume that outlived it. Where that
    can't be asked, it counts as being there."""
    waived: Mapping[str, str] = field(default_factory=dict)
    """Cells that a person waived for this very receipt: name → reason."""
    orphans: tuple[Stray, ...] = ()
    asked: tuple[str, ...] = ()
    """Boxes that the stack file wants running, rented or not."""
    notes: tuple[str, ...] = ()
    pruned: frozenset[str] = frozenset()
    """Those of `dropped` that the rule of a search stopped, by its log."""
    tended: bool = False
    """Whether a `sweepctl tend` is at work. Not asked where no cells are `brought_later`."""
    to_run_again: tuple[str, ...] = ()
    """Cells that `sweepctl retry` asked for, and that no `pulumi up` has brought to the boxes yet."""
    evidence: str | None = None
    evidence_problem: str = ""
    evidence_back: str = ""
    """The command that moves the evidence back to where the state has it; "" where it is found nowhere else."""
    file_back: str = ""
    """The command that puts the stack file back that was up last, and finishes; "" where the one that is there reads,
    where the state has no box, and where there is no copy."""
    finish_refused: bool = False
    """Whether `sweepctl finish` would be refused: the birth records, a profile or the work dir are not there or do not
    read, or the evidence or the stack file can't be written."""
    hindered: bool = False
    """Whether something was found that may keep `pulumi up` or `sweepctl finish` from working: a record, a profile, the
    work dir or the stack file is not there or does not read, a place can't be written, a platform does not answer."""
    named_with: str = ""
    """The host that the evidence is named with, where that is no name of this computer."""
    known: bool = True
    """Whether the backend has the stack at all."""
    never_up: bool = False
    """Whether it has, and never made an update of it, and no evidence is known."""
    searched: bool = True
    """Whether every place where something could bill was asked and answered."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Cells that a living box has which the state does not know: name → box."""
    still_billed: tuple[StillBilled, ...] = ()
    """Boxes that ended by the records, stand still, and bill until they are released."""
    balances: tuple[BalanceLeft, ...] = ()
    """What the accounts have left that the state's boxes are rented with."""
    egress: Mapping[str, float | None] = field(default_factory=dict)
    """Boxes whose bytes are billed when they are pulled: native id → USD per GB, None where that is not known."""
    left: tuple[Stray, ...] = ()
    """Volumes that outlived all boxes of the sweep."""
    engine_mend: str = ""
    """The command without which the engine refuses every other one for this stack; "" where it does not."""
    left_lock: str = ""
    """The command that takes away the engine's lock on the state; "" where there is none, or its command runs here."""
    revocations_torn: bool = False
    """Whether the list of what was revoked does not read: then no approval counts until it is written again."""

    @cached_property
    def budget_is_used_up(self) -> bool:
        """Of what is known of the costs; False without a budget."""
        return self.budget is not None and self.spent is not None and use_of(self.budget, self.spent).over

    def has_no_money_for(self, box: BoxSnapshot) -> bool:
        """Whether new cells on this box would cost what a used-up budget does not have: those of a box that would be
        started for them, and all where the budget stops boxes."""
        stops = self.budget is not None and self.budget.stop
        return self.budget_is_used_up and (box.phase != "running" or stops)

    @property
    def brought_later(self) -> bool:
        """Whether `tend` may have cells to bring that no queue has: of a search, or that begin from other cells."""
        searches = self.state.identity is not None and bool(self.state.identity.search)
        return searches or any(one.unsourced for one in self.box_snapshots)

    @property
    def not_rented(self) -> tuple[str, ...]:
        """Boxes that the stack file wants running and that neither the state nor the records know as living."""
        living = {box_snapshot.box.name for box_snapshot in self.box_snapshots} | {
            orphan.name for orphan in self.orphans
        }
        return tuple(name for name in self.asked if name not in living)

    @property
    def billing_unheld(self) -> tuple[Unheld, ...]:
        """Those of `unheld` that may bill for compute: neither stopped, nor gone, nor without a trace anywhere."""
        ours = {one.box.native_id: one for one in self.box_snapshots}
        stray = {name for one in self.orphans if not one.at_rest for name in (one.native_id or None, one.tag or None)}
        return tuple(
            one
            for one in self.unheld
            if (
                (seen := ours.get(one.birth.native_id or "")) is not None
                and not (seen.gone or seen.seen.stopped or (seen.journal is not None and seen.journal.entries))
            )
            or (seen is None and not stray.isdisjoint((one.birth.native_id, one.birth.tag)))
        )

    @cached_property
    def there_first(self) -> tuple[BoxSnapshot, ...]:
        """The boxes; last those of which nothing is left."""
        return tuple(sorted(self.box_snapshots, key=lambda box_snapshot: box_snapshot.lost))

    @cached_property
    def _holders(self) -> dict[str, tuple[int, BoxSnapshot]]:
        """Cell → how surely which box has it; the first of those that have it equally surely. One pass over the boxes:
        asked of each cell alone, a thousand cells on fifty boxes cost more than all else in a picture."""
        found: dict[str, tuple[int, BoxSnapshot]] = {}
        for box_snapshot in self.there_first:
            journal, launch, queue = box_snapshot.journal, box_snapshot.launch, box_snapshot.queue
            for cell in {
                *(journal.cells if journal else ()),
                *(launch.cells if launch else ()),
                *(queue.names if queue else ()),
            }:
                surely = box_snapshot.holds(cell)
                if surely > found.get(cell, (0, None))[0]:
                    found[cell] = surely, box_snapshot
        return found

    @property
    def unclosed(self) -> tuple[str, ...]:
        """The boxes whose record is open, that no state has, and that every platform was asked for and none has."""
        there = {one.box.native_id for one in self.box_snapshots} | {one.native_id for one in self.orphans}
        left = [one.box for one in self.births if one.ended_at is None and one.native_id not in {None, *there}]
        return tuple(dict.fromkeys(left)) if self.searched else ()

    def holder_of(self, cell: str) -> BoxSnapshot | None:
        """The box that most surely has the cell, of two the one that is there; None if no box has it."""
        holder = self._holders.get(cell)
        return holder[1] if holder is not None else None

    @cached_property
    def unstarted(self) -> tuple[str, ...]:
        """Cells of the roster that have started on no box that is there, and are not verified."""
        settled = {cell.name for cell in self.receipt.cells if cell.state == "verified"} if self.receipt else set()
        for box_snapshot in self.box_snapshots:
            if not box_snapshot.gone and box_snapshot.journal is not None:
                settled |= {name for name, progress in box_snapshot.journal.cells.items() if started(progress)}
        return tuple(cell.name for cell in self.roster if cell.name not in settled)

    def result_of(self, cell: str) -> str | None:
        """The manifest of the copy that the receipt calls the cell's result, as digest; None where there is none."""
        cells = self.receipt.cells if self.receipt else ()
        return next((one.result for one in cells if one.name == cell), None)

    def meant_for(self, cell: str) -> str:
        """The box whose queue the program gives this cell; one that is not rented yet has none in the state, so it is
        told only where there is one such box. Empty where that can't be told."""
        for box_snapshot in self.box_snapshots:
            if box_snapshot.queue is not None and cell in box_snapshot.queue.names:
                return box_snapshot.box.name
        return self.not_rented[0] if len(self.not_rented) == 1 else ""
