"""What the check of an end (`check.may_end`) asks of a box that a state has, and what it shows of it.

A box is cleared if its receipt still holds, every cell is settled, and no unclaimed files would die with it. Where its
birth record is there and no launch record, an approval without a receipt suffices. An approval that has expired
meanwhile still ends the boxes of the teardown that it began.

A stopped box of a rental platform can't be read. What was read of it before our stop stands for it, so that it need not
be started to end: `operations.power` reads it once more before a stop, journal and files in one look, after its runner
had ended (`LastLook`). That look counts only as long as nothing can have changed the box since. Each of these must be
proved, and what is not known counts as changed (docs/adr/021):

- our stop is what ended it: the look is on record, named by the record of that stop, and its bytes are those;
- it is of this very box, and its journal is the copy that the evidence has;
- the platform tells when it last started the box, and that is the start of which the look was made;
- the queue was given nothing since.

Which receipt may end it then is `receipt_check`'s: the one that names this journal's head, and no earlier one.
"""

from __future__ import annotations

import contextlib
from datetime import datetime

from sweepstack.core.journal import Journal, LastLook
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import JUDGED, SETTLED, Approval, Launch, Receipt
from sweepstack.core.search_log import PRUNED
from sweepstack.evidence.search_log import decided_prunes
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.retries import recorded_retries
from sweepstack.onbox.agent.channel import Listing
from sweepstack.onbox.common.canonical import GENESIS, digest_of
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import EvidenceElsewhere, EvidenceError, JournalDamaged
from sweepstack.teardown import unclaimed
from sweepstack.teardown.approval import Given, Judged, Subject, begun, judge_approval
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.check import Ending, EndVerdict, Way
from sweepstack.teardown.launched import copied_journal, signs_of_a_launch, unnamed_cells
from sweepstack.teardown.policy_check import binds
from sweepstack.teardown.receipt_check import receipt_problems
from sweepstack.teardown.signatures import sweep_of
from sweepstack.teardown.unclaimed import Unclaimed

DROPPED = "dropped: "
UNTOLD = "its platform does not tell when it last started it, so what ran there since its stop is not known"


@dataclass(frozen=True)
class CellLine:
    """A cell of this box, as it is shown to a person."""

    name: str
    state: str
    reason: str = ""


@dataclass
class Verdict(EndVerdict):
    """Whether the box may end. `cells` are this box's cells, `verified` and `total` the sweep's.

    `launched`: whether its queue was ever given cells; None if that can't be known. `unclaimed`: the files that the
    verb would kill and that no record covers; `held_by_unclaimed`: they alone keep the box.
    """

    cells: list[CellLine] = field(default_factory=list)
    launched: bool | None = None
    verified: int = 0
    total: int = 0
    receipt: str | None = None
    unclaimed: Unclaimed = field(default_factory=Unclaimed)
    held_by_unclaimed: bool = False
    rests: bool = False
    """Whether it is stopped and must be started before it can be read: what was read before the stop does not count."""
    folder_lost: bool = False
    """Whether its host answers, and has lost the folder that it was in."""
    silent: str = ""
    """Why what is on it could not be read just now; "" if it could, or if nothing of it is left."""
    account_problem: str = ""
    """Why it is another account's box; then no approval ends it from here. "" if it is ours."""
    evidence: bool = True
    """Whether the evidence could be opened and is this sweep's."""
    approved: bool = False
    """Whether an approval that holds names this box, verb and native id."""

    @property
    def unsettled(self) -> list[CellLine]:
        """The cells that keep the box locked."""
        return [cell for cell in self.cells if cell.state not in SETTLED]

    @property
    def cleared(self) -> str:
        """See `EndVerdict`."""
        return f"cleared by receipt {self.receipt}, {self.verified}/{self.total} verified"


