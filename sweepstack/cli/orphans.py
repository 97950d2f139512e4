"""Finds orphans: boxes that run, or may run, for a sweep and are not in its state.

The records are asked first, then every platform for boxes with the sweep's tag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from sweepstack.cli.target import Target
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Birth
from sweepstack.evidence.lazy import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import ConfigError, SweepstackError
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform
from sweepstack.operations.host_shutdown import settled
from sweepstack.operations.observe import look_up, made_by, rented_at, stays_ended
from sweepstack.platforms.registry import has_address, load_platform, spelled
from sweepstack.status.engine.state import StackState
from sweepstack.status.snapshot import Orphan
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.refusal import of_box

SEARCH_SECONDS = 36.0
"""The most seconds for one search. Platforms that do not answer in time are named; the answers of others count."""
CONNECT_SECONDS = 18.0
"""The most seconds for each step but the last: as long as ssh waits for a connection, and a little more."""
_LATE = "it did not answer in time"


@dataclass(frozen=True)
class Search:
    """The result. `searched`: every platform that could bill was asked and answered."""

    orphans: tuple[Orphan, ...] = ()
    notes: tuple[str, ...] = ()
    searched: bool = True


def search(
    state: StackState,
    store: EvidenceStore | None,
    births: Sequence[Birth],
    target: Target,
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
    known = {box.native_id for box in state.boxes}
    found: dict[str, Orphan] = {}
    notes: list[str] = []
    searched = True
    to_ask = [birth for birth in births if birth.platform not in late]
    hosts = {birth.tag: partial(over, birth, evidence) for birth in to_ask if has_address(birth.platform)}
    off = {tag for tag, is_over in in_parallel(hosts, CONNECT_SECONDS).items() if is_over}
    silent = {birth.platform for birth in births if birth.tag in off}
    due = [b for b in births if b.native_id not in known and not (b.tag in off and b.ended_at is not None)]
    told = in_parallel(
        {
            adapter: partial(_by_records, [birth for birth in due if birth.platform == adapter], known, target)
            for adapter in {birth.platform for birth in due if birth in to_ask}
        },
        CONNECT_SECONDS,
    )
    for birth in due:
        orphan, note = told[birth.platform][birth.tag] if birth.platform in told else _late(birth, target)
        searched &= not note or birth.ended_at is None
        if orphan is not None:
            found[orphan.native_id or birth.tag] = orphan
            searched &= orphan.proved
        if note:
            notes.append(note)
    identity = identity_of(state, store)
    adapters = {box.adapter for box in state.boxes} | {volume.adapter for volume in state.volumes}
    adapters |= {birth.platform for birth in births}
    if not births and store is not None:  # nothing was rented yet, or every record of it is lost
        named, unread = _in_file(target)
        adapters |= named
        notes += unread
        searched &= not unread
    asked = sorted(adapters - silent) if identity is not None else []
    left, at_hand = max(0.0, ends - time.monotonic()), known_as or {}
    listers = {adapter: _lister(adapter, identity or "", at_hand.get(adapter)) for adapter in asked}
    answers = in_parallel({adapter: ask for adapter, ask in listers.items() if adapter not in late}, left)
    for adapter in asked:
        listed = answers.get(adapter, _LATE)
        if isinstance(listed, str):
            box_there = next((box.name for box in state.boxes if box.adapter == adapter), "")
            notes.append(f"what {adapter} runs for this sweep is not known: {of_box(listed, box_there)}")
            searched = False
            continue
        assert identity is not None
        for record in listed:
            if record.native_id in known or record.native_id in found or record.phase is Phase.GONE:
                continue
            if not record.tag:
                notes.append(f"{record.native_id} on {adapter} has no readable tag: its owner is not known")
                searched = False
                continue
            first = _first_with(record.tag, state, births, found.values())
            found[record.native_id] = _by_tag(record, adapter, identity, target, first)
    entries = [_entry(problem, target) for problem in state.problems]
    return Search((*found.values(), *entries), tuple(notes), searched)


def identity_of(state: StackState, store: EvidenceStore | None) -> str | None:
    """The sweep's identity, from its state, else from its evidence."""
    return state.identity.identity if state.identity else store.marker.identity if store else None


