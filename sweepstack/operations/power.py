"""Stops and starts a box: first its cells, then the platform's verb, then proof, then the ledger.

The provider (`want: stopped`) and `sweepctl tend` (`when_done: stop`) use it. Whether a box may be stopped is decided
in `teardown`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from sweepstack.billing.ledger import FOUND_STOPPED, record_phase
from sweepstack.core.journal import Journal, LastLook, Rest
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Approval, LedgerPhase
from sweepstack.evidence import box_logs
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Channel, Scheduled
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import (
    EvidenceError,
    JournalDamaged,
    NotYetStopped,
    OutcomeUnknown,
    PlatformError,
    SweepstackError,
    Unsupported,
)
from sweepstack.onbox.host.capabilities import CanStop
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform, Wait
from sweepstack.operations.host_shutdown import Command, issue
from sweepstack.operations.observe import observe
from sweepstack.platforms.registry import need
from sweepstack.teardown.approval import Given
from sweepstack.teardown.box_check import Verdict, queued
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.check import may_end
from sweepstack.teardown.stop_check import AtRisk, StopEnding, look_for_risk

RUNNER_SECONDS = 40.0
"""The runner gives its cells 20 s to end, and needs some seconds more to report it."""
RELEASE_SECONDS = 5.0
STOP_SECONDS = 300.0
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Pause:
    """The stop check's answer, and what it is based on. The facts of `box` are those of the verb stop."""

    box: BoxContext
    seen: Observation
    record: BoxRecord | None
    risk: AtRisk
    verdict: Verdict

    @property
    def facts(self) -> BoxFacts:
        """The facts of the box for the verb stop."""
        return self.box.facts

    @property
    def at_rest(self) -> bool:
        """Whether the box is stopped already: a stop kills nothing more."""
        return self.record is not None and self.record.phase.at_rest


def judge_stop(
    box: BoxContext, paths: dict[str, str], approval: Approval | None, *, full: bool, given: Given = "before"
) -> Pause:
    """Looks at the box, and at the tiers that the stop kills, and asks the check. The facts of `box` are those of the
    verb stop. `given`: as of `may_end`. Never raises for an outage."""
    seen, record = observe(box)
    risk = AtRisk()
    at_rest = record is not None and record.phase.at_rest
    if seen.existence is Existence.EXISTS and not at_rest:
        risk = risk_on(box, paths, seen.journal)
    verdict = may_end(StopEnding(box, approval, seen, risk, given=given), full=full)
    return Pause(box, seen, record, risk, verdict)


def risk_on(box: BoxContext, paths: dict[str, str], journal: Journal | None) -> AtRisk:
    """What the stop would kill that exists nowhere else."""
    try:
        return look_for_risk(box.channel(), box.facts.kills, paths, journal)
    except PlatformError as error:
        return AtRisk(unknown=str(error))


def drained(store: EvidenceStore, box: str, generation: int, seen: Observation) -> bool:
    """Whether every cell that the box's queue was given has ended, or is held back since another one left the wrong
    files. False if that is not known, and for a queue without cells."""
    try:
        launch = store.launch(box, generation)
        journal = seen.journal or store.journal(box, generation)
    except (EvidenceError, JournalDamaged):
        return False
    if launch is None or journal is None:
        return False
    return all(
        journal.waits(name)
        or (
            (progress := journal.cells.get(name)) is not None
            and (progress.state in ("sealed", "dropped") or progress.final)
        )
        for name in launch.cells
    )


