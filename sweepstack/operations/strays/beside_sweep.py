"""Finds the boxes of one sweep that run, or may run, and are not in its state.

The records are asked first, then every platform for boxes with the sweep's tag. Such a box is an orphan.

A person can approve the end of one that its platform proves to exist. If the provider is killed during a create, the
state has no box, but the box bills. Its birth record says which sweep it belongs to, and that is enough for an
approval; the delete checks everything again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from sweepstack.billing.stray import Stray, end_command
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Birth
from sweepstack.core.roster import Roster
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.entries import living
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, SweepstackError
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform
from sweepstack.operations.host_shutdown import settled
from sweepstack.operations.observe import look_up, made_by, observe, rented_at, stays_ended
from sweepstack.platforms.registry import has_address, load_platform, spelled
from sweepstack.status.engine.state import BoxEntry, StackState
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.check import may_end
from sweepstack.teardown.refusal import of_box

SEARCH_SECONDS = 36.0
"""The most seconds for one search. Platforms that do not answer in time are named; the answers of others count."""
CONNECT_SECONDS = 18.0
"""The most seconds for each step but the last: as long as ssh waits for a connection, and a little more."""
_LATE = "it did not answer in time"
_ALL = TeardownFacts(verb="destroy", kills=("everything on it",), keeps=())
"""What an end does to each tier is written in the state, which lacks this box: so the worst case is assumed."""


@dataclass(frozen=True)
class Search:
    """The result. `searched`: every platform that could bill was asked and answered."""

    orphans: tuple[Stray, ...] = ()
    notes: tuple[str, ...] = ()
    searched: bool = True


def search(
    state: StackState,
    store: EvidenceStore | None,
    births: Sequence[Birth],
    file: StackFile,
    evidence: str = "",
    known_as: Mapping[str, Platform] | None = None,
    late: Collection[str] = (),
) -> Search:
    """Searches in three steps. Reads only.

    First the hosts that are off by the records and do not answer; then every birth record that neither the state nor
    the first step settles; then everything with the sweep's tag. Where no record says what was rented, the platforms of
    the stack file are asked.

    Each step asks all platforms in parallel, and skips those that did not answer an earlier step. Blocks for
    SEARCH_SECONDS at most. `known_as`: platforms by adapter that are loaded already; `late`: adapters that have just
    timed out, and are not asked again.
    """
    ends = time.monotonic() + SEARCH_SECONDS
    looking = _Looking(state, births, file, late)
    silent = looking.ask_records(evidence)
    adapters = {box.adapter for box in state.boxes} | {volume.adapter for volume in state.volumes}
    adapters |= {birth.platform for birth in births}
    if not births and store is not None:  # nothing was rented yet, or every record of it is lost
        adapters |= looking.named_in_file()
    identity = identity_of(state, store)
    if identity is not None:
        looking.ask_by_tag(sorted(adapters - silent), identity, known_as or {}, ends)
    entries = [looking.unread(problem) for problem in state.problems]
    return Search((*looking.found.values(), *entries), tuple(looking.notes), looking.searched)


def identity_of(state: StackState, store: EvidenceStore | None) -> str | None:
    """The sweep's identity, from its state, else from its evidence."""
    return state.identity.identity if state.identity else store.marker.identity if store else None


def over(birth: Birth, evidence: str) -> bool:
    """Whether the box ended or stopped by a recorded command or confirmation, and its host does not answer now."""
    if birth.native_id is None or not has_address(birth.platform):
        return False
    try:
        return settled(BoxAt.of(birth, Evidence(evidence))) is not None
    except SweepstackError:
        return False