class BoxEnding(Ending[Verdict]):
    """The end of the box by the verb of `box.facts`. `given`: where a person signs the approval after this, what it
    misses is in `unsigned`, and no reason to refuse."""

    def __init__(self, box: BoxContext, approval: Approval | None, seen: Observation, given: Given = "before") -> None:
        super().__init__(Verdict(), seen.existence, seen.account_problem)
        self.box, self.facts, self.approval, self.seen, self.given = box, box.facts, approval, seen, given
        self._unread: list[str] = []
        self._store: EvidenceStore | None = None
        self._launch: Launch | None = None
        self._latest: Receipt | None = None

    def look(self, *, full: bool) -> None:
        """Reads launch record and latest receipt, and the state of each cell."""
        verdict, facts = self.verdict, self.facts
        self._store = store = self._open()
        verdict.evidence = store is not None
        self._launch = self._read_launch(store) if store else None
        self.seen = seen = as_it_rested(store, facts, self.seen) if store else self.seen
        self._latest = _latest(store) if store else None
        copy = copied_journal(store, facts.name, facts.generation) if seen.journal is None else None
        verdict.cells = _cell_lines(self._launch, seen, self._latest, copy)
        if store is not None:
            verdict.cells = self._with_pruned(store, verdict.cells)
        verdict.folder_lost, verdict.account_problem = seen.folder_lost, seen.account_problem
        if seen.existence is Existence.UNKNOWN or (seen.journal is None and not seen.lost):
            verdict.silent = seen.account_problem or seen.note or "it does not answer"
            verdict.rests = seen.stopped and seen.journal is None
        if self._launch is not None:
            verdict.launched = True
        elif store is not None and not self._unread and seen.journal is not None and seen.journal.head == GENESIS:
            verdict.launched = None if _ran_by(self._latest, facts.native_id) else False
        if seen.existence is Existence.EXISTS:
            verdict.unclaimed = self._count(self._latest)

    def _with_pruned(self, store: EvidenceStore, cells: list[CellLine]) -> list[CellLine]:
        """Cells that the rule of a search stopped are so by its log; by the box's word alone they keep it."""
        claimed = {
            line.name: line.reason.removeprefix(DROPPED)
            for line in cells
            if line.state == "waived" and line.reason.startswith(DROPPED + PRUNED)
        }
        if not claimed:
            return cells
        try:
            decided, why = decided_prunes(store.objects, claimed), "the log of the search has no such decision"
        except EvidenceError as error:
            decided, why = frozenset(), str(error)
        return [
            line
            if line.name not in claimed
            else CellLine(line.name, "pruned", claimed[line.name])
            if line.name in decided
            else CellLine(line.name, "missing", f"stopped as pruned, and {why}")
            for line in cells
        ]

    def way_without_word(self) -> Way | None:
        """Also where nothing of it is left on a host that bills on."""
        return super().way_without_word() or ("emptied" if self.seen.emptied else None)

    def judged(self, now: datetime) -> Judged:
        """The approval, as one of this box and verb."""
        facts, store = self.facts, self._store
        if self.approval is None:
            if self.existence is Existence.UNKNOWN and self.seen.note:
                self._unread.append(f"what is on it now is not known: {self.seen.note}")
            return Judged(("not approved",))
        subject = Subject("box", facts.name, facts.native_id, facts.verb, sweep_of(facts, store))
        judged = judge_approval(subject, self.approval, store, lambda: binds(facts, store), now=now, given=self.given)
        self.verdict.approved = not judged.problems
        return judged

    def content(self, *, full: bool) -> tuple[Way | None, list[str]]:
        """Nothing was launched on it, or the approved receipt still holds; and no unclaimed file would die."""
        facts, seen, verdict, approval, store = self.facts, self.seen, self.verdict, self.approval, self._store
        if store is None or approval is None or self._unread:
            return None, []
        if seen.evidence_on is not None and seen.evidence_on[0] not in facts.keeps:
            part, folder = seen.evidence_on
            return None, [
                f"the evidence lies on this very box: {folder} is in its {part}, and would die with it. Copy that "
                "folder to a place outside of the box, and put the copy where it is now"
            ]
        if self._launch is None:
            problem = self._not_nothing(store)
            return (None, [problem]) if problem else self._unless_unclaimed("nothing-launched", approval)
        by_this = begun(store, facts.native_id, approval)
        waived = {waiver.cell: waiver.reason for waiver in approval.waive}
        problems = receipt_problems(
            store, facts, approval.receipt, waived, self._launch, seen, teardown_begun=by_this, full=full
        )
        if problems:
            verdict.cells = [_unless_damaged(line, problems) for line in verdict.cells]
            return None, problems
        assert approval.receipt is not None
        receipt = store.receipt(approval.receipt)
        verdict.receipt, verdict.verified, verdict.total = approval.receipt, receipt.verified, receipt.total
        if receipt is not self._latest or seen.existence is not Existence.EXISTS:  # else it was measured by this one
            verdict.unclaimed = self._count(receipt)
        verdict.cells = [
            CellLine(line.name, "waived", waived[line.name]) if line.name in waived else line for line in verdict.cells
        ]
        return self._unless_unclaimed("cleared", approval)

    def beside(self) -> list[str]:
        """What of its records is absent, damaged, or another's."""
        return self._unread

    def _open(self) -> EvidenceStore | None:
        facts = self.facts
        try:
            store = self.box.store
        except EvidenceElsewhere as error:
            self._unread.append(str(error))
            return None
        except EvidenceError as error:
            self._unread.append(f"no evidence: {error}")
            return None
        if store.marker.identity != facts.identity:
            other = store.marker.identity
            self._unread.append(f"the evidence at {facts.evidence} belongs to another sweep ({other})")
            return None
        return store

    def _read_launch(self, store: EvidenceStore) -> Launch | None:
        facts = self.facts
        try:
            launch = store.launch(facts.name, facts.generation)
        except EvidenceError as error:
            self._unread.append(str(error))
            return None
        if launch is not None and launch.native_id != facts.native_id:
            self._unread.append(f"the launch record is of {launch.native_id}, and this box is {facts.native_id}")
        return launch

    def _count(self, receipt: Receipt | None) -> Unclaimed:
        return unclaimed.measure(
            self.seen.listing,
            kills=self.facts.kills,
            box=self.facts.name,
            generation=self.facts.generation,
            journal=self.seen.journal,
            receipt=receipt,
            codes=self._store.codes if self._store else tuple,
            by_hand=self._by_hand,
        )

    def _by_hand(self) -> bool:
        """By its birth record. False where that can't be read, which `content` tells."""
        with contextlib.suppress(EvidenceError):
            birth = self._store.birth(self.facts.name, self.facts.generation) if self._store else None
            return birth is not None and birth.imported
        return False

    def _unless_unclaimed(self, way: Way, approval: Approval) -> tuple[Way | None, list[str]]:
        """The way; None if other files would die than those that a person has given up by name."""
        facts = self.facts
        ours = (w for w in approval.unclaimed if w.box == facts.name and w.native_id == facts.native_id)
        reason = unclaimed.lock_reason(self.verdict.unclaimed, next(ours, None))
        self.verdict.held_by_unclaimed = bool(reason)
        return (None, [reason]) if reason else (way, [])

    def _not_nothing(self, store: EvidenceStore) -> str:
        """Why it is not proved that nothing was launched on it; "" if it is."""
        facts, journal = self.facts, self.seen.journal
        try:
            birth = store.birth(facts.name, facts.generation)
        except EvidenceError as error:
            return str(error)
        if birth is None or birth.native_id != facts.native_id:
            return "no readable birth record: it can't be shown that nothing was launched"
        if journal is None:
            why = f": {self.seen.note}" if self.seen.note else ""
            return f"the journal could not be read, so it can't be shown that nothing was launched{why}"
        if journal.head != GENESIS:
            return "there is no launch record, but the box has a journal: the records were tampered with"
        if signs := signs_of_a_launch(store, facts.name, facts.generation, facts.native_id):
            self.verdict.launched = None
            return f"there is no launch record, but {signs[0]}"
        return ""


