"""Which phase of its life a sweep is in, what is proved of each phase, and how each is checked.

Pure. A proof names the file or the machine that says so. It reads what a status reads, and takes the next command from
the same view, so that the two never differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

from sweepstack.core.observation import Existence
from sweepstack.core.records import ENDED, SETTLED, Approval
from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.status.model import SweepView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot

State = Literal["proved", "open", "unknown"]
"""`open`: not so, or not yet. `unknown`: what would say it did not answer; that is never taken for proved."""
REMARK = "    ("
"""Begins what a next line says behind its command."""


@dataclass(frozen=True)
class Phase:
    """One phase. `verify`: the command that checks it, with places for a stack and a box."""

    number: int
    name: str
    verify: str

    def check(self, stack: str, box: str) -> str:
        """The command that checks it, for this stack."""
        return self.verify.format(stack=stack, box=box)


PHASES = (
    Phase(-1, "set up once", "sweepctl doctor --stack {stack}"),
    Phase(0, "look before renting", "pulumi preview --stack {stack}"),
    Phase(1, "rent and reach the boxes", "sweepctl ssh --stack {stack} {box} -- echo reachable"),
    Phase(2, "ship, set up, try a batch", "sweepctl logs --stack {stack} --of setup {box}"),
    Phase(3, "launch", "sweepctl wait --stack {stack} first-step --timeout 60s"),
    Phase(4, "run and watch", "sweepctl status --probe --stack {stack}"),
    Phase(5, "bring home, verify, end", "sweepctl verify --stack {stack}"),
)
FIRST, LAST = PHASES[0].number, PHASES[-1].number
OVER = "sweepctl audit"
"""The check of the last phase once no box is left: what the accounts hold, against what any state knows."""


@dataclass(frozen=True)
class Fact:
    """One thing that a phase needs. `by`: the file or the machine that says so; `at`: when it was written, or asked."""

    phase: int
    what: str
    state: State
    by: str = ""
    at: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return vars(self) | {"at": self.at.isoformat() if self.at else None}


@dataclass(frozen=True)
class PhaseReport:
    """Where a sweep stands. `next`: the one line to type, as `status` has it; `otherwise`: its others, where that one
    fails."""

    stack: str
    phase: Phase
    verify: str
    facts: tuple[Fact, ...]
    bills: str
    next: str
    otherwise: tuple[str, ...] = ()

    @property
    def over(self) -> bool:
        """Whether something was rented, and nothing bills any more."""
        return self.phase.number == LAST and self.bills == "nothing"

    @property
    def command(self) -> str:
        """The next line without its remark."""
        return self.next.split(REMARK)[0]

    def of(self, state: State) -> tuple[Fact, ...]:
        """The facts in this state, in the order of the phases."""
        return tuple(fact for fact in self.facts if fact.state == state)

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `sweepctl status --next --json`."""
        return {
            "stack": self.stack,
            "phase": {"number": self.phase.number, "name": self.phase.name, "verify": self.verify},
            "over": self.over,
            "bills": self.bills,
            "proved": [fact.as_json() for fact in self.of("proved")],
            "open": [fact.as_json() for fact in self.of("open")],
            "unknown": [fact.as_json() for fact in self.of("unknown")],
            "command": self.command,
            "next": [self.next] if self.next else [],
            "otherwise": list(self.otherwise),
        }


def phase_report(snapshot: Snapshot, view: SweepView) -> PhaseReport:
    """Where this sweep stands, by one picture of it. `view`: what `compose` made of the same snapshot."""
    phase = PHASES[number_of(snapshot, view) - FIRST]
    facts = tuple(sorted(_facts(snapshot, view), key=lambda fact: fact.phase))
    named = next((one.box.name for one in snapshot.box_snapshots if not one.gone), "BOX")
    verify = OVER if phase.number == LAST and not snapshot.box_snapshots else phase.check(view.stack, named)
    first, *others = view.next or ("",)
    return PhaseReport(view.stack, phase, verify, facts, view.bills, first, tuple(others))


def never_up(stack: str, why: str, following: Sequence[str]) -> PhaseReport:
    """The standing of a stack that neither the backend nor a record knows: phase -1. Another backend may have it, so
    what bills is not known."""
    first, *others = following or [""]
    fact = Fact(FIRST, "the backend has the stack", "open", why)
    return PhaseReport(stack, PHASES[0], PHASES[0].check(stack, "BOX"), (fact,), "unknown", first, tuple(others))