class _Looking:
    """One search, and what it has found so far: `found` by native id or tag."""

    def __init__(self, state: StackState, births: Sequence[Birth], file: StackFile, late: Collection[str]) -> None:
        self.state, self.births, self.file, self.late = state, births, file, late
        self.stack = state.stack
        self.known = {box.native_id for box in state.boxes}
        self.found: dict[str, Stray] = {}
        self.notes: list[str] = []
        self.searched = True

    def ask_records(self, evidence: str) -> set[str]:
        """The first two steps. Returns the hosts that are off and do not answer."""
        to_ask = [birth for birth in self.births if birth.platform not in self.late]
        hosts = {birth.tag: partial(over, birth, evidence) for birth in to_ask if has_address(birth.platform)}
        off = {tag for tag, is_over in in_parallel(hosts, CONNECT_SECONDS).items() if is_over}
        due = [
            b for b in self.births if b.native_id not in self.known and not (b.tag in off and b.ended_at is not None)
        ]
        told = in_parallel(
            {
                adapter: partial(self._by_records, [birth for birth in due if birth.platform == adapter])
                for adapter in {birth.platform for birth in due if birth in to_ask}
            },
            CONNECT_SECONDS,
        )
        for birth in due:
            orphan, note = told[birth.platform][birth.tag] if birth.platform in told else self._late(birth)
            self.searched &= not note or birth.ended_at is None
            if orphan is not None:
                self.found[orphan.native_id or birth.tag] = orphan
                self.searched &= orphan.proved
            if note:
                self.notes.append(note)
        return {birth.platform for birth in self.births if birth.tag in off}

    def ask_by_tag(self, asked: Sequence[str], identity: str, at_hand: Mapping[str, Platform], ends: float) -> None:
        """The third step."""
        left = max(0.0, ends - time.monotonic())
        listers = {adapter: _lister(adapter, identity, at_hand.get(adapter)) for adapter in asked}
        answers = in_parallel({adapter: ask for adapter, ask in listers.items() if adapter not in self.late}, left)
        for adapter in asked:
            listed = answers.get(adapter, _LATE)
            if isinstance(listed, str):
                box_there = next((box.name for box in self.state.boxes if box.adapter == adapter), "")
                self.notes.append(f"what {adapter} runs for this sweep is not known: {of_box(listed, box_there)}")
                self.searched = False
                continue
            for record in listed:
                if record.native_id in self.known or record.native_id in self.found or record.phase is Phase.GONE:
                    continue
                if not record.tag:
                    self.notes.append(f"{record.native_id} on {adapter} has no readable tag: its owner is not known")
                    self.searched = False
                    continue
                self.found[record.native_id] = self._by_tag(record, adapter, identity)

    def named_in_file(self) -> set[str]:
        """The adapters of the platforms that the stack file names, with a note for each that it does not tell."""
        untold = "no record says what was rented, and the stack file does not say where"
        found, notes = set[str](), list[str]()
        try:
            named = self.file.sweep().get("candidates")
        except ConfigError as error:
            named, notes = [], [f"{untold}: {error}"]
        for name in named if isinstance(named, list) else ():
            try:
                found |= self._adapters(str(name))
            except SweepstackError as error:
                notes.append(f"{untold}: {error}")
        notes = notes if found or notes else [f"{untold}: it names no candidates"]
        self.notes += notes
        self.searched &= not notes
        return found

    def unread(self, problem: str) -> Stray:
        """An entry of the state that can't be read, as an orphan."""
        return Stray(
            *("entry", "", ""),
            why=f"an entry of the state can't be read: {problem}",
            next=f"pulumi stack export --stack {self.stack}    (look at it)",
            proved=False,
        )

    def _adapters(self, name: str) -> set[str]:
        """The adapters behind one candidate: of the user's own hosts, one each. Raises SweepstackError."""
        from sweepstack.profiles.load import load_profile  # imports much, and lost records are rare

        profile = load_profile(name)
        if profile.unavailable:
            return set()
        hosts = self.file.hosts() if profile.ssh is not None else ()
        return {spelled(f"{profile.adapter}:{host}") for host in hosts} or {profile.adapter}

    def _by_records(self, births: Sequence[Birth]) -> dict[str, tuple[Stray | None, str]]:
        """For each of these records of one platform, by tag: its orphan or None, and a note for the person or ""."""
        return {birth.tag: self._by_record(birth) if birth.ended_at is None else self._ended(birth) for birth in births}

    def _late(self, birth: Birth) -> tuple[Stray | None, str]:
        """The orphan and note of a record whose platform did not answer in time."""
        if birth.ended_at is not None:
            return None, _unconfirmed(birth, _LATE)
        return None if birth.never_asked else self._unknown(birth, _LATE), ""

    def _unknown(self, birth: Birth, why: str) -> Stray:
        return self._orphan(birth, f"on record as rented, not in the state, and not known: {why}", None)

    def _ended(self, birth: Birth) -> tuple[Stray | None, str]:
        """Asks the platform about a record that says "ended": it may be wrong.

        The answer also proves that this is the account to ask for other boxes.
        """
        if birth.native_id is None:
            return None, ""
        try:
            platform = BoxAt.of(birth).platform
            record = platform.get(birth.native_id, birth.account)
        except SweepstackError as error:
            return None, "" if stays_ended(birth, error) else _unconfirmed(birth, error)
        if record.phase is Phase.UNKNOWN and platform.by_hand:
            return None, ""  # a person confirmed it, or an older version ended it: no more can be seen from here
        if record.phase in (Phase.GONE, Phase.UNKNOWN):
            return None, "" if record.phase is Phase.GONE else f"box {birth.box} ({birth.native_id}): {record.note}"
        return self._orphan(birth, "the records say that it has ended, and it is still there", record), ""

    def _by_record(self, birth: Birth) -> tuple[Stray | None, str]:
        """The box of a birth record that is open and not in the state."""
        try:
            if birth.native_id is None:
                record, proved = made_by(birth)
                if not proved:
                    return self._unanswered(birth), ""
                if record is None or record.native_id in self.known:
                    return None, ""
                return self._orphan(birth, "it was rented and the answer was lost", record), ""
            platform = BoxAt.of(birth).platform
            record = look_up(platform, birth.native_id, birth.account, rented=rented_at(birth.price_per_hour))
        except SweepstackError as error:
            return self._unknown(birth, str(error)), ""
        if record.phase is Phase.GONE:
            how = f"sweepctl confirm gone --stack {self.stack} {birth.box}"
            where = f"box {birth.box} ({birth.native_id}) is gone from {birth.platform}"
            return None, f"{where}; its record is still open, and {how} closes it"
        if record.phase is Phase.UNKNOWN:
            return self._unknown(birth, record.note), ""
        bills_on = f": {record.note}" if record.emptied else ""
        return self._orphan(birth, f"on record as rented, and not in the state{bills_on}", record), ""

    def _unanswered(self, birth: Birth) -> Stray:
        """A create whose answer was lost and that no list shows: only a person can confirm that nothing was rented."""
        assert birth.asked_at is not None
        asked = f"asked for at {birth.asked_at:%H:%M} UTC, and the answer was lost"
        if birth.shown_by is not None and datetime.now(UTC) < birth.shown_by:
            at = f"{birth.shown_by:%H:%M:%S} UTC"
            late = f"{asked}; {birth.platform} shows no {birth.tag}, and its list may lag until {at}"
            return replace(
                self._orphan(birth, late, None), next=f"pulumi up --stack {self.stack}    (at {at} or later)"
            )
        word = f'sweepctl confirm never-rented --stack {self.stack} {birth.box} --saw "…"'
        return replace(
            self._orphan(birth, f"{asked}; {birth.platform} shows no {birth.tag}: look at its console", None),
            next=f"{word}    (only where it shows no such box)",
        )

    def _orphan(self, birth: Birth, why: str, record: BoxRecord | None) -> Stray:
        return Stray(
            kind="box",
            name=birth.box,
            native_id=record.native_id if record else birth.native_id or "",
            platform=birth.platform,
            tag=birth.tag,
            price_per_hour=(_price(record) if record else None) or birth.price_per_hour,
            why=f"{why}; it is stopped" if record and record.phase.at_rest else why,
            next=self._adopt(birth.box),
            since=(record.created_at if record else None) or birth.created_at or birth.begun_at,
            proved=record is not None,
            at_rest=record is not None and record.phase.at_rest,
        )

    def _first_with(self, tag: str) -> str:
        """Which box already has this tag, as text; "" if none has: then an `up` adopts the box that carries it."""
        if inside := next((box.native_id for box in self.state.boxes if box.tag == tag), ""):
            return f"{inside} is the one in the state"
        birth = next((birth for birth in self.births if birth.tag == tag), None)
        if birth is not None and birth.native_id is not None:
            return f"{birth.native_id} is the one on record"
        if birth is not None and birth.ended_at is not None:
            return f"its record says {birth.ended_how or 'ended'}"
        other = next((one.native_id for one in self.found.values() if one.tag == tag), None)
        return f"{other} is the one that an up adopts" if other else ""

    def _by_tag(self, record: BoxRecord, adapter: str, identity: str) -> Stray:
        first = self._first_with(record.tag)
        box = record.tag.removeprefix(box_layout.tag_prefix(identity)).rpartition("-g")[0]
        return Stray(
            kind="box",
            name=box,
            native_id=record.native_id,
            platform=adapter,
            tag=record.tag,
            price_per_hour=record.price_per_hour,
            why=f"a second box with the tag of {box}; {first}"
            if first
            else "it carries this sweep's tag; neither the state nor an open record has it",
            next=end_command(adapter, record.native_id) if first else self._adopt(box),
            since=record.created_at,
        )

    def _adopt(self, box: str) -> str:
        """The command that brings a box back into the state: `up` finds it by its tag, if the stack file names it."""
        up = f"pulumi up --stack {self.stack}"
        try:
            boxes = self.file.sweep().get("boxes")
        except ConfigError:
            return up
        if not isinstance(boxes, dict):
            return up
        wanted = boxes.get(box, {"want": "gone"})
        if isinstance(wanted, dict) and wanted.get("want") == "gone":
            return f"{up}    (after boxes.{box}.want is set to running in {self.file.shown}: adopts it)"
        return f"{up}    (adopts it; then approve and destroy)"


