"""Volume: storage that outlives the boxes.

A sweep never deletes one. The stack that keeps it does, after a check of its own.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sweepstack.billing.stray import end_command, takes_words
from sweepstack.core.paths import docs_page
from sweepstack.core.resources import VolumeInputs, VolumeState
from sweepstack.evidence.lazy import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import volume_tag
from sweepstack.onbox.common.errors import PlatformError, SweepstackError
from sweepstack.onbox.host.capabilities import HasVolumes
from sweepstack.onbox.host.platform import Platform, VolumeRecord
from sweepstack.operations.volumes.end_check import find_kept
from sweepstack.platforms.registry import load_platform, need
from sweepstack.provider.resources import held_by_another, policy, volume_lifecycle
from sweepstack.provider.resources.base import Checked, Decision, Failure, Gone, Handler, Seen
from sweepstack.provider.session import Operation


class VolumeHandler(Handler[VolumeInputs, VolumeState]):
    """Finds a volume by its tag, so that a second create adopts it with all that is on it."""

    token = "sweepstack:index:Volume"
    inputs_type = VolumeInputs
    state_type = VolumeState
    decisions: ClassVar[dict[str, Decision]] = {
        "identity": Decision.REFUSE,
        "evidence": Decision.REFUSE,
        "adapter": Decision.REFUSE,
        "name": Decision.REFUSE,
        "kept": Decision.REFUSE,
        "keep_until": Decision.UPDATE,
        "guarded": Decision.REFUSE,
        "size_gb": Decision.UPDATE,  # it grows; Check refuses to shrink it
        "region": Decision.REFUSE,
        "price_per_gb_month": Decision.UPDATE,
        "least_bytes": Decision.IGNORE,  # it changes with every cell, and a volume does not
        "approval": Decision.UPDATE,
        "clearance": Decision.UPDATE,
        "policy": Decision.UPDATE,
        "live": Decision.IGNORE,
    }
    refusals: ClassVar[dict[str, str]] = {
        "adapter": "a volume stays on its platform: make another, under a new name, and copy what you need",
        "region": "a volume stays where it was made: make another, under a new name, and copy what you need",
        "name": "a volume is found by its name: another name is another volume",
        "guarded": f"a volume that a stack keeps is ended by its check alone ({docs_page('volumes.md')})",
        "kept": "whether this stack keeps the volume or only mounts it may not change: it would be another volume",
    }

    def check(self, op: Operation, old: VolumeInputs | None, new: VolumeInputs) -> Checked[VolumeInputs]:
        """Says what it costs, and writes `clearance`. Refuses to shrink it."""
        binds = policy.bound(op, Evidence(new.evidence), old.policy if old is not None else None, new.identity)
        new = new.model_copy(update={"policy": binds.copy})
        failures = policy.volume_problems(binds, new.model_dump(mode="json")) if old is None else []
        if new.guarded:
            if new.clearance is not None:
                new = new.model_copy(update={"clearance": None})
            failures += volume_lifecycle.size_problems(old, new)
            new = new.model_copy(update={"clearance": volume_lifecycle.clearance_of(op, old, new)})
        return Checked(new, [*failures, *volume_lifecycle.say(op, new.model_dump(), new=old is None)])

    def check_early(self, op: Operation, old: dict[str, Any], new: dict[str, Any]) -> list[Failure]:
        binds = policy.bound(op, None, None) if not old else policy.Bound()
        return [*policy.volume_problems(binds, new), *volume_lifecycle.say(op, new, new=not old)]

    def create(self, op: Operation, inputs: VolumeInputs) -> tuple[str, VolumeState]:
        platform = load_platform(inputs.adapter)
        if not inputs.guarded:  # the stack that keeps it has no boxes
            held_by_another.refuse_volume(op, platform, EvidenceStore.open(inputs.evidence), inputs.name)
        if inputs.kept:
            record = find_kept(platform, inputs.name)
            volume_lifecycle.register(op, inputs, record)
        else:
            policy.require_volume(op, Evidence(inputs.evidence), inputs)
            record = self._ensured(platform, inputs)
            if not record.created:
                op.info(f"volume {inputs.name} was there already ({record.location}): adopted with what is on it")
            volume_lifecycle.require_as_wanted(inputs, record)
        return record.native_id, VolumeState(**inputs.model_dump(), **seen_of(record, inputs))

    def _ensured(self, platform: Platform, inputs: VolumeInputs) -> VolumeRecord:
        tag, able = volume_tag(inputs.identity, inputs.name), volume_lifecycle.with_volumes(platform)
        return able.ensure_volume(tag, inputs.name, size_gb=inputs.size_gb, region=inputs.region or "")

    def read(self, op: Operation, identifier: str, state: VolumeState) -> Seen[VolumeInputs, VolumeState] | Gone:
        inputs = VolumeInputs.model_validate(state.model_dump(include=set(VolumeInputs.model_fields)))
        try:
            record = need(load_platform(state.adapter), HasVolumes).get_volume(state.native_id)
        except PlatformError as error:
            return Seen(inputs, state, (f"volume {state.name}: unknown, {error}",))
        if record is None:
            op.warn(f"volume {state.name} ({state.native_id}) is gone, with all that was on it")
            return Gone()
        now = state.model_copy(update=seen_of(record, inputs))
        if state.guarded:
            inputs = inputs.model_copy(
                update={"live": volume_lifecycle.live_facts(op, volume_lifecycle.context_of(now), now)}
            )
        return Seen(inputs, now)

    def update(self, op: Operation, identifier: str, old: VolumeState, new: VolumeInputs) -> VolumeState:
        """Grows the volume if more is wanted, which costs more. Raises SweepstackError if the platform did not grow
        it."""
        state = VolumeState.model_validate({**old.model_dump(), **new.model_dump()})
        if new.kept:
            volume_lifecycle.register(op, new, find_kept(load_platform(new.adapter), new.name))
        if new.guarded and new.size_gb is not None and new.size_gb > (old.actual_size_gb or 0):
            record = self._ensured(load_platform(new.adapter), new)
            if record.native_id != old.native_id:
                raise SweepstackError(
                    f"volume {new.name}: its tag leads to {record.native_id}, and the state has {old.native_id}: "
                    f"nothing was changed. Next: sweepctl audit"
                )
            volume_lifecycle.require_as_wanted(new, record)
            state = state.model_copy(update=seen_of(record, new))
        return state.model_copy(update={"price_per_month": volume_lifecycle.price(new, state)})

    def delete(self, op: Operation, identifier: str, state: VolumeState) -> None:
        if state.guarded:
            volume_lifecycle.end(op, volume_lifecycle.context_of(state), state)
            return
        if state.kept:
            where = f"{state.location}. The stack that keeps it ends it"
            op.info(f"volume {state.name} survives with all that is on it: {where}")
            return
        cost = takes_words(state.price_per_month, state.actual_size_gb, None)
        end = end_command(state.adapter, state.native_id)
        said = f"volume {state.name} survives with all that is on it ({cost}): {state.location}. To end it: {end}"
        (op.info if state.price_per_month == 0 else op.warn)(said)


def seen_of(record: VolumeRecord, inputs: VolumeInputs) -> dict[str, Any]:
    """What the platform says of a volume, as outputs. What it does not say is left out."""
    facts = {
        "native_id": record.native_id,
        "location": record.location,
        "account": record.account,
        "actual_region": record.region,
        "actual_size_gb": record.size_gb,
        "price_per_month": volume_lifecycle.month(
            record.price_per_month, inputs.price_per_gb_month, record.size_gb or inputs.size_gb
        ),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}
