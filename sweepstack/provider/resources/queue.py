"""Queue: the cells of one box. Updates add and take out cells; cells that run are left alone.

It keeps the folders of downloads that its box began with, whatever a newer profile says: a cache that moves is
downloaded again, by cells that have begun. What a person writes in the stack file does move.

A cluster is asked, before anything is made there, whether it would run a box's workers.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from sweepstack.config.own_files import own_files
from sweepstack.core.extensions import not_here, part_of
from sweepstack.core.foreign_cells import read_elsewhere
from sweepstack.core.job import NetworkInput
from sweepstack.core.journal import Journal, could_not_stop, parse_journal, started
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Again
from sweepstack.core.resources import QueueInputs, QueueState
from sweepstack.core.workdir import NO_CODE, located
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.launch.entries import QueueDamaged, finished, held_words
from sweepstack.launch.launch import FirstCellFailed, LaunchSpec, changed_cells, launch
from sweepstack.launch.retries import write_down
from sweepstack.launch.spec import WaitEnded
from sweepstack.onbox.agent.channel import ByHand, Channel, Scheduled
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import GENESIS
from sweepstack.onbox.common.errors import (
    ConfigError,
    EvidenceError,
    JournalDamaged,
    PlatformError,
    StillCreating,
    SweepstackError,
)
from sweepstack.onbox.common.priority import rank
from sweepstack.onbox.common.units import count
from sweepstack.onbox.host.capabilities import IsCluster
from sweepstack.onbox.host.platform import Platform
from sweepstack.operations.cell_moves import find, settle
from sweepstack.operations.lease_renewal import on_box, renew_lease
from sweepstack.operations.observe import observe, read_journal
from sweepstack.operations.power import end_runner, lock_holders
from sweepstack.platforms.registry import load_platform
from sweepstack.provider import secrets
from sweepstack.provider.resources import code_mixing, host_address_change, run_or_stop, teardown
from sweepstack.provider.resources.base import Checked, Decision, Failure, Gone, Handler, ReadAnswer
from sweepstack.provider.resources.held_by_another import sign_box
from sweepstack.provider.resources.policy_limits import bound
from sweepstack.provider.session import Operation
from sweepstack.provider.wire import holds_unknown
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.box_context import BoxAt, BoxContext
from sweepstack.teardown.check import may_end
from sweepstack.teardown.ownership import who

STOP_SECONDS = 30.0


class QueueHandler(Handler[QueueInputs, QueueState]):
    """Never removes data, and never ends a running cell without a clearance."""

    token = "sweepstack:index:Queue"
    inputs_type = QueueInputs
    state_type = QueueState
    replaces_before_delete = True
    not_in_outputs = frozenset({"cells", "elsewhere"})
    decisions: ClassVar[dict[str, Decision]] = {
        "identity": Decision.REFUSE,
        "evidence": Decision.REFUSE,
        "stack": Decision.REFUSE,
        "adapter": Decision.MOVE,
        "box": Decision.REPLACE,
        "box_name": Decision.REPLACE,
        "account": Decision.REPLACE,
        "generation": Decision.REPLACE,
        "roster_digest": Decision.IGNORE,  # what it means for this box is in `cells`
        "elsewhere": Decision.IGNORE,  # but for a changed config: see `noticed`
        "teardown": Decision.UPDATE,
        "want": Decision.UPDATE,
        "job": Decision.UPDATE,
        "cells": Decision.UPDATE,
        "dropped": Decision.UPDATE,
        "pins": Decision.UPDATE,
        "retries": Decision.UPDATE,
        "versions": Decision.IGNORE,  # describes `job` and `cells`
        "artifacts": Decision.UPDATE,
        "metrics": Decision.UPDATE,
        "sources": Decision.UPDATE,
        "priority": Decision.UPDATE,
        "approval": Decision.IGNORE,  # the gate shows it
        "policy": Decision.IGNORE,  # the gate shows it
    }

    def check(self, op: Operation, old: QueueInputs | None, new: QueueInputs) -> Checked[QueueInputs]:
        """Refuses what the update would refuse, as far as that can be seen now. The update decides."""
        if old is not None and old.box != new.box:
            old = None
        new, failures = host_address_change.written_out(old, new)
        if failures:
            return Checked(new, failures)
        evidence = Evidence(new.evidence)
        copy = bound(op, evidence, old.policy if old is not None else None, new.identity).copy
        new = new.model_copy(update={"policy": copy})
        if new.job.code == NO_CODE:
            if old is None:
                return Checked(new, [Failure("job", "the job's files can't be had here, and no cell can be started")])
            known = old.job.model_dump(include={"code", "workdir", "include"})
            new = new.model_copy(update={"job": new.job.model_copy(update=known)})
        new = code_mixing.with_code_kept(op, evidence, old, new)
        completed, failures = code_mixing.complete(evidence, old, new)
        seen = Observation(Existence.EXISTS, parse_journal(b""))
        if old is not None:
            seen = observe(_at(old))[0]
            if old.job.lease is not None and seen.journal is not None:
                renew_lease(_at(old).channel)
            completed = with_caches_kept(op, old, completed, seen)
        completed, never = with_sources(op, evidence, old, completed, seen.journal, new.retries or {})
        failures += never
        if seen.journal is None:
            return Checked(completed, failures)
        standing = code_mixing.code_versions(evidence, completed, seen.journal, new.retries)
        failures += code_mixing.mixing_refusal(
            standing, completed, op.stack, partial(code_mixing.changed_files, op, evidence, completed)
        )
        failures += code_mixing.unasked(evidence, completed, seen.journal)
        failures += code_mixing.refused_scripts(op, evidence, standing, completed)
        failures += code_mixing.unstartable(op, standing, old, completed)
        failures += self._without_secrets(completed, seen.journal)
        failures += worker_failures(op, old, completed) if old is not None else []
        if failures and (new.want == "stopped" or _is_cleared(completed, seen)):
            failures = []  # nothing is started there, so what would stop a start must not keep the box locked
        if old is None:
            return Checked(completed, failures)
        failures += _changed_cells(old, new, seen.journal, op.stack)
        if failures:
            return Checked(completed, failures)
        cells = code_mixing.comings_and_goings(old, completed, standing.kept, seen.journal)
        if cells:
            op.info(f"queue of {new.box_name}: {cells}")
        if new.priority != old.priority:
            op.info(f"queue of {new.box_name}: {order(new, seen.journal)}")
        words = code_mixing.change(standing, old, completed)
        if words:
            op.info(f"queue of {new.box_name}: {words}")
            completed = completed.model_copy(update={"versions": words})
        return Checked(completed, failures)

    def check_early(self, op: Operation, old: dict[str, Any], new: dict[str, Any]) -> list[Failure]:
        """Checks pins, mixed code and secrets before the box exists: they don't need it."""
        if old:
            return []
        not_yet: dict[str, Any] = {"generation": 0}
        filled = {
            key: not_yet.get(key, "not known yet") if holds_unknown(value) else value for key, value in new.items()
        }
        try:
            inputs = QueueInputs.model_validate(filled)
        except ValidationError:
            return []
        evidence = Evidence(inputs.evidence)
        completed, failures = code_mixing.complete(
            evidence, None, code_mixing.with_code_kept(op, evidence, None, inputs)
        )
        standing = code_mixing.code_versions(evidence, completed, None, inputs.retries)
        failures += code_mixing.mixing_refusal(
            standing, completed, op.stack, partial(code_mixing.changed_files, op, evidence, completed)
        )
        failures += code_mixing.unasked(evidence, completed, None)
        failures += code_mixing.refused_scripts(op, evidence, standing, completed)
        failures += code_mixing.unstartable(op, standing, None, completed)
        failures += worker_failures(op, None, inputs)
        failures += with_sources(op, evidence, None, completed, parse_journal(b""), inputs.retries or {}, say=False)[1]
        return failures + secrets.failures("job", inputs.job.secrets if inputs.cells else ())

    def _without_secrets(self, new: QueueInputs, journal: Journal) -> list[Failure]:
        """The failure if cells are to start, and their secrets are neither in this environment nor on the box."""
        names = set(new.job.secrets or ())
        if not secrets.unset_secrets(names) or all(
            finished(journal.cells.get(cell.name), _retry(new, cell.name)) for cell in new.cells
        ):
            return []
        try:
            there = _secrets_on(_at(new).channel())
        except (PlatformError, OSError):
            return []
        return [] if there is not None and names <= set(there) else secrets.failures("job", new.job.secrets)

    def noticed(self, old: dict[str, Any], new: dict[str, Any]) -> tuple[str, ...]:
        """A cell of another box is to have another config: until that box takes it over, it may wait in this queue with
        the old one."""
        lists = [value if isinstance(value := side.get("elsewhere"), list) else [] for side in (old, new)]
        before, after = (read_elsewhere(map(str, texts)) for texts in lists)
        changed = any(digits and after.get(name, digits) != digits for name, digits in before.items())
        return ("elsewhere",) if changed else ()

    def create(self, op: Operation, inputs: QueueInputs) -> tuple[str, QueueState]:
        state = QueueState(**inputs.model_dump(), launched_at=datetime.now(UTC))
        self._bring_up(op, state)
        return f"{inputs.box}/queue", state

    def update(self, op: Operation, identifier: str, old: QueueState, new: QueueInputs) -> QueueState:
        """Adds and takes out cells, and resumes. With unchanged inputs it only makes sure that the runner lives. Starts
        a stopped box if there are cells to run, which costs money."""
        state = QueueState(**new.model_dump(), launched_at=old.launched_at)
        self._bring_up(op, state)
        return state

    def _bring_up(self, op: Operation, state: QueueState) -> None:
        box = teardown.context_of(state)
        with run_or_stop.first_worker(op, box, state):
            self._give(op, box, state)

    def _give(self, op: Operation, box: BoxContext, state: QueueState) -> None:
        judgement = teardown.judge_end(box, state, state.approval, full=False)
        if judgement.verdict.allowed:
            # Cleared: cells launched now would not be in the receipt. A box that is given up needs no evidence.
            op.info(f"queue of {state.box_name}: the box is cleared, nothing more is started on it")
            return
        store = box.store
        teardown.refuse_during_teardown(store, f"queue of {state.box_name}", op.stack)
        write_down(store, state.retries or {}, by=who(), at=datetime.now(UTC).replace(microsecond=0))
        given = store.launch(state.box_name, state.generation)
        if not state.cells and not state.dropped and (given is None or not given.cells):
            return
        if not run_or_stop.start_again(op, box, state):
            return
        channel = box.channel()
        sign_box(op, channel, store, box=state.box_name, generation=state.generation)
        cancelled = op.session.cancelled.is_set
        try:
            _move_in(op, box, state, channel)
            done = launch(
                launch_spec(op, state, box.platform), channel, store, progress=op.progress, cancelled=cancelled
            )
        except QueueDamaged as error:
            aside = f"mv {box_layout.QUEUE} {box_layout.QUEUE}.torn && pulumi up --stack {op.stack}"
            raise QueueDamaged(
                f"box {state.box_name}: {error}. Next: sweepctl ssh --stack {op.stack} {state.box_name} -- {aside}"
                "    (moves it aside; it is written again)"
            ) from error
        except FirstCellFailed as error:
            outputs = state.model_dump(mode="json")
            end = f"Next, where it can't be fixed: pulumi destroy --stack {op.stack}    (says how each box is given up)"
            next_command = f"Next: fix it, then pulumi up --stack {op.stack}\n{end}"
            if isinstance(error, WaitEnded):  # no cell has failed
                next_command = f"Next: sweepctl wait --stack {op.stack} done"
            raise StillCreating(f"{state.box}/queue", outputs, [f"{error}\n{next_command}"]) from error
        if done.by_hand:
            op.info(f"queue of {state.box_name}, {done.by_hand}\nNext: sweepctl status --stack {op.stack}")
        if done.workers:
            op.info(f"queue of {state.box_name}: {done.workers}\nNext: sweepctl status --stack {op.stack}")
        for note in done.notes:
            op.warn(f"queue of {state.box_name}: {note}")
        for name in done.removed:
            op.info(f"queue of {state.box_name}: {name} taken out")
        if done.staying:
            one = len(done.staying) == 1
            words = f"{count(len(done.staying), 'cell')} that had not started stay{'s' if one else ''} here"
            op.info(f"queue of {state.box_name}: {words} until the box that is to have them takes them over")
        if done.waiting:
            op.info(f"queue of {state.box_name}: {len(done.waiting)} cells stay with the box that was given them first")

    def read(self, op: Operation, identifier: str, state: QueueState) -> ReadAnswer[QueueInputs, QueueState] | Gone:
        """Unhealthy when cells wait and no runner is alive, so that the next `up` resumes them. Never Gone: when the
        box is gone, its delete still has to record what was lost."""
        inputs = QueueInputs.model_validate(state.model_dump(include=set(QueueInputs.model_fields)))
        box = teardown.context_of(state)
        seen, record = observe(box)
        if seen.existence is Existence.GONE:
            # Stays in the state: its delete, or its replacement, records what was lost.
            return ReadAnswer(inputs, state)
        if seen.journal is None:
            if seen.stopped and run_or_stop.rests_for_good(box, state):
                return ReadAnswer(inputs, state)
            # If the box itself can't be seen, its own read says why.
            why = "since its box can't be read" if record is None else seen.account_problem or seen.note
            return ReadAnswer(inputs, state, (f"queue of {state.box_name}: unknown, {why}",))
        alarm = could_not_stop(seen.journal, datetime.now(UTC) + timedelta(seconds=seen.skew), None)
        if alarm and not seen.stopped:
            op.warn(f"ALARM  {state.box_name} {alarm}; sweepctl tend --stack {op.stack} --once stops it")
        if any(seen.journal.waits(cell.name) for cell in state.cells):
            op.warn(f"queue of {state.box_name}: {held_words(seen.journal)}")
        if record is not None and record.phase.at_rest and state.want == "stopped":
            return ReadAnswer(inputs, state)
        workers = cache(lambda: _workers(box))  # asked once at most, and only where cells are left
        waiting = self._idle_cells(box, state, seen, workers)
        if waiting:
            wait, them = ("1 cell waits", "it") if len(waiting) == 1 else (f"{len(waiting)} cells wait", "them")
            words = f"queue of {state.box_name}: {wait} and no runner is alive; `pulumi up` resumes {them}"
            if told := workers().get("words"):
                asked = state.job.scheduler.workers if state.job.scheduler else 1
                who = "not all workers take them" if workers().get("at_work") else f"no worker takes {them}"
                words = f"queue of {state.box_name}: {wait} and {who}: {told}"
                if not workers().get("lost") and workers().get("held", 0) >= min(len(waiting), asked):
                    op.warn(words)
                    return ReadAnswer(inputs, state)  # an `up` would change nothing
                words += "; `pulumi up` sees to that"
            if state.job.by_hand:
                words = f"queue of {state.box_name}: {wait} for a session that you start by hand"
            return ReadAnswer(inputs, state, (words,))
        if self._old_secrets(box, state, seen.journal):
            words = f"queue of {state.box_name}: job.secrets changed; `pulumi up` brings them to cells that start later"
            return ReadAnswer(inputs, state, (words,))
        missing = self._unplaced_cells(box, state, seen)
        if missing:
            are, them = ("1 cell is", "it") if len(missing) == 1 else (f"{len(missing)} cells are", "them")
            words = f"queue of {state.box_name}: {are} in no queue yet; `pulumi up` brings {them} in"
            return ReadAnswer(inputs, state, (words,))
        return ReadAnswer(inputs, state)

    def _old_secrets(self, box: BoxContext, state: QueueState, journal: Journal) -> bool:
        """Whether the box holds other secrets than this environment, while cells are still to start."""
        values = secrets.values(state.job.secrets)
        if not values or all(finished(journal.cells.get(c.name), _retry(state, c.name)) for c in state.cells):
            return False
        try:
            there = _secrets_on(box.channel())
        except (PlatformError, OSError):
            return False
        return there is not None and there != values

    def _idle_cells(
        self, box: BoxContext, state: QueueState, seen: Observation, workers: Callable[[], Mapping[str, Any]]
    ) -> list[str]:
        """Cells that this queue was given and that are not finished, while no runner is alive. Empty if the box may
        end. `workers`: asks for what `_workers` returns; with none at work, each just ends, is held, or asks for what
        it never gets."""
        assert seen.journal is not None
        try:
            record = box.store.launch(state.box_name, state.generation)
        except EvidenceError:
            return []
        given = record.cells if record else {}

        def left(journal: Journal) -> list[str]:
            return [
                name
                for name in given
                if not finished(journal.cells.get(name), _retry(state, name)) and not journal.waits(name)
            ]

        found = left(seen.journal)
        if not found or (seen.runner_alive and workers().get("at_work") != 0 and not workers().get("lost")):
            return []
        if may_end(BoxEnding(box, state.approval, seen), full=False).allowed:
            return []
        try:  # the journal was read before the lock: the runner may have sealed its last cell and ended in between
            return left(read_journal(box.channel()))
        except (PlatformError, JournalDamaged, OSError):
            return found

    def _unplaced_cells(self, box: BoxContext, state: QueueState, seen: Observation) -> list[str]:
        """Cells that are to run here and that no box's queue has (a move was interrupted, or their box has ended)."""
        missing = run_or_stop.waiting_for(box, state) if state.want == "running" else []
        if missing and may_end(BoxEnding(box, state.approval, seen), full=False).allowed:
            return []
        return missing

    def delete(self, op: Operation, identifier: str, state: QueueState) -> None:
        """Stops the runner of a box that may end; removes nothing. Raises TeardownRefused, and SweepstackError if the
        runner does not end."""
        judgement = teardown.require_allowed(op, teardown.context_of(state), state)
        if judgement.seen.existence is not Existence.EXISTS or not judgement.seen.runner_alive:
            return
        platform = judgement.box.platform
        if isinstance(platform.channel(state.box, state.account), ByHand):
            op.warn(f"queue of {state.box_name}: its session may still run, and only you can end it")
            return
        op.progress("stopping the runner")
        end_runner(platform, state.box, state.account, grace=op.seconds(STOP_SECONDS))
        channel = platform.channel(state.box, state.account)
        if channel.lock_held(box_layout.RUNNER_LOCK):
            destroy = f"pulumi destroy --stack {op.stack}"
            pids = " ".join(map(str, lock_holders(channel)))
            kill = f"sweepctl ssh --stack {op.stack} {state.box_name} -- kill {pids} && " if pids else ""
            who = f" (process {pids} there, its runner or another one)" if pids else ""
            raise SweepstackError(
                f"queue of {state.box_name}: its runner still holds {box_layout.RUNNER_LOCK}{who}. "
                f"Next: {kill}{destroy}"
            )