def end_runner(platform: Platform, native_id: str, account: str, *, grace: float = RUNNER_SECONDS) -> None:
    """Sends SIGTERM to the runner, which passes it to its cells and waits for them. Idempotent; returns when the runner
    has ended, and its lock is free: what holds that on after `RELEASE_SECONDS` is another process.

    Raises PlatformError if it survives, or if the box can't be reached.
    """
    channel = platform.channel(native_id, account)
    if not channel.lock_held(box_layout.RUNNER_LOCK):
        return
    if isinstance(channel, Scheduled):
        channel.end_workers()
        return
    try:
        pids = [int(json.loads(channel.read(box_layout.RUNNER_PID))["pid"])]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pids = [process.pid for process in channel.processes()]
    for pid in pids:
        channel.terminate(pid, grace=grace)
    until = time.monotonic() + RELEASE_SECONDS
    # For a moment, a process that it was just starting holds it too, or the lease that looks whether it still runs.
    while channel.lock_held(box_layout.RUNNER_LOCK) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def lock_holders(channel: Channel) -> list[int]:
    """The processes that hold the runner's lock, by the box's kernel: the runner, or what it left behind. Empty where
    none does, and where the kernel does not tell."""
    looks = 'i=$(stat -c %i "$1") && sed -n "s/^.* FLOCK .* \\([0-9][0-9]*\\) [^ ]*:$i .*/\\1/p" /proc/locks'
    try:
        said = channel.run(["sh", "-c", looks, "sh", channel.absolute(box_layout.RUNNER_LOCK)], timeout=RUNNER_SECONDS)
    except PlatformError:
        return []
    return sorted({int(pid) for pid in said.stdout.split() if pid.isdigit() and int(pid) > 1})


def keep_journal(store: EvidenceStore, platform: Platform, facts: BoxFacts) -> tuple[Rest | None, str]:
    """Copies the journal into the evidence, marked as complete, since its runner has ended and a stopped box may not
    answer. Returns the record of that, and why it failed: "" if it did not, and where there is no journal."""
    try:
        data = platform.channel(facts.native_id, facts.account).read(box_layout.JOURNAL)
        head = store.write_journal(facts.name, facts.generation, data).head
        now = datetime.now(UTC)
        rest = Rest(box=facts.name, generation=facts.generation, native_id=facts.native_id, head=head, at=now)
        store.write_rest(rest)
    except FileNotFoundError:
        return None, ""
    except (PlatformError, EvidenceError, JournalDamaged, OSError) as error:
        return None, str(error)
    return rest, ""


def _look(box: BoxContext, seen: Observation, record: BoxRecord | None, rest: Rest | None) -> LastLook | None:
    """All that was read of a box in one look, for its end (`teardown.box_check`). None where not all was read, where
    its runner was alive, where the journal grew meanwhile (`rest` was read after the files), and on a platform that
    does not tell when it last started the box."""
    if rest is None or record is None or record.started_at is None or seen.listing is None:
        return None
    if seen.journal is None or seen.runner_alive is not False or seen.journal.head != rest.head:
        return None
    try:
        given = queued(box.store, rest.box, rest.generation)
    except EvidenceError:  # a stop goes on without: the bill counts more
        return None
    return LastLook(
        box=rest.box,
        generation=rest.generation,
        native_id=rest.native_id,
        head=seen.journal.head,
        started_at=record.started_at,
        queued=given,
        at=rest.at,
        files=seen.listing.files,
        problem=seen.listing.problem,
        evidence_on=seen.evidence_on,
    )


def _keep_look(store: EvidenceStore, rest: Rest | None, look: LastLook | None, record: BoxRecord) -> None:
    """Writes down that the look stands for the box, once it is proved that it stands still and was not started since.
    Never raises: without it the box has to be started before it may end."""
    if rest is None or look is None or record.phase is not Phase.STOPPED or record.started_at != look.started_at:
        return
    with contextlib.suppress(EvidenceError, ValueError):  # the second: a file's name that no record can hold
        store.write_rest(rest.model_copy(update={"look": store.write_look(look)}))


def bring_to_rest(platform: CanStop, facts: BoxFacts, *, wait: Wait) -> BoxRecord:
    """Sends the stop until the platform says `stopped`. Raises NotYetStopped with the reason, and what it costs."""
    begun, problem = time.monotonic(), "the platform does not say that it is stopped"
    while True:
        try:
            platform.stop(facts.native_id, facts.account)
            record = platform.get(facts.native_id, facts.account)
            if record.phase is Phase.STOPPED:
                return record
        except (NotYetStopped, OutcomeUnknown) as error:
            problem = str(error)
        if wait.cancelled.wait(POLL_SECONDS):
            problem = "the wait was cancelled"
        if wait.cancelled.is_set() or time.monotonic() - begun > wait.deadline:
            raise NotYetStopped(
                f"box {facts.name} ({facts.native_id}): stop was asked for and is not proved: {problem}"
            )


