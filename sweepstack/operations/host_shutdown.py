"""Ends or stops a box by a command on its host, and proves that the host is off by its silence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from sweepstack.core.observation import Existence, Observation
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import (
    EvidenceError,
    JournalDamaged,
    OutcomeUnknown,
    PlatformError,
    Unreachable,
)
from sweepstack.onbox.host.capabilities import IsHost
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform, Wait
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.registry import has_address, need
from sweepstack.teardown.box_context import BoxAt, BoxFacts
from sweepstack.teardown.handover_records import (
    Handover,
    begun_before,
    forget_handover,
    handover_of,
    keep_handover,
    known_handover,
)

if TYPE_CHECKING:
    from sweepstack.core.journal import Journal

SILENT_SECONDS = 60.0
"""After the host accepted a command, it must be silent for so long before the command counts as carried out."""
AGAIN_SECONDS = 30.0
"""If a host still answers so long after it accepted the command, it is given it again."""
POLL_SECONDS = 2.0
LEAST_SECONDS = 0.1


def settled(box: BoxAt) -> tuple[Observation, BoxRecord | None] | None:
    """What is known of a box whose stop or end is finished by the evidence, while its host does not answer. None in
    every other case: then the box itself is asked."""
    if not box.evidence.uri or not has_address(box.adapter):
        return None
    known = known_handover(box)
    if known is None or not known.over(box.native_id):
        return None
    answered = answers(box.platform, known)
    if answered and known.confirmed is None:  # it was started again: its silence then proves nothing about this command
        with contextlib.suppress(EvidenceError):
            forget_handover(box.evidence.usable, box.native_id)
    if answered is not False:
        return None
    if known.verb == "destroy":
        return Observation(Existence.GONE, note=told(known)), None
    note = f"{known.native} since {known.silent_at or known.begun_at:%Y-%m-%d %H:%M} UTC; its host does not answer"
    record = BoxRecord(box.native_id, "", box.account, Phase.STOPPED, None, None, box.platform.name, note)
    journal = _journal(box.evidence, known)
    seen = Observation(Existence.EXISTS, journal, runner_alive=False, stopped=True, note="" if journal else note)
    return seen, record


def answers(platform: Platform, known: Handover) -> bool | None:
    """Whether the machine of this box answers at its address; None if that can't be tried from here. Another machine,
    which a person named, does not count."""
    try:
        shown = need(platform, IsHost).who_answers()
    except Unreachable:
        return False
    except PlatformError:
        return None
    others = known.confirmed.other_keys if known.confirmed is not None else ()
    return not shown or not all(key.split()[-1] in others for key in shown)


def told(known: Handover) -> str:
    """How that is known, in one line."""
    if known.confirmed is not None:
        seen = known.confirmed
        return f"{seen.by} saw at {seen.at:%Y-%m-%d %H:%M} UTC: {seen.saw}"
    return f"it took {known.native}, and has not answered since {known.silent_at:%Y-%m-%d %H:%M} UTC"


def _journal(evidence: Evidence, known: Handover) -> Journal | None:
    """The copy of its journal, if it is complete: nothing has run there since."""
    try:
        store = evidence.store
        birth = next((birth for birth in store.births() if birth.native_id == known.native_id), None)
        if birth is None:
            return None
        return store.journal_at_rest(birth.box, birth.generation, known.native_id)
    except (EvidenceError, JournalDamaged):
        return None


@dataclass(frozen=True)
class Command:
    """A command that is run on the host itself: its verb, the platform's name for it, and what is typed. `bills_after`,
    `release`: see `Handover`."""

    verb: Literal["stop", "destroy"]
    native: str
    command: str
    way: str
    bills_after: float | None = 0.0
    release: str = ""


def issue(
    store: EvidenceStore | None,
    platform: Platform,
    facts: BoxFacts,
    asked: Command,
    *,
    wait: Wait,
    say: Callable[[str], None],
) -> Handover:
    """Runs a command on the host over SSH, and waits for the proof: the host accepted it, and does not answer any more.

    Ends the box's processes first. Idempotent; after a crash the next call resumes, since it is on record what the host
    accepted. Raises OutcomeUnknown with the reason if it is not proved in time: then it must not count as done.
    """
    known = _begun(store, facts, asked)
    begin, silent, problem, tried = time.monotonic(), None, "nothing was asked yet", -float("inf")
    while True:
        now = time.monotonic()
        if _silent(platform):
            silent = now if silent is None else silent
            if known.accepted_at is None:
                problem = f"the host does not answer, and whether it took {asked.command!r} is not known"
            elif now - silent >= paced(SILENT_SECONDS):
                since = datetime.now(UTC) - timedelta(seconds=now - silent)
                return keep_handover(store, known.model_copy(update={"silent_at": known.silent_at or since}))
            else:
                problem = "the host does not answer, but has not been silent for long enough to be sure"
        else:
            silent = None
            if now - tried >= AGAIN_SECONDS:
                tried = now
                try:
                    need(platform, IsHost).power_off(facts.native_id, facts.account, asked.command)
                    taken = datetime.now(UTC)
                    known = known.model_copy(update={"ended_at": taken, "accepted_at": taken, "silent_at": None})
                    known = keep_handover(store, known)
                    say(f"{asked.native}: {facts.native_id} took {asked.command!r}; waiting until it is silent")
                    problem = f"it took {asked.command!r}, and answers on"
                except (Unreachable, OutcomeUnknown) as error:
                    problem = str(error)
        if wait.cancelled.wait(max(LEAST_SECONDS, paced(POLL_SECONDS))):
            problem = "the wait was cancelled"
        if wait.cancelled.is_set() or time.monotonic() - begin > wait.deadline:
            raise OutcomeUnknown(f"{asked.native} ({asked.command}) is not proved: {problem}")


def finish(
    store: EvidenceStore | None, platform: Platform, native_id: str, *, wait: Wait, say: Callable[[str], None]
) -> None:
    """Resumes the wait for a command that was cut off: the record says that the host accepted it, and the host does not
    answer. Issues nothing. Returns when there is nothing (more) to wait for: the record says how it stands."""
    known = handover_of(store, native_id)
    if known is None or known.by != "ssh" or known.accepted_at is None or known.silent_at is not None:
        return
    begin = time.monotonic()
    while _silent(platform):
        if time.monotonic() - begin >= paced(SILENT_SECONDS):
            since = datetime.now(UTC) - timedelta(seconds=time.monotonic() - begin)
            keep_handover(store, known.model_copy(update={"silent_at": since}))
            return
        say(f"{known.native}: {native_id} took it before; waiting until it has been silent for long enough")
        if wait.cancelled.wait(max(LEAST_SECONDS, paced(POLL_SECONDS))) or time.monotonic() - begin > wait.deadline:
            return


def _begun(store: EvidenceStore | None, facts: BoxFacts, asked: Command) -> Handover:
    """The record of this verb: a new one, unless the host accepted the same command and has been silent since."""
    before = begun_before(store, facts.native_id, asked.way)
    known = Handover(
        box=facts.name,
        native_id=facts.native_id,
        verb=asked.verb,
        by="ssh",
        native=asked.native,
        way=asked.way,
        begun_at=datetime.now(UTC),
        bills_after=asked.bills_after,
        release=asked.release,
    )
    if before is not None and before.by == "ssh" and before.native == asked.native:
        kept = {name: getattr(before, name) for name in ("ended_at", "accepted_at", "silent_at", "begun_at")}
        known = known.model_copy(update=kept)
    return keep_handover(store, known)


def _silent(platform: Platform) -> bool:
    try:
        need(platform, IsHost).who_answers()
    except Unreachable:
        return True
    except PlatformError:
        return False
    return False