def _at(inputs: QueueInputs) -> BoxAt:
    """The box that the queue is on."""
    return BoxAt(inputs.adapter, inputs.box, inputs.account, Evidence(inputs.evidence), moves=inputs.teardown.moves)


def _changed_cells(old: QueueInputs, new: QueueInputs, journal: Journal, stack: str) -> list[Failure]:
    """Failures for started cells whose config would change, or that would vanish from the program without
    `cells.drop`."""
    failures = []
    changed = changed_cells(journal, new.cells)
    if changed:
        failures.append(
            Failure(
                "cells",
                f"{code_mixing.first_names(changed)} started with another config, and a started cell's config can't "
                "change. Give the changed cell a new name (cells.add), and take the old one out with cells.drop",
            )
        )
    named = {cell.name for cell in new.cells} | set(new.dropped) | set(new.others)
    left_out = [cell.name for cell in old.cells if cell.name not in named and started(journal.cells.get(cell.name))]
    if left_out:
        have, them = ("has", "it") if len(left_out) == 1 else ("have", "them")
        drop = " ".join(map(shlex.quote, left_out))
        failures.append(
            Failure(
                "cells",
                f"{code_mixing.first_names(left_out)} {have} started: put {them} back into the stack file. Next, to "
                f'stop {them}: sweepctl drop {drop} --reason "…" --stack {stack}, and pulumi up',
            )
        )
    return failures


