"""Judges what no state has: whether it may end, and which command leads on.

It is read, the evidence of its sweep is found, and the check of its end is asked. A volume may end only if its data is
safe elsewhere: the evidence of every sweep that mounted it is known, all boxes of these sweeps have ended, and the
latest receipt verifies every cell that ran with this volume, by every byte of a copy that does not lie on the volume
itself. Or a person gives it up, with a reason. While another backend's state answers and has its sweep, or one that
mounted it, no person ends it here. Of a box `teardown.orphan_check` says what it needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sweepstack.billing.stray import Stray, end_command, takes_words
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.project import project_name
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.parallel import in_parallel
from sweepstack.evidence.location import evidence_on
from sweepstack.evidence.stack_copy import copy_back
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.entries import queue_entries
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.operations.observe import observe
from sweepstack.operations.strays.known_states import KnownStates
from sweepstack.operations.strays.other_backends import BackendAnswer, gate_of, held_by_another
from sweepstack.operations.strays.volumes import used_bytes
from sweepstack.operations.volumes.end_check import (
    VolumeContext,
    VolumeFacts,
    VolumeSeen,
    observe_volume,
    take_inventory,
    use_problems,
)
from sweepstack.operations.volumes.mounting_sweeps import VERB, Survey, User, recorded
from sweepstack.teardown.approval import Judged, judge_request
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.check import Ending, EndVerdict, Way, may_end
from sweepstack.teardown.orphan_check import EndRequest, OnIt, OrphanBox, OrphanEnding, OrphanVerdict
from sweepstack.teardown.ownership import Owner, former_names, read_owner, who
from sweepstack.teardown.policy_check import binding, births_in

READ_SECONDS = 60.0
"""The most seconds for reading all boxes, in parallel."""
NOT_IN_TIME = f"it did not answer within {READ_SECONDS:.0f} s"
COUNT_SECONDS = 5.0
"""The most seconds for counting the files of a volume."""


@dataclass(frozen=True)
class Assessed:
    """A box or a volume that no state has. `holds`: what is on it, as text. `stores`: the evidence of its sweeps that
    can be opened here. `others`: the other backends that hold its sweeps, with their answers."""

    finding: Stray
    verdict: EndVerdict
    holds: str
    stores: tuple[EvidenceStore, ...]
    others: tuple[BackendAnswer, ...]

    @property
    def owner(self) -> Owner | None:
        """The owner that a box itself names."""
        return None

    @property
    def owner_words(self) -> str:
        """The owner of a box as text; "" of a volume, which names none."""
        return ""


@dataclass(frozen=True)
class VolumeAssessed(Assessed):
    """`owners`: of `others` those that hold the sweep that made it."""

    verdict: VolumeVerdict
    owners: tuple[BackendAnswer, ...] = ()


@dataclass(frozen=True)
class BoxAssessed(Assessed):
    """`on_record`: the sweep with an open record of it, if that evidence was found only through the box; else ""."""

    verdict: OrphanVerdict
    box: OrphanBox
    on_it: OnIt
    on_record: str = ""

    @property
    def there(self) -> str:
        """The command that goes on in the other backend that still holds its sweep; "" if none does."""
        return gate_of(self.others)[1]

    @property
    def owner(self) -> Owner | None:
        """See `Assessed`."""
        return self.on_it.owner

    @property
    def state_words(self) -> str:
        """Which backend holds the records of its sweep, as text; "" if they name none."""
        for store in self.stores:
            with contextlib.suppress(EvidenceError):
                if (lease := store.lease()) is not None:
                    return f"; its records are held by the state in {lease.backend}"
        return ""

    @property
    def owner_words(self) -> str:
        """See `Assessed`."""
        if self.owner is None:
            return "not known"
        until = self.owner.held_at(datetime.now(UTC), self.on_it.seen.journal)
        held = f"held until {until:%Y-%m-%d %H:%M} UTC" if until else "not held any more"
        backend = f", backend {self.owner.backend}" if self.owner.backend else ""
        return f"{self.owner.person}, for {self.owner.sweep}{backend}; {held}"


def assess_box(finding: Stray, known: KnownStates, request: EndRequest, *, full: bool) -> BoxAssessed:
    """Reads the box, finds the evidence of its sweep, and runs the check. Blocks for seconds; reads only."""
    return _judge_box(finding, read_box(_at(finding), _places(finding, known)), known, request, full=full)


def _judge_box(finding: Stray, on_it: OnIt, known: KnownStates, request: EndRequest, *, full: bool) -> BoxAssessed:
    identity, name, generation = box_layout.box_of(finding.tag) or ("", "", 0)
    stores, named_by_box = known.stores_of(identity), list[EvidenceStore]()
    on_record, owner = "", on_it.owner
    if owner is not None and owner.evidence and all(store.objects.uri != owner.evidence for store in stores):
        try:
            store = EvidenceStore.open(owner.evidence)
            if store.marker.identity == identity:
                named_by_box.append(store)
                open_ones = (b for b in store.births() if b.ended_at is None and b.native_id == finding.native_id)
                on_record = f"{store.marker.project}/{store.marker.stack}" if any(open_ones) else ""
        except EvidenceError:
            pass  # it is on another host, or needs keys that are missing here
    others = known.backends.holding(stores, owner, named_by_box)
    stores += named_by_box
    mine = owner is not None and owner.person in {request.person, *former_names()}
    # A colleague with another backend may name the same evidence.
    ours = mine or (identity != "" and bool(known.stacks_of(identity)) and not others)
    at = (finding.platform, finding.native_id, finding.account)
    box = OrphanBox(*at, identity, name, generation, ours, gate_of(others)[0])
    verdict = may_end(OrphanEnding(box, on_it, stores, request), full=full)
    return BoxAssessed(finding, verdict, on_it.words, tuple(stores), others, box, on_it, on_record)


def _at(finding: Stray) -> BoxAt:
    return BoxAt(finding.platform, finding.native_id, finding.account)


def _places(finding: Stray, known: KnownStates) -> tuple[str, ...]:
    """The places of the evidence of this box's sweep that are known before the box is asked."""
    identity = (box_layout.box_of(finding.tag) or ("", "", 0))[0]
    return tuple(store.objects.uri for store in known.stores.values() if store.marker.identity == identity)