def _in_file(target: Target) -> tuple[set[str], list[str]]:
    """The adapters of the platforms that the stack file names, and a note for each that it does not tell."""
    untold = "no record says what was rented, and the stack file does not say where"
    found, notes = set[str](), list[str]()
    try:
        named = target.file.sweep().get("candidates")
    except ConfigError as error:
        return found, [f"{untold}: {error}"]
    for name in named if isinstance(named, list) else ():
        try:
            found |= _adapters(str(name), target)
        except SweepstackError as error:
            notes.append(f"{untold}: {error}")
    return found, notes if found or notes else [f"{untold}: it names no candidates"]


def _adapters(name: str, target: Target) -> set[str]:
    """The adapters behind one candidate: of the user's own hosts, one each. Raises SweepstackError."""
    from sweepstack.profiles.load import load_profile  # imports much, and lost records are rare

    profile = load_profile(name)
    if profile.unavailable:
        return set()
    hosts = target.file.hosts() if profile.ssh is not None else ()
    return {spelled(f"{profile.adapter}:{host}") for host in hosts} or {profile.adapter}


def _lister(adapter: str, identity: str, platform: Platform | None) -> Callable[[], list[BoxRecord] | str]:
    """A call that returns what the platform lists for the sweep, or why that is not known. Never raises."""

    def listed() -> list[BoxRecord] | str:
        try:
            return (platform or load_platform(adapter)).list_tagged(box_layout.tag_prefix(identity))
        except SweepstackError as error:
            return str(error)

    return listed


def over(birth: Birth, evidence: str) -> bool:
    """Whether the box ended or stopped by a recorded command or confirmation, and its host does not answer now."""
    if birth.native_id is None or not has_address(birth.platform):
        return False
    try:
        return settled(BoxAt.of(birth, Evidence(evidence))) is not None
    except SweepstackError:
        return False


def _by_records(births: Sequence[Birth], known: set[str], target: Target) -> dict[str, tuple[Orphan | None, str]]:
    """For each of these records of one platform, by tag: its orphan or None, and a note for the person or ""."""
    return {
        birth.tag: _by_record(birth, known, target) if birth.ended_at is None else _ended(birth, target)
        for birth in births
    }


def _late(birth: Birth, target: Target) -> tuple[Orphan | None, str]:
    """The orphan and note of a record whose platform did not answer in time."""
    if birth.ended_at is not None:
        return None, _unconfirmed(birth, _LATE)
    return None if birth.never_asked else _unknown(birth, target, _LATE), ""


def _unknown(birth: Birth, target: Target, why: str) -> Orphan:
    return _orphan(birth, target, f"on record as rented, not in the state, and not known: {why}", None)


def _unconfirmed(birth: Birth, why: object) -> str:
    return f"box {birth.box} ({birth.native_id}) ended by the records; {birth.platform} can't confirm: {why}"


def _ended(birth: Birth, target: Target) -> tuple[Orphan | None, str]:
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
    return _orphan(birth, target, "the records say that it has ended, and it is still there", record), ""


def _by_record(birth: Birth, known: set[str], target: Target) -> tuple[Orphan | None, str]:
    """The box of a birth record that is open and not in the state."""
    try:
        if birth.native_id is None:
            record, proved = made_by(birth)
            if not proved:
                return _unanswered(birth, target), ""
            if record is None or record.native_id in known:
                return None, ""
            return _orphan(birth, target, "it was rented and the answer was lost", record), ""
        platform = BoxAt.of(birth).platform
        record = look_up(platform, birth.native_id, birth.account, rented=rented_at(birth.price_per_hour))
    except SweepstackError as error:
        return _unknown(birth, target, str(error)), ""
    if record.phase is Phase.GONE:
        how = f"sweepctl confirm-gone --stack {target.stack} {birth.box}"
        where = f"box {birth.box} ({birth.native_id}) is gone from {birth.platform}"
        return None, f"{where}; its record is still open, and {how} closes it"
    if record.phase is Phase.UNKNOWN:
        return _unknown(birth, target, record.note), ""
    bills_on = f": {record.note}" if record.emptied else ""
    return _orphan(birth, target, f"on record as rented, and not in the state{bills_on}", record), ""