def with_sources(
    op: Operation,
    evidence: Evidence,
    old: QueueInputs | None,
    new: QueueInputs,
    journal: Journal | None,
    counted: Mapping[str, Again],
    *,
    say: bool = True,
) -> tuple[QueueInputs, list[Failure]]:
    """`new` with what its cells begin from, which it tells; and failures for those that never will."""
    if not any(cell.source for cell in new.cells):
        return new, []
    sources = part_of("longer", "sources")
    if sources is None:
        return new, [Failure("cells", f"cells that begin from others need {not_here('longer')}")]
    found = sources.begins(evidence, old, new, journal, counted)
    for line in found.words if say else ():
        op.info(f"queue of {new.box_name}: {line}")
    return new.model_copy(update={"sources": found.sources or None}), [Failure("cells", why) for why in found.never]


def order(new: QueueInputs, journal: Journal) -> str:
    """Which of the cells that wait start first by `priority`, for the preview."""
    waits = [cell for cell in new.cells if not started(journal.cells.get(cell.name)) and cell.name not in new.dropped]
    lines = list(map(json.loads, new.priority or ()))
    names = [cell.name for cell in sorted(waits, key=lambda cell: rank(lines, cell.name, cell.params))]
    return f"order: {count(len(names), 'cell')} wait{'s' * (len(names) == 1)}" + (
        f", first {code_mixing.first_names(names)}" if names else ""
    )


