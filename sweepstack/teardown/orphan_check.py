"""What the check of an end (`check.may_end`) asks of a box that no state has.

For a box of a state it judges by what that remembers (`box_check`). Here the state is lost, or was never this person's,
so the box itself is read (its journal and queue, who owns it, until when it is held), and every evidence of its sweep
that can be found. Without a word nothing ends but what is ours, with an empty journal and a queue that was never given
a cell, or what a receipt of its sweep proves to be copied.

While its owner holds it, no other person ends it, unless they say that the owner has agreed. While another backend's
state answers and has its sweep, no person ends it here.

Also here: whether anything is lost with a box that a person calls gone, and that can't be asked any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime

from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Launch, Receipt
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import GENESIS
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged
from sweepstack.onbox.common.units import count
from sweepstack.teardown import unclaimed
from sweepstack.teardown.abandonment import VERB
from sweepstack.teardown.approval import Judged, judge_request
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.check import Ending, EndVerdict, Way
from sweepstack.teardown.launched import signs_of_a_launch
from sweepstack.teardown.ownership import Owner
from sweepstack.teardown.policy_check import binding, binds, births_in
from sweepstack.teardown.receipt_check import latest_problems

SHOWN = 6
"""Number of cells that are named; the others are counted."""


@dataclass(frozen=True)
class OrphanBox:
    """A box of an account that no state has. `identity`, `box`, `generation`: by its tag; "" and 0 if that can't be
    read. `ours`: its owner is the person who asks, or this checkout names the evidence of its sweep and no other
    backend holds that. `gate`: as text, which other backend answers and still has its stack; then it ends only
    there."""

    platform: str
    native_id: str
    account: str
    identity: str = ""
    box: str = ""
    generation: int = 0
    ours: bool = False
    gate: str = ""


@dataclass(frozen=True)
class OnIt:
    """What was just read of it. `given`: cells that its queue was ever given; None if that is not known.

    `holds`: evidence (its URI) that is stored on this very box, and in which folder: no copy in it counts.
    """

    seen: Observation
    owner: Owner | None = None
    given: frozenset[str] | None = None
    holds: Mapping[str, str] = field(default_factory=dict)

    def cells(self) -> dict[str, str]:
        """Cell → its state by the box's own journal and queue. Empty if nothing ran, or nothing could be read."""
        journal = self.seen.journal
        found = dict.fromkeys(sorted(self.given or ()), "pending")
        for name, progress in sorted(journal.cells.items()) if journal is not None else ():
            idle = progress.state == "running" and self.seen.runner_alive is False
            found[name] = "stopped in the middle" if idle else progress.state
        return found

    @property
    def unsettled(self) -> frozenset[str]:
        """The cells that keep the box: all but those that a person dropped."""
        return frozenset(name for name, state in self.cells().items() if state != "dropped")

    @property
    def words(self) -> str:
        """What is on it, in one line for a person."""
        if self.seen.existence is Existence.GONE:
            return "gone"
        if self.seen.journal is None or self.given is None:
            return f"not known ({self.seen.note or 'it could not be read'})"
        counts: dict[str, int] = {}
        for state in self.cells().values():
            counts[state] = counts.get(state, 0) + 1
        cells = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        if not cells:
            return "no cell was ever given to it" if self.seen.journal.head == GENESIS else "a journal without cells"
        return f"{count(len(self.cells()), 'cell')}: {cells}"


@dataclass(frozen=True)
class EndRequest:
    """A person asks for the end of a box. `reason`: why its content may be lost; "" if it is not abandoned. `agreed`:
    the owner who has agreed, as that person says."""

    person: str
    reason: str = ""
    agreed: str = ""


@dataclass
class OrphanVerdict(EndVerdict):
    """Whether the box may end. `unsafe`: cells on it without a proved copy, with their state.

    `held`: which other person holds it, and until when; then no abandonment helps.
    """

    unsafe: dict[str, str] = field(default_factory=dict)
    held: str = ""


