"""The one check that may end a box. For a box that no state has, it is `teardown.orphan_check`.

Every path that ends a box, or wipes a tier of it, asks `may_end`: the provider's deletes, the provider's previews,
`sweepctl status` and `sweepctl approve`. It reads the evidence and what the platform said; it trusts no flag in the
engine's state. A box may end in one of six ways, and all need the right account:

    cleared           an approval names this verb and native id, its receipt still holds, every cell is settled
    gone              the platform proves that the native id no longer exists
    emptied           its host proves that nothing of it is left there: only the host's bill has to end
    nothing-launched  the birth record is there and no launch record: an approval without a receipt suffices
    abandoned         a person said, by name and with a reason, that what is on it may be lost
    begun             an approval that has expired meanwhile still ends the boxes of the teardown that it began
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import JUDGED, SETTLED, Approval, Launch, Receipt
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import GENESIS
from sweepstack.onbox.common.errors import EvidenceElsewhere, EvidenceError
from sweepstack.teardown import unclaimed
from sweepstack.teardown.approval import Given, Subject, begun, judge_approval
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.box_facts import BoxFacts
from sweepstack.teardown.launched import copied_journal, signs_of_a_launch, unnamed_cells
from sweepstack.teardown.policy_check import binds
from sweepstack.teardown.receipt_check import receipt_problems
from sweepstack.teardown.rested import as_it_rested
from sweepstack.teardown.signatures import sweep_of
from sweepstack.teardown.unclaimed import Unclaimed

if TYPE_CHECKING:
    from sweepstack.core.journal import Journal

Way = Literal["cleared", "gone", "emptied", "nothing-launched", "abandoned", "nothing-at-risk"]


@dataclass(frozen=True)
class CellLine:
    """A cell of this box, as it is shown to a person."""

    name: str
    state: str
    reason: str = ""


@dataclass
class Verdict:
    """Whether the box may end. If not, `reasons` say why; `cells` are this box's cells, `verified` and `total` the
    sweep's.

    `launched`: whether its queue was ever given cells; None if that can't be known. `unclaimed`: the files that the
    verb would kill and that no record covers; `held_by_unclaimed`: they alone keep the box.
    """

    allowed: bool = False
    way: Way | None = None
    reasons: list[str] = field(default_factory=list)
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
    unsigned: tuple[str, ...] = ()
    """Whose signatures the policy asks for, and the approval does not have yet. Not allowed then, unless the approval
    is given just now."""

    @property
    def unsettled(self) -> list[CellLine]:
        """The cells that keep the box locked."""
        return [cell for cell in self.cells if cell.state not in SETTLED]

    @property
    def headline(self) -> str:
        """The verdict in fixed words, for a diff: they change when the verdict changes, not while cells make
        progress."""
        if self.allowed and self.way == "cleared":
            return f"cleared by receipt {self.receipt}, {self.verified}/{self.total} verified"
        if self.allowed and self.way == "abandoned":
            return "cleared: abandoned, what is on it may be lost"
        if self.allowed and self.way == "nothing-launched":
            return "cleared: nothing was ever launched on it"
        if self.allowed and self.way == "nothing-at-risk":
            return "cleared: it kills nothing that is nowhere else"
        if self.allowed and self.way == "emptied":
            return "cleared: nothing of it is left on its host, which bills on"
        if self.allowed:
            return "cleared: gone from the platform"
        return f"locked ({self.reasons[0]})" if self.reasons else "locked"


def may_end(
    box: BoxContext,
    approval: Approval | None,
    seen: Observation,
    *,
    now: datetime | None = None,
    full: bool,
    given: Given = "before",
) -> Verdict:
    """Decides whether the verb of `box.facts` may be issued for the box, and why not.

    `full` re-hashes every file of the receipt (used when clearing and deleting); otherwise size and mtime are compared.
    `given`: where a person signs it after this, what it misses is in `unsigned`, and no reason to refuse.
    Never raises for damaged or absent evidence: that is a reason to refuse. Reads files; costs no money.
    """
    now, facts = now or datetime.now(UTC), box.facts
    verdict = Verdict()
    store = _open(box, verdict)
    verdict.evidence = store is not None
    launch = _launch(store, facts, verdict) if store else None
    seen = as_it_rested(store, facts, seen) if store else seen
    latest = _latest(store) if store else None
    copy = copied_journal(store, facts.name, facts.generation) if seen.journal is None else None
    verdict.cells = _cell_lines(launch, seen, latest, copy)
    verdict.folder_lost = seen.folder_lost
    if seen.existence is Existence.UNKNOWN or (seen.journal is None and not seen.lost):
        verdict.silent = seen.account_problem or seen.note or "it does not answer"
        verdict.rests = seen.stopped and seen.journal is None
    if launch is not None:
        verdict.launched = True
    elif store is not None and not verdict.reasons and seen.journal is not None and seen.journal.head == GENESIS:
        verdict.launched = None if _ran_by(latest, facts.native_id) else False
    if seen.existence is Existence.EXISTS:
        verdict.unclaimed = _unclaimed(facts, seen, latest, store)
    if seen.account_problem:
        verdict.account_problem = seen.account_problem
        verdict.reasons.insert(0, seen.account_problem)
        return verdict
    if seen.existence is Existence.GONE:
        verdict.allowed, verdict.way = True, "gone"
        return verdict
    if seen.emptied:
        verdict.allowed, verdict.way = True, "emptied"
        return verdict
    if approval is None:
        verdict.reasons.insert(0, "not approved")
        if seen.existence is Existence.UNKNOWN and seen.note:
            verdict.reasons.append(f"what is on it now is not known: {seen.note}")
        return verdict
    subject = Subject("box", facts.name, facts.native_id, facts.verb, sweep_of(facts, store))
    judged = judge_approval(subject, approval, store, lambda: binds(facts, store), now=now, given=given)
    verdict.unsigned = judged.unsigned
    if judged.problems:
        verdict.reasons[:0] = judged.problems
        return verdict
    verdict.approved = True
    if judged.given_up:
        verdict.allowed, verdict.way = True, "abandoned"
        return verdict
    if store is None or verdict.reasons:
        return verdict
    if seen.evidence_on is not None and seen.evidence_on[0] not in facts.keeps:
        part, folder = seen.evidence_on
        verdict.reasons.append(
            f"the evidence lies on this very box: {folder} is in its {part}, and would die with it. Copy that folder "
            "to a place outside of the box, and put the copy where it is now"
        )
        return verdict
    if launch is None:
        return _unless_unclaimed(_nothing_launched(store, facts, seen, verdict), facts, approval)
    problems = receipt_problems(
        store, facts, approval, launch, seen, teardown_begun=begun(store, facts.native_id, approval), full=full
    )
    if problems:
        verdict.reasons[:0] = problems
        verdict.cells = [_unless_damaged(line, problems) for line in verdict.cells]
        return verdict
    assert approval.receipt is not None
    receipt = store.receipt(approval.receipt)
    reasons = {waiver.cell: waiver.reason for waiver in approval.waive}
    verdict.allowed, verdict.way, verdict.receipt = True, "cleared", approval.receipt
    verdict.verified, verdict.total = receipt.verified, receipt.total
    if receipt is not latest or seen.existence is not Existence.EXISTS:  # else it was already measured by this receipt
        verdict.unclaimed = _unclaimed(facts, seen, receipt, store)
    verdict.cells = [
        CellLine(line.name, "waived", reasons[line.name]) if line.name in reasons else line for line in verdict.cells
    ]
    return _unless_unclaimed(verdict, facts, approval)


def _unclaimed(facts: BoxFacts, seen: Observation, receipt: Receipt | None, store: EvidenceStore | None) -> Unclaimed:
    return unclaimed.measure(
        seen.listing,
        kills=facts.kills,
        box=facts.name,
        generation=facts.generation,
        journal=seen.journal,
        receipt=receipt,
        codes=store.codes if store else tuple,
    )


def _unless_unclaimed(verdict: Verdict, facts: BoxFacts, approval: Approval) -> Verdict:
    """The verdict; no longer allowed if other files would die than those that a person has given up by name."""
    ours = (w for w in approval.unclaimed if w.box == facts.name and w.native_id == facts.native_id)
    reason = unclaimed.lock_reason(verdict.unclaimed, next(ours, None))
    if verdict.allowed and reason:
        verdict.allowed, verdict.way, verdict.held_by_unclaimed = False, None, True
        verdict.reasons.insert(0, reason)
    return verdict


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
            lines.append(CellLine(name, "waived", f"dropped: {progress.reason}"))
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


def _open(box: BoxContext, verdict: Verdict) -> EvidenceStore | None:
    facts = box.facts
    try:
        store = box.store
    except EvidenceElsewhere as error:
        verdict.reasons.append(str(error))
        return None
    except EvidenceError as error:
        verdict.reasons.append(f"no evidence: {error}")
        return None
    if store.marker.identity != facts.identity:
        verdict.reasons.append(f"the evidence at {facts.evidence} belongs to another sweep ({store.marker.identity})")
        return None
    return store


def _launch(store: EvidenceStore, facts: BoxFacts, verdict: Verdict) -> Launch | None:
    try:
        launch = store.launch(facts.name, facts.generation)
    except EvidenceError as error:
        verdict.reasons.append(str(error))
        return None
    if launch is not None and launch.native_id != facts.native_id:
        verdict.reasons.append(f"the launch record is of {launch.native_id}, and this box is {facts.native_id}")
    return launch


def _nothing_launched(store: EvidenceStore, facts: BoxFacts, seen: Observation, verdict: Verdict) -> Verdict:
    try:
        birth = store.birth(facts.name, facts.generation)
    except EvidenceError as error:
        verdict.reasons.append(str(error))
        return verdict
    if birth is None or birth.native_id != facts.native_id:
        verdict.reasons.append("no readable birth record: it can't be shown that nothing was launched")
    elif seen.journal is None:
        why = f": {seen.note}" if seen.note else ""
        verdict.reasons.append(f"the journal could not be read, so it can't be shown that nothing was launched{why}")
    elif seen.journal.head != GENESIS:
        verdict.reasons.append("there is no launch record, but the box has a journal: the records were tampered with")
    elif signs := signs_of_a_launch(store, facts.name, facts.generation, facts.native_id):
        verdict.reasons.append(f"there is no launch record, but {signs[0]}")
        verdict.launched = None
    else:
        verdict.allowed, verdict.way = True, "nothing-launched"
    return verdict