def _is_cleared(new: QueueInputs, seen: Observation) -> bool:
    if new.approval is None:
        return False
    state = QueueState(**new.model_dump(), launched_at=datetime.now(UTC))
    return may_end(BoxEnding(teardown.context_of(state), new.approval, seen), full=False).allowed


def _workers(box: BoxContext) -> Mapping[str, Any]:
    """What the scheduler says of the box's workers (`Scheduled.workers`); empty where there is no scheduler, or that is
    not known."""
    try:
        channel = box.channel()
        return channel.workers() if isinstance(channel, Scheduled) else {}
    except (PlatformError, OSError):
        return {}


def _secrets_on(channel: Channel) -> dict[str, str] | None:
    """The secrets on a box; None if it has none that can be read."""
    try:
        found = json.loads(channel.read(box_layout.SECRETS))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _retry(inputs: QueueInputs, cell: str) -> int:
    again = (inputs.retries or {}).get(cell)
    return again.retry if again else 0


def with_caches_kept(op: Operation, old: QueueInputs, new: QueueInputs, seen: Observation) -> QueueInputs:
    """The new inputs, with the old folders if anything has run on the box, or if that can't be told now."""
    if seen.journal is not None and seen.journal.head == GENESIS:
        return new
    before, after = old.job.network or NetworkInput(), new.job.network or NetworkInput()
    was, now = _caches(before), _caches(after)
    names = sorted(name for name in {*was, *now} - set(after.written) if was.get(name) != now.get(name))
    if not names:
        return new
    stay = ", ".join(f"{name}{f'={was[name]}' if name in was else ' (not set)'}" for name in names)
    op.info(
        f"queue of {new.box_name}: folders of downloads stay as this box began with: {stay}; "
        "overrides.<platform>.network.caches moves them"
    )

    def mixed(mine: dict[str, str], theirs: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in theirs.items() if name not in names} | {
            name: value for name, value in mine.items() if name in names
        }

    found = {"env": mixed(before.env, after.env), "folders": mixed(before.folders, after.folders)}
    network = after.model_copy(update=found)
    job = new.job.model_copy(update={"network": network if network != NetworkInput() else None})
    return new.model_copy(update={"job": job})


