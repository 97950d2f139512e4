"""What the check of an end asks of a volume that outlives sweeps, and the look that it needs.

It is cleared if an approval names its end and its native id, and for every sweep that used it the receipt that was
approved still holds: what that sweep left on it is verified elsewhere, or waived. In no way does it end while a box may
still mount it. A look never raises for an outage.

Also here: what is on volumes by the records, as a person is shown it before an approval; and the refusal of an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from sweepstack.billing.cost import cost_words
from sweepstack.core.observation import Existence
from sweepstack.core.paths import docs_page
from sweepstack.core.records import Approval, Birth
from sweepstack.core.resources import VolumeState
from sweepstack.core.signature import SweepName
from sweepstack.evidence.check_files import check_files
from sweepstack.evidence.location import evidence_on
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import (
    EvidenceError,
    FolderLost,
    JournalDamaged,
    PlatformError,
    SweepstackError,
    Unsupported,
    WrongAccount,
)
from sweepstack.onbox.common.units import count
from sweepstack.onbox.host.capabilities import HasVolumes
from sweepstack.onbox.host.platform import Phase, Platform, VolumeRecord
from sweepstack.operations.observe import made_by, stays_ended
from sweepstack.operations.volumes.mounting_sweeps import (
    VERB,
    Inventory,
    Survey,
    SweepOnVolume,
    User,
    births_on,
    read_inventory,
)
from sweepstack.platforms.registry import load_platform, need, volume_channel
from sweepstack.status.engine.state import VolumeEntry
from sweepstack.teardown.approval import Given, Judged, Subject, judge_approval
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.check import Ending, EndVerdict, Way
from sweepstack.teardown.policy_check import binding
from sweepstack.teardown.receipt_check import compare_cells, undecided_prunes

if TYPE_CHECKING:
    from sweepstack.teardown.policy_in_force import Binding


SHOWN = 12
"""Reasons of a refusal that are listed one by one; the rest are counted."""


@dataclass(frozen=True)
class VolumeFacts:
    """What the state remembers of a volume: enough to end it months later. `identity`, `evidence`: of its stack."""

    identity: str
    evidence: str
    name: str
    native_id: str
    account: str
    price_per_month: float | None = None
    keep_until: str = ""
    size_gb: int | None = None
    where: str = ""
    policies: tuple[str, ...] = ()
    """The policy that the state has, as text."""


class VolumeContext:
    """One volume as an entry hands it on: facts, platform, and the evidence of its stack, each opened at first use."""

    def __init__(self, facts: VolumeFacts, adapter: str) -> None:
        self.facts, self.adapter = facts, adapter
        self.evidence = Evidence(facts.evidence)

    @classmethod
    def of(cls, state: VolumeState, size_gb: int | None, policies: tuple[str, ...]) -> VolumeContext:
        """The volume that a state has, with nothing opened yet. `policies`: as in `VolumeFacts`."""
        facts = VolumeFacts(
            identity=state.identity,
            evidence=state.evidence,
            name=state.name,
            native_id=state.native_id,
            account=state.account or "",
            price_per_month=state.price_per_month,
            keep_until=state.keep_until or "",
            size_gb=size_gb,
            where=state.actual_region or state.location,
            policies=policies,
        )
        return cls(facts, state.adapter)

    @classmethod
    def of_entry(cls, entry: VolumeEntry) -> VolumeContext:
        """The same of an entry of an exported state."""
        return cls.of(entry, entry.actual_size_gb, entry.policies)

    @property
    def store(self) -> EvidenceStore:
        """The open evidence of its stack. Raises EvidenceError."""
        return self.evidence.store

    @cached_property
    def platform(self) -> Platform:
        """The platform behind `adapter`. Raises as `load_platform`."""
        return load_platform(self.adapter)


@dataclass(frozen=True)
class VolumeSeen:
    """What was seen just now. `alive`: a line for each box that is not proved gone and may mount it; `unread`: whose
    boxes could not be looked up. `holds`: the names at its top, each a sweep's identity; None: not listed. `copies`: a
    line for each sweep whose copies lie on it, or may."""

    existence: Existence
    account_problem: str = ""
    note: str = ""
    alive: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    holds: tuple[str, ...] | None = None
    copies: tuple[str, ...] = ()


@dataclass
class VolumeVerdict(EndVerdict):
    """Whether the volume may end. `users`: the sweeps that use it, or did."""

    users: tuple[User, ...] = ()

    @property
    def cleared(self) -> str:
        """See `EndVerdict`."""
        return f"cleared: what {count(len(self.users), 'sweep')} left on it is verified elsewhere"


class VolumeEnding(Ending[VolumeVerdict]):
    """The end of a volume. `survey`: who uses it, as far as was asked now. `given`: as of `BoxEnding`.

    All that keeps it is told at once: it is mended in several sweeps.
    """

    all_at_once = True

    def __init__(
        self,
        volume: VolumeContext,
        approval: Approval | None,
        seen: VolumeSeen,
        survey: Survey,
        given: Given = "before",
    ) -> None:
        users = survey.of(volume.facts.native_id)
        super().__init__(VolumeVerdict(users=users), seen.existence, seen.account_problem)
        self.volume, self.approval, self.seen, self.survey, self.given = volume, approval, seen, survey, given

    def unknown(self) -> str:
        """Whether it is there."""
        unknown = self.existence is Existence.UNKNOWN
        return (self.seen.note or "whether it is there is not known") if unknown else ""

    def held(self, now: datetime) -> list[str]:
        """The boxes that may mount it."""
        return list(self.seen.alive)

    def judged(self, now: datetime) -> Judged:
        """The approval, as one of its end."""
        if self.approval is None:
            return Judged(("not approved",))
        volume, store = self.volume, self.volume.evidence.usable
        subject = subject_of(volume.facts)
        return judge_approval(subject, self.approval, store, lambda: policies(volume), now=now, given=self.given)

    def content(self, *, full: bool) -> tuple[Way | None, list[str]]:
        """What each sweep left on it is verified elsewhere, by copies that do not lie on it."""
        if self.approval is None:
            return None, []
        found = _content_problems(self.volume, self.approval, self.seen, self.survey, full=full)
        found = [*self.seen.unread, *self.seen.copies, *self.survey.problems, *found]
        return (None, found) if found else ("cleared", [])


def subject_of(facts: VolumeFacts) -> Subject:
    """The volume as an approval of its end has to name it."""
    return Subject("volume", facts.name, facts.native_id, VERB, stack_of(facts))


def policies(volume: VolumeContext) -> tuple[Binding, ...]:
    """The policies that bind its end: the state's, and the project's file. Raises nothing."""
    return binding(volume.facts.policies, ())


def stack_of(facts: VolumeFacts) -> SweepName:
    """The stack of the volume, as far as the state names it."""
    return SweepName(project="", stack="", identity=facts.identity)


def _content_problems(
    volume: VolumeContext, approval: Approval, seen: VolumeSeen, survey: Survey, *, full: bool
) -> list[str]:
    facts = volume.facts
    if approval.receipt is None:
        return ["the approval names nothing that was shown of what is on it"]
    try:
        store = volume.store
        if store.marker.identity != facts.identity:
            return [f"the evidence at {facts.evidence} belongs to another stack ({store.marker.identity})"]
        inventory = read_inventory(store, approval.receipt)
    except EvidenceError as error:
        return [str(error)]
    if inventory.identity != facts.identity:
        return [f"what was approved is of another stack ({inventory.identity})"]
    uses = inventory.volumes.get(facts.native_id)
    if uses is None:
        return ["what was approved does not list this volume"]
    shown = {use.identity for use in uses}
    problems = [
        f"{user.stack} uses it, and was not in what was approved"
        for user in survey.of(facts.native_id)
        if user.identity not in shown
    ]
    problems += [
        f"{name} is on it, and no sweep on record left it there" for name in seen.holds or () if name not in shown
    ]
    for use in uses:
        problems += [f"{use.stack}: {problem}" for problem in use_problems(use, facts.native_id, full=full)]
    return problems


def use_problems(use: SweepOnVolume, native_id: str, *, full: bool) -> list[str]:
    """Why what this sweep left on the volume is not safe elsewhere; empty when it is. Never raises EvidenceError."""
    try:
        user = User(use.stack, use.identity, use.evidence)
        launched, dropped = launched_on(user, native_id)
        if not launched:
            return []
        if use.receipt is None:
            return [
                f"{len(launched)} of its cells ran on boxes that mounted it, and no receipt says that they are safe"
            ]
        store = user.at.store
        receipt = store.receipt(use.receipt)
        if receipt.identity != use.identity:
            return [f"the receipt is of another sweep ({receipt.identity})"]
        where = "a box that mounted it"
        problems, to_check = compare_cells(receipt, launched, {*use.waived, *dropped}, where)
        return problems or check_files(store, receipt, to_check, full=full)
    except (EvidenceError, JournalDamaged) as error:
        return [str(error)]


def launched_on(user: User, native_id: str) -> tuple[dict[str, str], set[str]]:
    """The cells of a sweep that ran, or might have, on a box that mounted the volume (name → config digest), by launch
    records and by journals; and those that a person dropped. Raises EvidenceError, JournalDamaged."""
    store = user.at.store
    given = {(launch.box, launch.generation): launch for launch in store.launches()}
    launched: dict[str, str] = {}
    dropped: set[str] = set()
    for birth in births_on(user, native_id):
        launch = given.get((birth.box, birth.generation))
        journal = store.journal(birth.box, birth.generation)
        progress = journal.cells if journal is not None else {}
        ran = {name: cell.config_digest for name, cell in progress.items() if cell.config_digest is not None}
        launched |= {**ran, **(launch.cells if launch is not None else {})}
        dropped |= {name for name, cell in progress.items() if cell.state == "dropped"}
        dropped |= launch.dropped.keys() if launch is not None else set()
        dropped -= set(undecided_prunes(store, journal, launch))
    return launched, dropped


def take_inventory(
    identity: str, volumes: Iterable[VolumeFacts], survey: Survey, said: Mapping[str, Approval]
) -> Inventory:
    """Every user of these volumes with its latest receipt, and the cells that a person has waived for that receipt.

    `said`: stack → the approval in its stack file. A user whose evidence can't be read is listed without a receipt, so
    that the check names it. Reads only.
    """
    return Inventory(
        identity=identity,
        volumes={
            facts.native_id: tuple(
                _use(user, facts.native_id, said.get(user.stack)) for user in survey.of(facts.native_id)
            )
            for facts in volumes
        },
    )


def _use(user: User, native_id: str, said: Approval | None) -> SweepOnVolume:
    known = SweepOnVolume(stack=user.stack, identity=user.identity, evidence=user.evidence)
    try:
        store = user.at.store
        digest = store.latest_receipt()
        if digest is None or not launched_on(user, native_id)[0]:
            return known
        receipt = store.receipt(digest)
        words = [word for word in (said, *_clearances(store, user, native_id)) if word is not None]
    except (EvidenceError, JournalDamaged):
        return known
    waived = {
        waiver.cell: waiver.reason
        for word in words
        if word.receipt == digest
        and word.waivers_digest == Approval.digest_waivers(word.waive, word.abandon, word.unclaimed)
        for waiver in word.waive
    }
    return known.model_copy(
        update={"receipt": digest, "verified": receipt.verified, "total": receipt.total, "waived": waived}
    )


def _clearances(store: EvidenceStore, user: User, native_id: str) -> Iterator[Approval | None]:
    """What the boxes that mounted the volume were ended with."""
    for birth in births_on(user, native_id):
        if birth.native_id is not None:
            yield store.clearance(birth.native_id)


def end_refusal(facts: VolumeFacts, verdict: VolumeVerdict, *, stack: str) -> str:
    """The refusal for one volume, as lines of text, with the commands that lead to its end."""
    rows: list[tuple[str, str]] = []
    for index, reason in enumerate(verdict.reasons[:SHOWN]):
        rows.append(("locked because" if index == 0 else "", reason))
    if len(verdict.reasons) > SHOWN:
        rows.append(("", f"… and {len(verdict.reasons) - SHOWN} more"))
    rows.append(("used by", ", ".join(user.stack for user in verdict.users) or "no sweep on record"))
    size = f" of {facts.size_gb} GB" if facts.size_gb else ""
    rows.append(("would die", f"volume {facts.name} ({facts.native_id}){size} with all that is on it"))
    rows.append(("waiting costs", cost_words(facts.price_per_month, facts.keep_until)))
    up = f"pulumi up --stack {stack} && pulumi destroy --stack {stack}"
    rows.append(("next", f"sweepctl finish --stack {stack}    (approve, up, destroy: says whose cells are not safe)"))
    rows.append(("give up", f'sweepctl give-up --stack {stack} data/{facts.name} --reason "…" && {up}'))
    width = max(len(label) for label, _ in rows)
    body = [f"{label:<{width}}  {text}" for label, text in rows]
    used = f"{count(len(verdict.users), 'sweep')} used it"
    return "\n".join([f"REFUSED.\nNothing was deleted. Volume {facts.name}: {used}.", "", *body])


def find_kept(platform: Platform, name: str) -> VolumeRecord:
    """The volume of this name that a stack of volumes keeps in the account. Raises SweepstackError when there is none,
    or several."""
    if not isinstance(platform, HasVolumes):
        raise Unsupported(f"{platform.name} has no volumes: leave mounts out of the stack file")
    found = [
        record
        for record in platform.list_volumes(box_layout.TAGS)
        if (ours := box_layout.volume_of(record.tag)) is not None and ours[1] == name
    ]
    if not found:
        raise SweepstackError(
            f"there is no volume {name} on {platform.name}. Next: make it with the stack that keeps it "
            f"({docs_page('stack-config.md#volumes')}), or correct mounts"
        )
    if len(found) > 1:
        listed = ", ".join(f"{record.native_id} ({record.tag})" for record in found)
        raise SweepstackError(f"several volumes of {platform.name} are called {name}: {listed}. Give one another name")
    return found[0]


def observe_volume(volume: VolumeContext, users: Iterable[User]) -> tuple[VolumeSeen, VolumeRecord | None]:
    """Asks the platform for the volume, and for every box that mounted it by the records of a user; and whether the
    copies of a user lie on it. Reads only."""
    facts = volume.facts
    try:
        platform = need(volume.platform, HasVolumes)
        record = platform.get_volume(facts.native_id)
    except FolderLost as error:
        return VolumeSeen(Existence.UNKNOWN, note=str(error)), None
    except WrongAccount as error:
        return VolumeSeen(Existence.UNKNOWN, account_problem=str(error)), None
    except PlatformError as error:
        return VolumeSeen(Existence.UNKNOWN, note=str(error)), None
    if record is None:
        return VolumeSeen(Existence.GONE), None
    if facts.account and record.account and record.account != facts.account:
        problem = (
            f"{facts.native_id} was made with the account {facts.account}, and the one at hand is {record.account}"
        )
        return VolumeSeen(Existence.EXISTS, account_problem=problem), record
    tag = box_layout.volume_tag(facts.identity, facts.name)
    if record.tag != tag:
        note = f"{facts.native_id} carries the tag {record.tag!r}, and this stack's volume {facts.name} is {tag}"
        return VolumeSeen(Existence.UNKNOWN, note=note), record
    alive: list[str] = []
    unread: list[str] = []
    named: set[str | None] = set()
    copies: list[str] = []
    for user in users:
        copies += [] if record.lost else _copies_on_it(platform, facts.native_id, user)
        try:
            births = births_on(user, facts.native_id)
        except EvidenceError as error:
            unread.append(f"which boxes of {user.stack} mount it is not known: {error}")
            continue
        for birth in births:
            if lines := list(_alive(user, birth)):
                alive += lines
                named.add(birth.native_id)
    alive += [f"the box {native_id} mounts it" for native_id in record.mounted_by or () if native_id not in named]
    holds = _holds(platform, facts.native_id)
    seen = VolumeSeen(Existence.EXISTS, alive=tuple(alive), unread=tuple(unread), holds=holds, copies=tuple(copies))
    return seen, record


def _alive(user: User, birth: Birth) -> Iterator[str]:
    """A line if the box is not proved gone. A box whose record says "ended" is asked about, too: the record may be
    wrong."""
    what = f"box {birth.box} of {user.stack} ({birth.native_id or birth.tag}) mounts it"
    try:
        if birth.native_id is None:
            found, _ = made_by(birth)
            if found is not None and found.phase is not Phase.GONE:
                yield f"{what}: it was rented and the answer lost"
            return
        record = BoxAt.of(birth).platform.get(birth.native_id, birth.account)
    except PlatformError as error:
        if not stays_ended(birth, error):
            yield f"{what}, and is not proved gone: {error}"
        return
    if record.phase is not Phase.GONE:
        yield f"{what}, and is {record.phase.value}"


def _copies_on_it(platform: Platform, native_id: str, user: User) -> Iterator[str]:
    """A line if the copies of a sweep lie on the volume itself, or may: they would die with it. If its folder is lost,
    none can."""
    if user.at.usable is None:
        return  # it can't be opened, which keeps the volume by itself
    try:
        found = evidence_on(
            volume_channel(platform, native_id, box_layout.DURABLE), user.evidence, (box_layout.DURABLE,)
        )
    except Unsupported:
        return  # readable only from a box, so it holds no folder of this computer
    except (PlatformError, OSError) as error:
        yield f"whether the copies of {user.stack} lie on the volume itself is not known: {error}"
        return
    if found is not None:
        yield f"the copies of {user.stack} lie on the volume itself ({found[1]}): publish them elsewhere"


def _holds(platform: Platform, native_id: str) -> tuple[str, ...] | None:
    """The names at the top of the volume, if it can be read without a box."""
    try:
        channel = volume_channel(platform, native_id, box_layout.DURABLE)
        return tuple(sorted(entry.name for entry in channel.listdir(box_layout.DURABLE)))
    except (PlatformError, OSError):
        return None