def stop_box(
    pause: Pause,
    paths: dict[str, str],
    *,
    price_after: float | None,
    wait: Wait,
    say: Callable[[str], None],
    issued: Issued | None = None,
) -> BoxRecord:
    """Ends the runner with grace, looks again at what would die, keeps the journal, stops the box, writes the ledger.

    `pause` must allow it. `price_after`: the profile's, where the platform names none for this box. `issued`: how the
    verb is issued if no API does it. Raises SweepstackError if more is at risk than the check saw; EvidenceError, and
    then nothing was stopped, if the evidence can't be used.
    """
    box, facts, store = pause.box, pause.facts, pause.box.store
    platform = need(box.platform, CanStop)
    rest, look = None, None
    if not pause.at_rest:
        say("handing the cells a SIGTERM, and waiting for them")
        end_runner(platform, facts.native_id, facts.account)
        seen, before = observe(box)
        if pause.verdict.way == "nothing-at-risk":
            risk = risk_on(box, paths, seen.journal)
            if not risk.nothing:
                raise SweepstackError(
                    f"box {facts.name} was not stopped, and nothing was wiped: on their way out its cells left "
                    f"{risk.words(facts.kills)}"
                )
        rest, problem = keep_journal(store, platform, facts)
        look = _look(box, seen, before, rest)
        if problem:
            say(f"its journal could not be kept in the evidence: {problem}")
        for problem in box_logs.copy_last(box.channel, box.evidence, facts.name, facts.generation):
            say(problem)
    if issued is None:
        record = bring_to_rest(platform, facts, wait=wait)
    else:
        record = _bring_to_rest_by_command(store, platform, pause, issued, wait=wait, say=say)
    _keep_look(store, rest, look, record)
    how = FOUND_STOPPED if pause.at_rest else ""
    write_phase(store, box.adapter, facts, "stopped", record.bills_at_rest(price_after), how)
    return record


class Issued(Protocol):
    """A stop that no API issues, as the state has it: by whom, the platform's name for it, the command on the box."""

    @property
    def by(self) -> str: ...
    @property
    def native(self) -> str: ...
    @property
    def command(self) -> str | None: ...


def _bring_to_rest_by_command(
    store: EvidenceStore,
    platform: Platform,
    pause: Pause,
    issued: Issued,
    *,
    wait: Wait,
    say: Callable[[str], None],
) -> BoxRecord:
    """As `bring_to_rest`, on a host that stops itself."""
    facts = pause.facts
    if issued.by != "ssh" or not issued.command:
        raise Unsupported(f"box {facts.name}: {issued.native} is for a person to do: no command here does it")
    asked = Command("stop", issued.native, issued.command, pause.verdict.way or "")
    try:
        known = issue(store, platform, facts, asked, wait=wait, say=say)
    except PlatformError as error:
        raise NotYetStopped(f"box {facts.name} ({facts.native_id}): {error}. It may bill as if it ran") from error
    note = f"{issued.native} since {known.silent_at:%Y-%m-%d %H:%M} UTC"
    where = platform.name
    return BoxRecord(facts.native_id, "", facts.account, Phase.STOPPED, facts.price_per_hour, None, where, note)


def start_box(box: BoxContext, *, wait: Wait) -> BoxRecord:
    """Starts a stopped box again. Costs money. Blocks. Raises StillCreating when it is not ready in time.

    It bills at the price of `facts`, which follows the config; the platform's record has the price of the day it was
    rented.
    """
    facts, store, platform = box.facts, box.store, need(box.platform, CanStop)
    record = platform.start(facts.native_id, facts.account, wait=wait)
    price = record.price_per_hour if facts.price_per_hour is None else facts.price_per_hour
    write_phase(store, box.adapter, facts, "running", price)
    return record


def write_phase(
    store: EvidenceStore,
    adapter: str,
    facts: BoxFacts,
    phase: LedgerPhase,
    price_per_hour: float | None,
    how: str = "",
) -> None:
    """Writes into the ledger that it is in this phase from now on. A ledger that can't be written stops no box: never
    raises for it."""
    with contextlib.suppress(EvidenceError):
        record_phase(
            store,
            box=facts.name,
            native_id=facts.native_id,
            platform=adapter,
            account=facts.account,
            phase=phase,
            price_per_hour=price_per_hour,
            at=datetime.now(UTC),
            how=how,
        )