def _caches(network: NetworkInput) -> dict[str, str]:
    """Variable → folder. A mirror's variable is an address, and may change at any time."""
    paths = {name: value for name, value in network.env.items() if value.startswith(("/", "~/"))}
    return {**paths, **network.folders}


def launch_spec(op: Operation, state: QueueState, platform: Platform) -> LaunchSpec:
    """The queue's state, as launching takes it. Reads the values of the secrets from this environment."""
    return LaunchSpec(
        identity=state.identity,
        box=state.box_name,
        native_id=state.box,
        generation=state.generation,
        cells=state.cells,
        dropped=state.dropped,
        elsewhere=state.others,
        job=state.job,
        workdir=_workdir(op, state.job.workdir),
        own=own_files(op.session.project_root),
        artifacts=state.artifacts,
        metrics=state.metrics.model_dump(mode="json") if state.metrics else None,
        sources=state.sources or {},
        priority=state.priority or (),
        pins=state.pins or {},
        retries=state.retries or {},
        secrets=secrets.values(state.job.secrets),
        lease=on_box(state.job.lease, platform, state.box),
    )


def _workdir(op: Operation, text: str) -> Path:
    """The folder of the files that may have to be shipped. If it is missing, that is only a warning: code that is on
    the box already needs it no more."""
    try:
        return located(op.session.project_root, text, op.info)
    except ConfigError as error:
        op.warn(str(error))
        return Path(text)