def _unless_damaged(line: CellLine, problems: list[str]) -> CellLine:
    """The line; `damaged` for a verified cell whose copy is no longer what the receipt says."""
    named = [problem.removeprefix(f"{line.name}: ") for problem in problems if problem.startswith(f"{line.name}: ")]
    return CellLine(line.name, "damaged", "; ".join(named)) if named and line.state == "verified" else line


def _cell_lines(
    launch: Launch | None, seen: Observation, latest: Receipt | None, copy: Journal | None
) -> list[CellLine]:
    """This box's cells by the latest receipt if it still fits the journal, else by the journal alone; by the last
    `copy` of the journal if the box can't be read now."""
    journal = seen.journal if seen.journal is not None or seen.lost else copy
    stale = "as of the last copy of the journal" if seen.journal is None else ""
    verified = {cell.name: cell for cell in latest.cells} if latest else {}
    lines = []
    for name in sorted({*(launch.cells if launch else ()), *unnamed_cells(journal, launch)}):
        progress = journal.cells.get(name) if journal else None
        cell = verified.get(name)
        same = cell is not None and (progress is None or progress.manifest == cell.manifest)
        if cell is not None and same and cell.state in JUDGED:
            lines.append(CellLine(name, cell.state, "; ".join(cell.reasons)))
        elif progress is None:
            unreadable = stale if journal else "the journal could not be read"
            lines.append(CellLine(name, "lost" if seen.lost else "pending", unreadable))
        elif progress.state == "sealed":
            gone = seen.lost
            lines.append(CellLine(name, "sealed", "" if gone else stale or "not verified yet"))
        elif progress.state == "dropped":
            lines.append(CellLine(name, "waived", f"{DROPPED}{progress.reason}"))
        elif progress.state == "running" and seen.stopped:
            lines.append(CellLine(name, "pending", "waits with its box, which is stopped"))
        elif progress.state == "running" and seen.runner_alive is False:
            lines.append(CellLine(name, "failed", "its runner is not alive; `pulumi up` resumes it"))
        else:
            lines.append(CellLine(name, progress.state, progress.reason or stale))
    return lines