def _unanswered(birth: Birth, target: Target) -> Orphan:
    """A create whose answer was lost and that no list shows: only a person can confirm that nothing was rented."""
    assert birth.asked_at is not None
    asked = f"asked for at {birth.asked_at:%H:%M} UTC, and the answer was lost"
    if birth.shown_by is not None and datetime.now(UTC) < birth.shown_by:
        at = f"{birth.shown_by:%H:%M:%S} UTC"
        late = f"{asked}; {birth.platform} shows no {birth.tag}, and its list may lag until {at}"
        return replace(
            _orphan(birth, target, late, None), next=f"pulumi up --stack {target.stack}    (at {at} or later)"
        )
    word = f'sweepctl confirm-gone --stack {target.stack} {birth.box} --never-rented --saw "…"'
    return replace(
        _orphan(birth, target, f"{asked}; {birth.platform} shows no {birth.tag}: look at its console", None),
        next=f"{word}    (only where it shows no such box)",
    )


def _orphan(birth: Birth, target: Target, why: str, record: BoxRecord | None) -> Orphan:
    return Orphan(
        kind="box",
        box=birth.box,
        native_id=record.native_id if record else birth.native_id,
        platform=birth.platform,
        tag=birth.tag,
        price_per_hour=(_price(record) if record else None) or birth.price_per_hour,
        why=f"{why}; it is stopped" if record and record.phase.at_rest else why,
        next=_adopt(birth.box, target),
        since=(record.created_at if record else None) or birth.created_at or birth.begun_at,
        proved=record is not None,
        at_rest=record is not None and record.phase.at_rest,
    )


def _price(record: BoxRecord) -> float | None:
    """What it bills an hour now, as far as its platform says that."""
    known = record.stopped_per_hour if record.phase.at_rest else None
    return record.price_per_hour if known is None else known


def _first_with(tag: str, state: StackState, births: Sequence[Birth], found: Iterable[Orphan]) -> str:
    """Which box already has this tag, as text; "" if none has: then an `up` adopts the box that carries it."""
    if inside := next((box.native_id for box in state.boxes if box.tag == tag), ""):
        return f"{inside} is the one in the state"
    birth = next((birth for birth in births if birth.tag == tag), None)
    if birth is not None and birth.native_id is not None:
        return f"{birth.native_id} is the one on record"
    if birth is not None and birth.ended_at is not None:
        return f"its record says {birth.ended_how or 'ended'}"
    other = next((one.native_id for one in found if one.tag == tag), None)
    return f"{other} is the one that an up adopts" if other else ""


def _by_tag(record: BoxRecord, adapter: str, identity: str, target: Target, first: str) -> Orphan:
    box = record.tag.removeprefix(box_layout.tag_prefix(identity)).rpartition("-g")[0]
    return Orphan(
        kind="box",
        box=box or None,
        native_id=record.native_id,
        platform=adapter,
        tag=record.tag,
        price_per_hour=record.price_per_hour,
        why=f"a second box with the tag of {box}; {first}"
        if first
        else "it carries this sweep's tag; neither the state nor an open record has it",
        next=f"sweepctl audit --end {adapter}:{record.native_id}" if first else _adopt(box, target),
        since=record.created_at,
    )


def _entry(problem: str, target: Target) -> Orphan:
    return Orphan(
        kind="entry",
        box=None,
        native_id=None,
        platform=None,
        tag=None,
        price_per_hour=None,
        why=f"an entry of the state can't be read: {problem}",
        next=f"pulumi stack export --stack {target.stack}    (look at it)",
        proved=False,
    )


def _adopt(box: str, target: Target) -> str:
    """The command that brings a box back into the state: `up` finds it by its tag, if the stack file still names it."""
    up = f"pulumi up --stack {target.stack}"
    try:
        boxes = target.file.sweep().get("boxes")
    except ConfigError:
        return up
    if not isinstance(boxes, dict):
        return up
    wanted = boxes.get(box, {"want": "gone"})
    if isinstance(wanted, dict) and wanted.get("want") == "gone":
        return f"{up}    (after boxes.{box}.want is set to running in {target.file.shown}: adopts it)"
    return f"{up}    (adopts it; then approve and destroy)"