class OrphanEnding(Ending[OrphanVerdict]):
    """The end of a box without its state. `evidence`: all that could be opened; that of other sweeps is ignored."""

    def __init__(self, box: OrphanBox, on_it: OnIt, evidence: Sequence[EvidenceStore], request: EndRequest) -> None:
        super().__init__(OrphanVerdict(), on_it.seen.existence, on_it.seen.account_problem)
        self.box, self.on_it, self.request = box, on_it, request
        self._stores = [store for store in evidence if box.identity and store.marker.identity == box.identity]
        self._problems, self._copied = list[str](), False

    def look(self, *, full: bool) -> None:
        """Asks the records for copies of what is on it, unless it is gone, or of another account."""
        if self.account_problem or self.existence is Existence.GONE:
            return
        on_it = self.on_it
        self._problems, self._copied = _copies(self.box, on_it, self._stores, full=full)
        if not self._copied:
            self.verdict.unsafe = {name: on_it.cells()[name] for name in sorted(on_it.unsettled)}

    def held(self, now: datetime) -> list[str]:
        """Its owner, or another backend."""
        self.verdict.held = _held(self.box, self.on_it, self.request, now)
        return [self.verdict.held] if self.verdict.held else []

    def judged(self, now: datetime) -> Judged:
        """The person who asks, and an approval on record where the policy names people."""
        box, given_up = self.box, bool(self.request.reason)
        binds = binding((), [one for one in births_in(self._stores) if one.native_id == box.native_id])
        return judge_request(
            self._stores, box.native_id, VERB, binds, identity=box.identity, given_up=given_up, now=now
        )

    def content(self, *, full: bool) -> tuple[Way | None, list[str]]:
        """All that ran on it is copied; or nothing ran on it, it is ours, and it holds nothing unclaimed."""
        box, seen, stores, unsafe = self.box, self.on_it.seen, self._stores, self.verdict.unsafe
        if seen.existence is not Existence.EXISTS or seen.journal is None or self.on_it.given is None:
            return None, [f"what is on it is not known: {seen.note or 'it could not be read'}"]
        if self._copied:
            return "cleared", []
        if unsafe or seen.journal.head != GENESIS or seen.runner_alive:
            return None, [_unsafe_words(unsafe), *self._problems]
        against = [*self._problems, *(sign for store in stores for sign in _signs(store, box))]
        if not box.ours:
            owner = self.on_it.owner
            against.append(
                "nothing ran on it, and whose it is is not known: it may be about to be used"
                if owner is None
                else f"nothing ran on it, and it is {owner.person}'s, for {owner.sweep}"
            )
        reason = _unclaimed(box, seen, None, lambda: {code for store in stores for code in store.codes()})
        against += [reason] if reason else []
        return (None, against) if against else ("nothing-launched", [])


def not_proved_here(box: BoxContext) -> list[str]:
    """Why a box that a person calls gone is not let go without an abandonment; empty if every cell that it was given is
    verified by the latest receipt, and the box had ended what the copy of its journal says, or if it was never given
    one. Reads every file of the receipt again. Raises nothing."""
    try:
        store, facts = box.store, box.facts
        problems, bound = _not_here(store, facts), binds(facts, store)
    except (EvidenceError, JournalDamaged) as error:
        return [str(error)]
    now, identity = datetime.now(UTC), facts.identity
    asked = judge_request([store], facts.native_id, VERB, bound, identity=identity, given_up=False, now=now)
    return [*problems, *asked.problems]


def _not_here(store: EvidenceStore, facts: BoxFacts) -> list[str]:
    launch = store.launch(facts.name, facts.generation)
    if launch is None or launch.native_id != facts.native_id:
        return signs_of_a_launch(store, facts.name, facts.generation, facts.native_id)
    digest, journal = store.latest_receipt(), store.journal(facts.name, facts.generation)
    if digest is None or journal is None:
        return ["its cells were never verified here"]
    seen = Observation(Existence.EXISTS, journal, runner_alive=False)
    return latest_problems(store, facts, digest, launch, seen, full=True)


def _unclaimed(box: OrphanBox, seen: Observation, receipt: Receipt | None, codes: Callable[[], Collection[str]]) -> str:
    """Why the files on it that no record covers keep it; "" if they don't."""
    counted = unclaimed.measure(
        seen.listing,
        kills=(),
        box=box.box,
        generation=box.generation,
        journal=seen.journal,
        receipt=receipt,
        codes=codes,
    )
    return unclaimed.lock_reason(counted, None)