def _lister(adapter: str, identity: str, platform: Platform | None) -> Callable[[], list[BoxRecord] | str]:
    """A call that returns what the platform lists for the sweep, or why that is not known. Never raises."""

    def listed() -> list[BoxRecord] | str:
        try:
            return (platform or load_platform(adapter)).list_tagged(box_layout.tag_prefix(identity))
        except SweepstackError as error:
            return str(error)

    return listed


def _unconfirmed(birth: Birth, why: object) -> str:
    return f"box {birth.box} ({birth.native_id}) ended by the records; {birth.platform} can't confirm: {why}"


def _price(record: BoxRecord) -> float | None:
    """What it bills an hour now, as far as its platform says that."""
    known = record.stopped_per_hour if record.phase.at_rest else None
    return record.price_per_hour if known is None else known


def with_forgotten(snapshot: Snapshot, store: EvidenceStore | None, given_up: Container[str] = ()) -> Snapshot:
    """The snapshot with those of these boxes that the platform proves to exist; and with those of `given_up` on hosts
    that can't tell: what follows the approval there is a person's confirmation. Reads only."""
    if store is None:
        return snapshot
    known = {box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if not box_snapshot.gone}
    found = []
    for orphan in snapshot.orphans:
        birth = _birth(snapshot, orphan, given_up)
        if (
            birth is not None
            and birth.box not in known
            and (box_snapshot := _box_snapshot(snapshot, store, orphan, birth))
        ):
            found.append(box_snapshot)
            known.add(birth.box)
    return replace(snapshot, box_snapshots=(*snapshot.box_snapshots, *found)) if found else snapshot