def read_box(box: BoxAt, places: Sequence[str] = ()) -> OnIt:
    """Reads the box's journal, queue and owner. Never raises SweepstackError.

    `places`: the known evidence of its sweep. It is checked whether this evidence, or the one that the owner names,
    lies on the box itself.
    """
    try:
        seen, record = observe(box)
    except SweepstackError as error:
        return OnIt(Observation(Existence.UNKNOWN, note=str(error)))
    if seen.existence is not Existence.EXISTS or record is None:
        return OnIt(seen)
    owner, given, holds = None, None, {}
    try:
        channel = box.channel()
        owner = read_owner(channel)
        for uri in {*places, *([owner.evidence] if owner is not None and owner.evidence else [])}:
            if found := evidence_on(channel, uri, box_layout.OWN_TIERS):
                holds[uri] = found[1]
        entries = queue_entries(channel)
        given = frozenset(name for name, line in entries.items() if line.get("op") == "add")
    except (SweepstackError, OSError) as error:
        seen = seen if seen.note else replace(seen, note=str(error))
    return OnIt(seen, owner, given, holds)


def with_details(
    findings: Sequence[Stray], known: KnownStates, say: Callable[[str], contextlib.AbstractContextManager[object]]
) -> list[Stray]:
    """Adds the content, the owner and the next command of each box that no state has, and the command that goes on
    where another backend keeps a volume. Reads the boxes, and asks other backends. `say`: shows what takes long."""
    with say("asking the other backends of volumes"):
        findings = [_kept_elsewhere(finding, known) for finding in findings]
    orphans = {(f.platform, f.native_id): f for f in findings if f.kind == "box" and f.bills_unknown}
    if not orphans:
        return list(findings)
    late, request = OnIt(Observation(Existence.UNKNOWN, note=NOT_IN_TIME)), EndRequest(who())
    with say("reading the boxes that no state has"):
        read = in_parallel(
            {key: partial(read_box, _at(finding), _places(finding, known)) for key, finding in orphans.items()},
            READ_SECONDS,
        )
        judged = {
            key: _judge_box(finding, read.get(key, late), known, request, full=False)
            for key, finding in orphans.items()
        }
    return [
        _with_details(finding, judged[key], known)
        if finding.bills_unknown and (key := (finding.platform, finding.native_id)) in judged
        else finding
        for finding in findings
    ]


