"""Looks at a box, and gives the teardown check what it needs. Never raises for an outage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sweepstack.channel import prefetch
from sweepstack.channel.prefetch import Question
from sweepstack.core.journal import Journal, parse_journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Birth
from sweepstack.evidence.location import evidence_on
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import ByHand, Channel, Listing, Scheduled
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import (
    EvidenceDamaged,
    EvidenceError,
    FolderLost,
    JournalDamaged,
    PlatformError,
    SweepstackError,
    Unproved,
    Unreachable,
    WrongAccount,
)
from sweepstack.onbox.host.platform import RENTED_ON, BoxRecord, Phase, Platform
from sweepstack.operations.host_shutdown import settled, told
from sweepstack.platforms.registry import has_address
from sweepstack.teardown import unclaimed
from sweepstack.teardown.box_context import BoxAt, find_born
from sweepstack.teardown.handover_records import known_handover
from sweepstack.teardown.refusal import of_box

KEEP_SECONDS = 10.0
"""The most seconds that a look waits until what it read is kept."""


@dataclass(frozen=True)
class Ahead:
    """What the caller will ask after `observe` with the same box context. It is read in the same round trip if the
    channel can do that (prefetch). `questions`: about the box; `tagged`: for every box whose tag begins so."""

    questions: Sequence[Question] = ()
    tagged: str = ""


def observe(
    box: BoxAt, *, files: bool = True, also: Ahead | None = None, rented: bool = False
) -> tuple[Observation, BoxRecord | None]:
    """Asks the platform for the box, then the box for its journal. The record is None unless the box exists.

    `files`: also list the box's files, which takes longer. Pass False only if the caller never asks whether the box may
    end: a box whose files were not seen is locked. If the evidence is missing, which may record an end or a stop
    without an API, a host that does not answer is unknown. `also`: for a caller that goes on to ask more and decides
    nothing. `rented`: as in `look_up`.
    """
    adapter, native_id, account, evidence = box.adapter, box.native_id, box.account, box.evidence.uri
    try:
        platform = box.platform
        if found := settled(box):
            return found
        questions = [*_questions(files), *also.questions] if also else []
        if also and isinstance(platform, prefetch.PrefetchesBoxes):
            platform.prefetch(native_id, account, questions, also.tagged)
        record = look_up(platform, native_id, account, rented=rented)
    except FolderLost as error:
        return Observation(Existence.UNKNOWN, note=of_box(str(error), box.name), folder_lost=True), None
    except WrongAccount as error:
        return Observation(Existence.UNKNOWN, account_problem=of_box(str(error), box.name)), None
    except PlatformError as error:
        if isinstance(error, Unproved) and (confirmed := _confirmed(box)):
            return Observation(Existence.GONE, note=confirmed), None
        return Observation(Existence.UNKNOWN, note=of_box(str(error), box.name)), None
    if record.phase is Phase.GONE:
        return Observation(Existence.GONE), None
    if record.phase is Phase.UNKNOWN:
        note = of_box(record.note, box.name) or f"{adapter} does not explain its state"
        return Observation(Existence.UNKNOWN, note=note), record
    if record.phase is Phase.ENDING and evidence and has_address(adapter):
        known = known_handover(box)
        if known is not None:
            return Observation(Existence.EXISTS, note=known.rented_on, runner_alive=False), record
    if record.emptied:
        return Observation(Existence.EXISTS, note=RENTED_ON, runner_alive=False, emptied=True), record
    stopped = record.phase.at_rest
    rests_at = record.stopped_per_hour if record.phase is Phase.STOPPED else None
    started = record.started_at if record.phase is Phase.STOPPED else None  # one that still stops may change yet
    try:
        channel = platform.channel(native_id, account)
        if also and isinstance(channel, prefetch.Prefetches):
            channel.prefetch(questions)
        journal = read_journal(channel)
        note = channel.note if isinstance(channel, ByHand) else ""
        workers: tuple[Mapping[str, Any], ...] = ()
        if also and isinstance(channel, Scheduled) and not stopped:
            note, workers = _workers(channel)
        alive, skew = channel.lock_held(box_layout.RUNNER_LOCK), channel.skew
        on_it = evidence_on(channel, evidence, box_layout.OWN_TIERS) if evidence else None
    except (PlatformError, JournalDamaged, OSError) as error:
        return Observation(
            Existence.EXISTS, note=str(error), stopped=stopped, stopped_per_hour=rests_at, started_at=started
        ), record
    listing = _listing(channel) if files else None
    seen = Observation(
        Existence.EXISTS,
        journal,
        alive,
        note=note,
        stopped=stopped,
        listing=listing,
        skew=skew,
        stopped_per_hour=rests_at,
        started_at=started,
        evidence_on=on_it,
        workers=workers,
    )
    return seen, record


def keep_journals(store: EvidenceStore, read: Mapping[tuple[str, int], Journal | None]) -> list[str]:
    """Keeps the journals that a look has read, by box and generation: a box that vanishes is told as it was last seen.

    Blocks for `KEEP_SECONDS` at most. Returns why a journal can't be what follows its copy. Where a copy can't be
    written (a reader without that right, an outage) it stays as it is, and nothing is said: no answer hangs on it.
    """

    def kept(box: str, generation: int, journal: Journal) -> str:
        try:
            store.keep_journal(box, generation, journal)
        except EvidenceDamaged as error:
            return str(error)
        except (EvidenceError, JournalDamaged):
            pass
        return ""

    tasks = {key: partial(kept, *key, journal) for key, journal in read.items() if journal is not None}
    return sorted(filter(None, in_parallel(tasks, KEEP_SECONDS).values()))


def _confirmed(box: BoxAt) -> str:
    """What a person saw of a box whose end is confirmed, although its platform does not prove it; "" for any other."""
    known = known_handover(box)
    sure = known is not None and known.confirmed is not None and known.over(box.native_id)
    return told(known) if known is not None and sure else ""


def _workers(channel: Scheduled) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """What the scheduler says of the box's workers, in words, and of each."""
    try:
        said = channel.workers()
    except PlatformError as error:
        return f"what the scheduler says of its workers is not known: {error}", ()
    return str(said.get("words") or ""), tuple(said["tasks"])