def of_volumes(stack: str, facts: Sequence[Fact], bills: str, following: Sequence[str]) -> PhaseReport:
    """The standing of a stack of volumes: they are kept, or there is none yet."""
    phase = PHASES[-1] if facts else PHASES[1]
    first, *others = following or [""]
    verify = f"sweepctl status --stack {stack}" if facts else phase.check(stack, "BOX")
    return PhaseReport(stack, phase, verify, tuple(facts), bills, first, tuple(others))


def number_of(snapshot: Snapshot, view: SweepView) -> int:
    """The furthest phase that was begun: a later one is never called over because an earlier one was lost again."""
    boxes = snapshot.box_snapshots
    if snapshot.teardown is not None or view.settled:
        return 5
    if any(one.handed is not None and one.handed.verb == "destroy" for one in boxes):
        return 5
    if not boxes:
        if view.unknown or snapshot.evidence_problem:  # what was rented is not known
            return 1
        if snapshot.births:
            return 5 if all(birth.ended_at is not None for birth in snapshot.births) else 1
        return 0 if snapshot.known else -1
    states = set(view.counts())
    if all(one.verdict.allowed for one in boxes) and "lost" not in states:
        return 5
    if states and states <= ENDED:
        return 5
    if any(cell.attempts or cell.state not in ("pending", "waived") for cell in view.cells):
        return 4
    setups = [one.setup.state for one in boxes if one.setup is not None]
    if any(state != "finished" for state in setups):
        return 2
    if any(one.launch is not None for one in boxes):
        return 3
    return 2 if all(one.reachable for one in boxes) else 1


def _facts(snapshot: Snapshot, view: SweepView) -> Iterator[Fact]:
    cells, now = len(snapshot.roster), snapshot.now
    yield Fact(-1, "the backend has the stack", "proved" if snapshot.known else "open", "pulumi stack export", now)
    if snapshot.evidence_problem:
        yield Fact(-1, "the evidence can be read", "unknown", snapshot.evidence_problem)
    elif snapshot.evidence:
        yield Fact(-1, "the evidence can be read", "proved", snapshot.evidence, now)
    what = f"the roster is known: {count(cells, 'cell')}"
    yield Fact(0, what if cells else "the roster is known", "proved" if cells else "open", "the stack file")
    begun = min((birth.begun_at for birth in snapshot.births), default=None)
    # Box.Create writes it after its own checks, and refuses without them.
    checked = "budget, balance, profile and smoke run let it rent"
    unread = "the birth records can't be read" if snapshot.evidence_problem else ""
    state: State = "unknown" if unread else "proved" if begun else "open"
    yield Fact(0, checked, state, unread or ("records/births" if begun else "nothing was rented"), begun)
    for box_snapshot in snapshot.box_snapshots:
        yield from _of_box(snapshot, box_snapshot)
    for orphan in view.unknown:
        name = orphan.name or orphan.native_id or "an entry"
        yield Fact(1, f"{name} is as the state has it", "open" if orphan.proved else "unknown", orphan.why)
    if snapshot.box_snapshots or snapshot.births:
        yield from _of_cells(snapshot, view)
        yield from _of_the_end(snapshot, view)