def _kept_elsewhere(finding: Stray, known: KnownStates) -> Stray:
    if finding.kind != "volume" or finding.standing != "survived":
        return finding
    identity = (box_layout.volume_of(finding.tag) or ("", ""))[0]
    _, there = gate_of(known.backends.holding(known.stores_of(identity)))
    return replace(finding, next=there) if there else finding


def _with_details(finding: Stray, read: BoxAssessed, known: KnownStates) -> Stray:
    recorded = finding.whose[0] if finding.standing == "recorded" else ""
    following, give_up = way_out(read, known, recorded=recorded)
    holds = read.holds
    if not read.verdict.allowed and read.verdict.unsafe:
        holds += "; no copy is proved here"
    on_record = f"; on record as rented by {read.on_record}" if read.on_record and not recorded else ""
    stated = recorded in known.states if recorded else not read.on_record
    on_record += "" if stated else read.state_words
    said = replace(finding, holds=holds, owner=read.owner_words + on_record, next=following, give_up=give_up)
    return replace(said, unopened=read.box.ours and not read.stores)


def way_out(found: BoxAssessed, known: KnownStates, *, recorded: str) -> tuple[str, str]:
    """The next command, and the one that gives the box up; "" if none can be recommended.

    `recorded`: the stack of this checkout that has it on record.
    """
    if found.there:
        return found.there, ""
    at = (found.box.platform, found.box.native_id)
    give_up = end_command(*at, lose=True) if found.box.ours else ""
    store = next(iter(found.stores), None)
    if recorded:
        return adopts(recorded, known, store), give_up
    if found.verdict.allowed and found.box.ours and not found.on_record:
        return end_command(*at), ""
    owner = found.owner
    if store is None:
        return "", give_up  # its evidence does not open: an `up` would begin another sweep, and rent
    doubled = found.finding.standing == "duplicate"
    if owner is not None and found.box.ours and not doubled and owner.stack and owner.project == _project(known.root):
        return adopts(owner.stack, known, store), give_up
    return "", give_up


def adopts(stack: str, known: KnownStates, store: EvidenceStore | None) -> str:
    """The commands that bring a box of this stack back into a state.

    `store`: its evidence, if it can be opened here.
    """
    file, up = StackFile.locate(known.root, stack), f"pulumi up --stack {stack}"
    if held_by_another(store, known.root):  # even if a stack of this name is here: its `up` would be refused
        return f'sweepctl adopt --stack {stack} --reason "…"    (if that backend is lost; else go on there)'
    if stack in known.states:
        return f"{up}    (adopts it{'' if file.path.exists() else f', once {file.shown} is back'})"
    words, copy = "adopts it", ""
    if not file.path.exists():
        copy = copy_back(store, file.path) if store is not None else ""
        words = "adopts it" if copy else f"adopts it, once {file.shown} is back"
    return " && ".join(filter(None, [copy, f"pulumi stack init {stack}", up])) + f"    ({words})"


def _project(root: Path) -> str:
    try:
        return project_name(root)
    except SweepstackError:
        return ""


@dataclass
class VolumeVerdict(EndVerdict):
    """Whether the volume may end. `unsafe`: why its data is not safe elsewhere, if that alone keeps it."""

    unsafe: list[str] = field(default_factory=list)