def entry_of(store: EvidenceStore, birth: Birth, evidence: str) -> BoxEntry:
    """A state entry made from a birth record, which must have a native id."""
    return BoxEntry(
        urn="",
        identity=store.marker.identity,
        evidence=evidence,
        adapter=birth.platform,
        name=birth.box,
        native_id=birth.native_id or "",
        account=birth.account,
        generation=birth.generation,
        tag=birth.tag,
        phase="unknown",
        price_per_hour=birth.price_per_hour,
        created_at=birth.created_at or birth.begun_at,
        mounts=birth.mounts,
        roster_digest=Roster(()).digest,
        teardown=_ALL,
    )


def _birth(snapshot: Snapshot, orphan: Stray, given_up: Container[str]) -> Birth | None:
    """The open birth record of a box that is proved to exist, or that may be given up all the same."""
    if orphan.kind != "box" or not orphan.native_id:
        return None
    if not orphan.proved and not (orphan.name in given_up and has_address(orphan.platform)):
        return None
    open_ones = (birth for birth in snapshot.births if birth.ended_at is None and birth.tag == orphan.tag)
    return next((birth for birth in open_ones if birth.native_id in (None, orphan.native_id)), None)


def _box_snapshot(snapshot: Snapshot, store: EvidenceStore, orphan: Stray, birth: Birth) -> BoxSnapshot | None:
    box = entry_of(store, birth, snapshot.evidence or "").model_copy(
        update={
            "native_id": orphan.native_id,
            "price_per_hour": orphan.price_per_hour,
            "created_at": orphan.since,
            "roster_digest": Roster(snapshot.roster, dict(snapshot.dropped)).digest,
        }
    )
    try:
        rented = rented_at(birth.price_per_hour)
        known = box.context()
        seen, record = observe(known, rented=rented)
        launch = store.launch(box.name, box.generation)
    except (EvidenceError, SweepstackError):
        return None
    return BoxSnapshot(
        box=box,
        queue=None,
        launch=launch,
        seen=seen,
        verdict=may_end(BoxEnding(known, None, seen), now=snapshot.now, full=False),
        phase=record.phase.value if record else "unknown",
        where=record.location if record else "",
        price_per_hour=orphan.price_per_hour,
        since=orphan.since,
        journal=seen.journal,
    )


def cells_of_forgotten(state: StackState, store: EvidenceStore | None, orphans: Iterable[Stray]) -> dict[str, str]:
    """The cells of boxes that the state lacks: cell → box. Empty if there is no such box."""
    names = {orphan.name for orphan in orphans if orphan.kind == "box"}
    if store is None or not names:
        return {}
    known = {box.native_id for box in state.boxes}
    return {
        cell: launch.box
        for launch in living(store)
        if launch.box in names and launch.native_id not in known
        for cell in launch.cells
    }
