"""Queue: the cells of one box. Its diff is the point of it: cells come and go while what runs is left alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from provider.models import QueueInputs, QueueState
from provider.platforms.observe import observe
from provider.platforms.registry import load_platform
from provider.resources import ending, neighbours, waking
from provider.resources.base import Checked, Decision, Failure, Gone, Handler, Seen
from provider.resources.box import refuse_during_teardown
from provider.resources.pausing import AT_REST
from provider.session import Operation
from sweep import onbox
from sweep.errors import EvidenceError, StillCreating, SweepstackError
from sweep.evidence.store import EvidenceStore
from sweep.journal import CellProgress
from sweep.launch import FirstCellFailed, LaunchSpec, changed_cells, launch
from sweep.teardown import Existence, Observation, may_end

STOP_SECONDS = 30.0


class QueueHandler(Handler[QueueInputs, QueueState]):
    """Never removes data, and never ends a running cell without a clearance."""

    token = "sweepstack:index:Queue"
    inputs_type = QueueInputs
    state_type = QueueState
    replaces_before_delete = True
    decisions: ClassVar[dict[str, Decision]] = {
        "identity": Decision.REFUSE,
        "evidence": Decision.REFUSE,
        "stack": Decision.REFUSE,
        "adapter": Decision.REPLACE,
        "box": Decision.REPLACE,
        "box_name": Decision.REPLACE,
        "account": Decision.REPLACE,
        "generation": Decision.REPLACE,
        "roster_digest": Decision.IGNORE,  # what it means for this box is in `cells`
        "elsewhere": Decision.IGNORE,
        "teardown": Decision.UPDATE,
        "want": Decision.UPDATE,
        "job": Decision.UPDATE,
        "cells": Decision.UPDATE,
        "dropped": Decision.UPDATE,
        "artifacts": Decision.UPDATE,
        "metrics": Decision.UPDATE,
        "approval": Decision.IGNORE,  # the gate shows it
    }

    def check(self, op: Operation, old: QueueInputs | None, new: QueueInputs) -> Checked[QueueInputs]:
        """Refuses what Update would refuse, as far as it can be seen now. Preview is advisory, Update is the truth."""
        if old is None or old.box != new.box:
            return Checked(new)
        seen, _ = observe(old.adapter, old.box, old.account)
        if seen.journal is None:
            return Checked(new)
        failures = [
            Failure(
                "cells",
                f"{name} started with another config, and a started cell's config can't change. Give the changed cell "
                "a new name (cells.add), and take the old one out with cells.drop",
            )
            for name in changed_cells(seen.journal, tuple(cell.resolved() for cell in new.cells))
        ]
        named = {cell.name for cell in new.cells} | set(new.dropped) | set(new.elsewhere)
        failures += [
            Failure("cells", f'{cell.name} has started: put it back, and stop it with cells.drop: {{{cell.name}: "…"}}')
            for cell in old.cells
            if cell.name not in named and _started(seen.journal.cells.get(cell.name))
        ]
        if not failures and old.job.code != new.job.code:
            op.info(code_change(seen, old, new))
        return Checked(new, failures)

    def create(self, op: Operation, inputs: QueueInputs) -> tuple[str, QueueState]:
        state = QueueState(**inputs.model_dump(), launched_at=datetime.now(UTC))
        self._bring_up(op, state)
        return f"{inputs.box}/queue", state

    def update(self, op: Operation, identifier: str, old: QueueState, new: QueueInputs) -> QueueState:
        """Appends, takes out, resumes. With unchanged inputs it only makes sure that the runner lives."""
        state = QueueState(**new.model_dump(), launched_at=old.launched_at)
        self._bring_up(op, state)
        return state

    def _bring_up(self, op: Operation, state: QueueState) -> None:
        store = EvidenceStore.open(state.evidence)
        judgement = ending.judge(state, state.approval, full=False)
        if judgement.verdict.allowed:
            # Cleared: whatever was launched now would not be in the receipt.
            op.info(f"queue of {state.box_name}: the box is cleared, nothing more is started on it")
            return
        refuse_during_teardown(store, f"queue of {state.box_name}", op.stack)
        if not state.cells and not state.dropped:
            return
        if not waking.awake(op, state, store):
            return
        channel = load_platform(state.adapter).channel(state.box, state.account)
        neighbours.move_in(op, state, store, channel)
        try:
            done = launch(self._spec(op, state), channel, store, progress=op.progress)
        except FirstCellFailed as error:
            outputs = state.model_dump(mode="json")
            next_command = f"Next: mend it, then pulumi up --stack {op.stack}"
            raise StillCreating(f"{state.box}/queue", outputs, [f"{error}\n{next_command}"]) from error
        for name in done.removed:
            op.info(f"queue of {state.box_name}: {name} taken out")
        if done.waiting:
            op.info(f"queue of {state.box_name}: {len(done.waiting)} cells stay with the box that was given them first")

    def _spec(self, op: Operation, state: QueueState) -> LaunchSpec:
        return LaunchSpec(
            identity=state.identity,
            box=state.box_name,
            native_id=state.box,
            generation=state.generation,
            cells=tuple(cell.resolved() for cell in state.cells),
            dropped=state.dropped,
            elsewhere=frozenset(state.elsewhere),
            workdir=(op.session.project_root / Path(state.job.workdir).expanduser()).resolve(),
            include=state.job.include,
            code=state.job.code,
            run=state.job.run,
            env=state.job.env,
            slots=state.job.slots,
            artifacts=state.artifacts,
            metrics=state.metrics.model_dump(mode="json") if state.metrics else None,
        )

    def read(self, op: Operation, identifier: str, state: QueueState) -> Seen[QueueInputs, QueueState] | Gone:
        """Gone with its box; unhealthy when cells wait and no runner is alive, so that the next `up` resumes them."""
        inputs = QueueInputs.model_validate(state.model_dump(include=set(QueueInputs.model_fields)))
        seen, record = observe(state.adapter, state.box, state.account)
        if seen.existence is Existence.GONE:
            # Stays in the state: its delete, or its replacement, records what was lost.
            return Seen(inputs, state)
        if seen.journal is None:
            return Seen(inputs, state, (f"queue of {state.box_name}: unknown, {seen.account_problem or seen.note}",))
        if record is not None and record.phase in AT_REST and state.want == "stopped":
            return Seen(inputs, state)
        waiting = self._idle_cells(state, seen)
        if waiting:
            words = (
                f"queue of {state.box_name}: {len(waiting)} cells wait and no runner is alive; `pulumi up` resumes them"
            )
            return Seen(inputs, state, (words,))
        missing = self._unplaced_cells(state, seen)
        if missing:
            words = f"queue of {state.box_name}: {len(missing)} cells are in no queue yet; `pulumi up` brings them in"
            return Seen(inputs, state, (words,))
        return Seen(inputs, state)

    def _idle_cells(self, state: QueueState, seen: Observation) -> list[str]:
        """Cells that nobody works on, though this queue was asked to."""
        if seen.runner_alive or seen.journal is None:
            return []
        if may_end(ending.facts_of(state), state.approval, seen, full=False).allowed:
            return []
        try:
            store = EvidenceStore.open(state.evidence)
            record = store.launch(state.box_name, state.generation)
        except EvidenceError:
            return []
        given = record.cells if record else {}
        return [name for name in given if not _ended(seen.journal.cells.get(name))]

    def _unplaced_cells(self, state: QueueState, seen: Observation) -> list[str]:
        """Cells that are to run here and that no box's queue has (a move was cut off, or their box has ended)."""
        missing = neighbours.waiting_for(state) if state.want == "running" else []
        if missing and may_end(ending.facts_of(state), state.approval, seen, full=False).allowed:
            return []
        return missing

    def delete(self, op: Operation, identifier: str, state: QueueState) -> None:
        """Stops the runner of a box that may end; removes nothing."""
        judgement = ending.require_allowed(op, state)
        if judgement.seen.existence is not Existence.EXISTS or not judgement.seen.runner_alive:
            return
        op.progress("stopping the runner")
        channel = load_platform(state.adapter).channel(state.box, state.account)
        try:
            pids = [int(json.loads(channel.read(onbox.RUNNER_PID))["pid"])]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pids = [process.pid for process in channel.processes()]
        for pid in pids:
            channel.terminate(pid, grace=op.seconds(STOP_SECONDS))
        if channel.lock_held(onbox.RUNNER_LOCK):
            raise SweepstackError(
                f"queue of {state.box_name}: its runner still holds {onbox.RUNNER_LOCK}. "
                f"Next: pulumi destroy --stack {op.stack}"
            )


def code_change(seen: Observation, old: QueueInputs, new: QueueInputs) -> str:
    """`code a1→b2: 4 pending, 2 sealed with a1`."""
    cells = seen.journal.cells if seen.journal else {}
    sealed = sum(1 for cell in old.cells if (p := cells.get(cell.name)) is not None and p.state == "sealed")
    before, after = old.job.code.removeprefix("sha256:")[:6], new.job.code.removeprefix("sha256:")[:6]
    return (
        f"queue of {new.box_name}: code {before}→{after}: {len(new.cells) - sealed} pending take the new code, "
        f"{sealed} sealed with {before} stay as they are"
    )


def _started(progress: CellProgress | None) -> bool:
    return progress is not None and progress.state not in ("pending", "dropped")


def _ended(progress: CellProgress | None) -> bool:
    return progress is not None and (progress.state in ("sealed", "dropped") or bool(progress.final))