def look_up(platform: Platform, native_id: str, account: str, *, rented: bool) -> BoxRecord:
    """The box, as `Platform.get`. If its folder is gone from a rented host that answers, the box is not `GONE` but
    `emptied`, and bills on. The host says whether it is rented. `rented` is for boxes that an older version made, which
    left no mark there: no API ends their bill, or (`rented_at`) their birth record has a price."""
    record = platform.get(native_id, account)
    if record.phase is Phase.GONE and rented and has_address(platform.name):
        return replace(record, phase=Phase.ENDING, note=RENTED_ON)
    return record


def made_by(birth: Birth, platform: Platform | None = None) -> tuple[BoxRecord | None, bool]:
    """What the create of a record without an id has made, and whether that is proved. A record by which nothing was
    asked for (`Birth.never_asked`) is no box, also where the platform can't tell. Not proved: a request
    went out, and a list that may lag does not show what it made. Raises PlatformError, and as `load_platform`."""
    try:
        at_hand = platform or BoxAt.of(birth).platform
        found = find_born(at_hand, birth)
    except SweepstackError:
        if birth.never_asked:
            return None, True
        raise
    return found, found is not None or birth.asked_at is None or at_hand.sees_all


def stays_ended(birth: Birth, error: SweepstackError) -> bool:
    """Whether a record that says "ended" holds though its platform answered with `error`: it shows the box nowhere, to
    the account that rented it, and lacks only its second source, the bill, which takes each command minutes to read.
    The record was written on that proof, or on a person's word."""
    return birth.ended_at is not None and isinstance(error, Unproved) and error.same_account


def rented_at(price_per_hour: float | None) -> bool:
    """Whether a host is rented that a birth record, or the ledger, has at this price: the user's own hosts are at 0."""
    return price_per_hour != 0


def _questions(files: bool) -> list[Question]:
    """What `observe` asks, in this order: the journal before the lock."""
    asked = [prefetch.read(box_layout.JOURNAL), prefetch.lock_held(box_layout.RUNNER_LOCK)]
    return [*asked, *(prefetch.walk(folders, **how) for folders, how in _walks())] if files else asked


def _walks() -> tuple[tuple[Sequence[str], dict[str, Any]], ...]:
    """The folders to list, and how: the box's own tiers, then the cells' own folders."""
    bounds = {"limit": unclaimed.FILES, "seconds": unclaimed.SECONDS}
    return (box_layout.OWN_TIERS, {"skip": (*unclaimed.SKIP, box_layout.CELLS), **bounds}), (
        (box_layout.CELLS,),
        bounds,
    )


def _listing(channel: Channel) -> Listing:
    """The files on the box's own tiers; its `problem` says why not all could be seen.

    The cells' own folders come last and cause no problem: ten thousand of them take seconds, and what is in them was
    sealed, or keeps the box by its cell's state. A look at them finds what came later.
    """
    try:
        found, cells = (channel.walk(folders, **how) for folders, how in _walks())
    except (PlatformError, OSError) as error:
        return Listing(problem=str(error))
    return Listing((*found.files, *cells.files), found.problem)


def read_journal(channel: Channel) -> Journal:
    """The box's journal; an empty one if none was ever begun. Raises JournalDamaged, Unreachable."""
    try:
        return parse_journal(channel.read(box_layout.JOURNAL))
    except FileNotFoundError:
        # A queue that was given cells has a home. No home: nothing ran. A home without a journal: not started yet,
        # unless cells were started, and then the launch record and the receipt speak against it.
        return parse_journal(b"")
    except OSError as error:
        raise Unreachable(f"the journal could not be read: {error}") from error