def _signs(store: EvidenceStore, box: OrphanBox) -> list[str]:
    """What this evidence has that contradicts "nothing was launched on it"."""
    try:
        birth = store.birth(box.box, box.generation)
    except EvidenceError as error:
        return [str(error)]
    another = birth is not None and birth.native_id not in (None, box.native_id)
    # Two boxes have one tag: the records by name and generation are the other one's. There is no generation 0.
    found = signs_of_a_launch(store, box.box, 0 if another else box.generation, box.native_id)
    return [f"{store.shown}: {sign}" for sign in found]


def _held(box: OrphanBox, on_it: OnIt, request: EndRequest, now: datetime) -> str:
    """Which other person or backend holds it, and until when; "" if the box is ours, or not held, or the owner has
    agreed. An agreement does not count against a backend that still has it."""
    owner = on_it.owner
    if box.gate:
        other = owner.person if owner is not None and owner.person != request.person else ""
        return f"{box.gate}: it ends through its gate there{f'; ask {other}' if other else ''}"
    if box.ours or owner is None or owner.person in (request.person, request.agreed):
        return ""
    until = owner.held_at(now, on_it.seen.journal)
    if until is None:
        return ""
    return f"{owner.person} holds it until {until:%Y-%m-%d %H:%M} UTC, for {owner.sweep}: ask there"


def _unsafe_words(cells: dict[str, str]) -> str:
    """The cells that would be lost, in one line."""
    if not cells:
        return "cells ran on it, and no receipt here proves a copy of them"
    named = ", ".join(f"{name} {state}" for name, state in list(cells.items())[:SHOWN])
    more = f", and {len(cells) - SHOWN} more" if len(cells) > SHOWN else ""
    return f"it holds {count(len(cells), 'cell')} without a copy that is proved here: {named}{more}"


def _copies(box: OrphanBox, on_it: OnIt, stores: Sequence[EvidenceStore], *, full: bool) -> tuple[list[str], bool]:
    """What the records have against its end, and whether one of them proves that all that ran on it is copied."""
    problems: list[str] = []
    for store in stores:
        try:
            launch = store.launch(box.box, box.generation)
            digest = store.latest_receipt()
            if digest is None and (launch is None or launch.native_id != box.native_id):
                continue
            if digest is None:
                problems.append(f"{store.shown} knows its launch, and holds no receipt")
                continue
            named = any(b.native_id == box.native_id for b in store.receipt(digest).boxes)
            if launch is None or launch.native_id != box.native_id:
                problems += [f"{store.shown} has a receipt that names it, and not its launch record"] if named else []
                continue
            folder = on_it.holds.get(store.objects.uri)
            found = [f"{folder} lies on this very box, and would die with it"] if folder else []
            found = found or _receipt_problems(store, box, on_it, launch, digest, full=full)
        except (EvidenceError, JournalDamaged) as error:
            found = [str(error)]
        if not found:
            return [], True
        problems += [f"{store.shown}: {problem}" for problem in found]
    return problems, False


def _receipt_problems(
    store: EvidenceStore, box: OrphanBox, on_it: OnIt, launch: Launch, digest: str, *, full: bool
) -> list[str]:
    """Why this evidence's latest receipt does not prove that all that ran on the box is copied."""
    receipt = store.receipt(digest)
    facts = BoxFacts(
        identity=box.identity,
        evidence=store.objects.uri,
        name=box.box,
        native_id=box.native_id,
        account=box.account,
        generation=box.generation,
        verb="destroy",
        kills=(),
        keeps=(),
        roster_digest="",
    )
    problems = latest_problems(store, facts, digest, launch, on_it.seen, full=full)
    known = {cell.name for cell in receipt.cells if cell.state == "verified"}
    problems += [
        f"{name} is on it, and the receipt has no verified copy of it" for name in sorted(on_it.unsettled - known)
    ]
    if not problems and (reason := _unclaimed(box, on_it.seen, receipt, store.codes)):
        problems.append(reason)
    return problems