def _ran_by(receipt: Receipt | None, native_id: str) -> bool:
    """Whether the receipt says that a cell ran on the box, whatever the box itself says now."""
    ours = [box for box in receipt.boxes if box.native_id == native_id] if receipt is not None else []
    return any(box.cells or box.journal_head != GENESIS for box in ours)


def _latest(store: EvidenceStore) -> Receipt | None:
    try:
        digest = store.latest_receipt()
        return store.receipt(digest) if digest else None
    except EvidenceError:
        return None


def as_it_rested(store: EvidenceStore, facts: BoxFacts, seen: Observation) -> Observation:
    """`seen` with journal and files of the look before our stop, and `kept_at`; or `seen` with a note why that look
    does not count. Unchanged for a box that is not stopped, or that was read. Never raises."""
    if seen.existence is not Existence.EXISTS or not seen.stopped or seen.journal is not None:
        return seen
    try:
        look, journal = _counts(store, facts, seen)
    except (EvidenceError, JournalDamaged) as error:
        return replace(seen, note="; ".join(filter(None, (seen.note, str(error)))))
    return replace(
        seen,
        journal=journal,
        runner_alive=False,
        listing=Listing(look.files, look.problem),
        evidence_on=look.evidence_on,
        kept_at=look.at,
    )


def _counts(store: EvidenceStore, facts: BoxFacts, seen: Observation) -> tuple[LastLook, Journal]:
    """The look, and the journal that it read. Raises EvidenceError with the reason why it does not count."""
    rest, journal = store.rest(facts.name, facts.generation), store.journal(facts.name, facts.generation)
    if rest is None or journal is None or not rest.speaks_for(facts.native_id, journal):
        raise EvidenceError("sweepstack did not stop it, or something was started there since its journal was copied")
    if seen.started_at is None:
        raise EvidenceError(UNTOLD)
    look = store.look(rest)
    if look is None:
        raise EvidenceError("it was not read in one look between the end of its runner and its stop")
    if (look.box, look.generation, look.native_id) != (facts.name, facts.generation, facts.native_id):
        raise EvidenceError(f"the look on record is of {look.box} ({look.native_id})")
    if look.head != journal.head:
        raise EvidenceError("the look on record read another journal than the copy that is here")
    if look.started_at != seen.started_at:
        raise EvidenceError(f"it was started at {seen.started_at:%Y-%m-%d %H:%M} UTC, and that start was not looked at")
    if look.queued != queued(store, facts.name, facts.generation):
        raise EvidenceError("its queue, or a retry of its cells, was changed after it was read")
    return look, journal


def queued(store: EvidenceStore, box: str, generation: int) -> str:
    """The digest of all that the queue of a box was given: its cells, and how often a person asked for each again.
    Raises EvidenceError."""
    launch = store.launch(box, generation)
    cells = launch.cells if launch is not None else {}
    retries = {name: retry.model_dump(mode="json") for name, retry in recorded_retries(store).items() if name in cells}
    return digest_of({"launch": launch.model_dump(mode="json") if launch is not None else None, "retries": retries})