class StrayVolumeEnding(Ending[VolumeVerdict]):
    """The end of a volume that no state has. `survey`: who mounted it; `mounted`: a line for each box that mounts it,
    or may; `gate`: as of `OrphanBox`."""

    def __init__(
        self,
        volume: VolumeContext,
        seen: VolumeSeen,
        survey: Survey,
        known: KnownStates,
        *,
        gate: str,
        mounted: Sequence[str],
        given_up: bool,
    ) -> None:
        super().__init__(VolumeVerdict(), seen.existence, seen.account_problem)
        self.volume, self.seen, self.survey, self.known = volume, seen, survey, known
        self.gate, self.mounted, self.given_up = gate, mounted, given_up
        self.users = survey.of(volume.facts.native_id)

    def held(self, now: datetime) -> list[str]:
        """Another backend, or a box that mounts it."""
        return [self.gate] if self.gate else list(self.mounted)

    def judged(self, now: datetime) -> Judged:
        """The person who asks, and an approval on record where the policy names people. The record of the last box that
        mounted it may name the policy."""
        facts = self.volume.facts
        stores = self.known.stores_of(facts.identity)
        births = births_in([*stores, *opened(self.users)])
        mounted = [birth for birth in births if facts.native_id in birth.mounts.values()]
        last = max(mounted, key=lambda birth: birth.begun_at, default=None)
        binds, identity = binding((), [last] if last is not None else []), facts.identity
        return judge_request(stores, facts.native_id, VERB, binds, identity=identity, given_up=self.given_up, now=now)

    def content(self, *, full: bool) -> tuple[Way | None, list[str]]:
        """All that any sweep left on it is verified elsewhere, and all these sweeps are over."""
        self.verdict.unsafe = list(dict.fromkeys(self._unsafe(full=full)))
        return (None, self.verdict.unsafe) if self.verdict.unsafe else ("cleared", [])

    def _unsafe(self, *, full: bool) -> Iterator[str]:
        facts, seen, known = self.volume.facts, self.seen, self.known
        yield from self.survey.problems
        by_records, _ = observe_volume(self.volume, self.users)
        yield from (*by_records.alive, *by_records.unread, *by_records.copies)
        if seen.note:
            yield seen.note
        if not self.users:
            yield "its owner is not known: no evidence that was found here names it"
        whose = {user.identity for user in self.users}
        for name in seen.holds or ():
            if name not in whose:
                yield f"{name} is on it, and no sweep that was found here left it there"
        for use in take_inventory(facts.identity, [facts], self.survey, {}).volumes.get(facts.native_id, ()):
            for problem in use_problems(use, facts.native_id, full=full):
                yield f"{use.stack}: {problem}"
        for user in self.users:
            if known.stores_of(user.identity) and not known.is_over(user.identity):
                yield f"{user.stack}: its state has boxes, or its records are open"


def assess_volume(finding: Stray, known: KnownStates, *, given_up: bool) -> VolumeAssessed:
    """Asks the platform and the other backends, and hashes the copies of its data again. Blocks; reads only; an outage
    never raises. `given_up`: a person asks for its end although what is on it may be lost."""
    native_id = finding.native_id
    identity, name = box_layout.volume_of(finding.tag) or ("", "")
    survey = _users(native_id, identity, known)
    volume = VolumeContext(VolumeFacts(identity, "", name, native_id, finding.account), finding.platform)
    seen, record = observe_volume(volume, ())
    open_ones = [
        f"the box {birth.box} of {stack} mounts it, and has not ended by its records"
        for stack, births in known.births.items()
        for birth in births
        if birth.ended_at is None and native_id in birth.mounts.values()
    ]
    mounted = tuple(dict.fromkeys([*seen.alive, *open_ones]))
    stores = opened(survey.of(native_id))
    owners = known.backends.holding(known.stores_of(identity))
    others = tuple(dict.fromkeys([*owners, *known.backends.holding(stores)]))
    gate, _ = gate_of(others)
    ending = StrayVolumeEnding(volume, seen, survey, known, gate=gate, mounted=mounted, given_up=given_up)
    verdict = may_end(ending, full=True)
    used, more = used_bytes(volume.platform, native_id, COUNT_SECONDS)
    price, size = (record.price_per_month, record.size_gb) if record is not None else (None, None)
    holds = "what is on it could not be looked at" if seen.holds is None else f"it holds {', '.join(seen.holds)}"
    holds = (record.lost if record is not None else "") or ("it is empty" if seen.holds == () else holds)
    holds = f"{holds}; {takes_words(price, size, used, more=more)}"
    return VolumeAssessed(finding, verdict, holds, stores, others, owners)


def opened(users: Sequence[User]) -> tuple[EvidenceStore, ...]:
    """The evidence of these sweeps that can be opened: any other keeps the volume by itself."""
    return tuple(store for user in users if (store := user.at.usable) is not None)


def _users(native_id: str, identity: str, known: KnownStates) -> Survey:
    """Every sweep with a box that mounted the volume, by its evidence, or by the notes of a stack of volumes."""
    found = Survey()
    for store in known.stores.values():
        user = User(store.marker.stack, store.marker.identity, store.objects.uri)
        try:
            if any(native_id in birth.mounts.values() for birth in store.births()):
                found.add(native_id, user)
        except EvidenceError as error:
            found.problems.append(f"what {user.stack} left on it is not known: {error}")
    for store in known.stores_of(identity):
        noted = recorded(store, [native_id])
        found.problems += noted.problems
        for user in noted.of(native_id):
            found.add(native_id, user)
    return found