def _move_in(op: Operation, box: BoxContext, state: QueueState, channel: Channel) -> None:
    """Runs before this queue is brought up. Takes out the cells that other boxes are to have, and takes over those that
    have not started there. Says what it moved, and what it could not."""
    wanted = {cell.name for cell in state.cells} - set(state.dropped)
    moved = settle(
        box.store,
        state.box_name,
        state.generation,
        channel,
        wanted,
        keep=state.dropped,
        elsewhere=state.others,
        find=partial(find, evidence=box.evidence),
    )
    if moved.left:
        op.info(f"queue of {state.box_name}: {', '.join(moved.left)} taken out")
    for other, cells in Counter(moved.taken.values()).items():
        op.info(f"queue of {state.box_name}: {cells} cells are taken over from box {other}")
    for why, cells in Counter(moved.unknown.values()).items():
        op.warn(f"queue of {state.box_name}: {cells} cells could not be taken over ({why}); `pulumi up` tries again")


def worker_failures(op: Operation, old: QueueInputs | None, new: QueueInputs) -> list[Failure]:
    """Why the cluster would not run the workers that `new` asks for; empty when it would, when nothing about them
    changed, and when it can't be asked now: then a line says so, and the update asks again."""
    asked = new.job.scheduler
    if asked is None or not new.cells or new.want != "running" or (old is not None and old.job.scheduler == asked):
        return []
    try:
        platform = load_platform(new.adapter)
        if not isinstance(platform, IsCluster):
            return []
        found = platform.refusals(asked.model_dump(mode="json", exclude_none=True))
    except (PlatformError, ConfigError) as error:
        op.warn(f"queue of {new.box_name}: whether the cluster would run its workers is not known ({error})")
        return []
    return [Failure("job", line) for line in found]