def _of_box(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> Iterator[Fact]:
    name, entry, now = box_snapshot.box.name, box_snapshot.box, snapshot.now
    record = f"{name}-g{entry.generation}"
    birth = next((one for one in snapshot.births if one.native_id == entry.native_id), None)
    since = birth.created_at if birth is not None else None
    yield Fact(1, f"{name} is rented", "proved" if birth else "unknown", f"records/births/{record}.json", since)
    seen = box_snapshot.seen
    if box_snapshot.gone:
        yield Fact(1, f"{name} answers", "open", f"it is gone from {entry.adapter}", now)
    elif seen.stopped:
        yield Fact(1, f"{name} answers", "open", "its platform says that it is stopped", now)
    elif box_snapshot.reachable:
        yield Fact(1, f"{name} answers", "proved", "its journal, read just now", now)
    else:
        silent = "its journal does not read" if seen.existence is Existence.EXISTS else "it did not answer"
        yield Fact(1, f"{name} answers", "unknown", seen.note or silent, now)
    journal = f"journals/{record}.jsonl, its last copy" if box_snapshot.copied else "the box's journal"
    launch, setup = box_snapshot.launch, box_snapshot.setup
    sent = f"records/launches/{record}.json" if launch else "nothing was shipped"
    yield Fact(2, f"{name} has the code", "proved" if launch else "open", sent, launch.at if launch else None)
    if setup is not None:
        done = setup.state == "finished"
        why = journal if done else setup.reason or f"the journal says {setup.state}"
        yield Fact(2, f"{name} is set up", "proved" if done else "open", why)
    begun = [one.started_at for one in _progresses(box_snapshot) if one.started_at is not None]
    if box_snapshot.journal is None:
        yield Fact(3, f"{name} trains", "unknown", "its journal could not be read")
    else:
        by = journal if begun else "no cell has started"
        yield Fact(3, f"{name} trains", _yes(bool(begun)), by, min(begun, default=None))
    if seen.runner_alive and box_snapshot.patrol is not None:
        late = box_snapshot.patrol.silent(box_snapshot.there(now))
        beat = "its runner's last heartbeat is too old" if late else "its runner's heartbeat"
        yield Fact(4, f"{name} is watched", _yes(not late), beat, box_snapshot.heartbeat)
    elif box_snapshot.stranded:
        yield Fact(4, f"{name} is watched", "open", "its runner has ended before its cells", now)


def _progresses(box_snapshot: BoxSnapshot) -> tuple[Any, ...]:
    return tuple(box_snapshot.journal.cells.values()) if box_snapshot.journal is not None else ()


def _of_cells(snapshot: Snapshot, view: SweepView) -> Iterator[Fact]:
    counts, total = view.counts(), len(view.cells)
    ended = sum(number for state, number in counts.items() if state in ENDED)
    others = ", ".join(f"{number} {state}" for state, number in counts.items() if state not in ENDED)
    state: State = "proved" if total and ended == total else "open"
    yield Fact(4, f"{ended} of {total} cells have ended well", state, others or "their boxes' journals")
    for cell in view.cells:
        if cell.verdict == "hung":
            yield Fact(4, f"{cell.name} goes on", "open", "its patrol calls it hung", snapshot.now)


def _of_the_end(snapshot: Snapshot, view: SweepView) -> Iterator[Fact]:
    settled = sum(cell.state in SETTLED for cell in view.cells)
    digest = snapshot.receipt_digest
    by = f"receipts/{hex_of(digest)}.json" if digest else "there is no receipt"
    if snapshot.broken:
        by = f"the copy of {', '.join(sorted(snapshot.broken)[:3])} is not as it was verified"
    yield Fact(5, f"{settled} of {len(view.cells)} cells are verified or waived", _yes(view.settled), by)
    for box_snapshot in snapshot.box_snapshots:
        verdict, approval = box_snapshot.verdict, _approval(snapshot, box_snapshot)
        why = f"way: {verdict.way}" if verdict.allowed else "; ".join(verdict.reasons) or "not approved"
        if approval is not None and not verdict.allowed and approval.expires < snapshot.now:
            why = f"its approval expired at {approval.expires:%Y-%m-%d %H:%M} UTC"
        at = approval.at if approval is not None and verdict.way == "cleared" else None
        yield Fact(5, f"{box_snapshot.box.name} may end", _yes(verdict.allowed), why, at)
    known = {one.box.native_id for one in snapshot.box_snapshots if not one.gone}
    for birth in snapshot.births:
        if birth.ended_at is not None and birth.native_id not in known:
            record = f"records/births/{birth.box}-g{birth.generation}.json"
            how = f"{record} ({birth.ended_how})" if birth.ended_how else record
            yield Fact(5, f"{birth.box} has ended", "proved", how, birth.ended_at)
    for volume in snapshot.left:
        if volume.may_bill:
            state: State = "open" if volume.price_per_month else "unknown"
            yield Fact(5, f"volume {volume.name} bills nothing", state, volume.words)
    for one in snapshot.still_billed:
        yield Fact(5, f"{one.box} is released", "open", f"{one.how}, and it stands still")
    told: dict[str, tuple[State, str]] = {
        "nothing": ("proved", "the records, and every place that could bill"),
        "yes": ("open", f"at least ${spell_rate(view.meter.per_hour)}/h" if view.meter.incomplete else _rate(view)),
    }
    state, by = told.get(view.bills, ("unknown", "not every place that could bill has answered"))
    yield Fact(5, "nothing bills", state, by, snapshot.now)


def _rate(view: SweepView) -> str:
    return f"${spell_rate(view.meter.per_hour)}/h"


def _yes(so: bool) -> State:
    return "proved" if so else "open"


def _approval(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> Approval | None:
    """The approval of this box's end: the one in its state, else the stack file's."""
    return box_snapshot.box.approval or snapshot.approval
