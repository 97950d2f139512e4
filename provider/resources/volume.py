"""Volume: a tier that outlives the boxes. Never deleted here: ending the sweep leaves it and says where it is."""

from __future__ import annotations

from typing import ClassVar

from provider.models import VolumeInputs, VolumeState
from provider.platforms.registry import load_platform
from provider.resources.base import Checked, Decision, Gone, Handler, Seen
from provider.session import Operation
from sweep.errors import PlatformError
from sweep.onbox import volume_tag


class VolumeHandler(Handler[VolumeInputs, VolumeState]):
    """Found again by its tag, so a second create adopts it with all that is on it."""

    token = "sweepstack:index:Volume"
    inputs_type = VolumeInputs
    state_type = VolumeState
    decisions: ClassVar[dict[str, Decision]] = {
        "identity": Decision.REFUSE,
        "evidence": Decision.REFUSE,
        "adapter": Decision.REFUSE,
        "name": Decision.REFUSE,
    }

    def check(self, op: Operation, old: VolumeInputs | None, new: VolumeInputs) -> Checked[VolumeInputs]:
        return Checked(new)

    def create(self, op: Operation, inputs: VolumeInputs) -> tuple[str, VolumeState]:
        record = load_platform(inputs.adapter).ensure_volume(volume_tag(inputs.identity, inputs.name), inputs.name)
        if not record.created:
            op.info(f"volume {inputs.name} was there already ({record.location}): adopted with what is on it")
        state = VolumeState(**inputs.model_dump(), native_id=record.native_id, location=record.location)
        return record.native_id, state

    def read(self, op: Operation, identifier: str, state: VolumeState) -> Seen[VolumeInputs, VolumeState] | Gone:
        inputs = VolumeInputs.model_validate(state.model_dump(include=set(VolumeInputs.model_fields)))
        try:
            record = load_platform(state.adapter).get_volume(state.native_id)
        except PlatformError as error:
            return Seen(inputs, state, (f"volume {state.name}: unknown, {error}",))
        if record is None:
            op.warn(f"volume {state.name} ({state.native_id}) is gone, with all that was on it")
            return Gone()
        return Seen(inputs, state)

    def update(self, op: Operation, identifier: str, old: VolumeState, new: VolumeInputs) -> VolumeState:
        return VolumeState.model_validate({**old.model_dump(), **new.model_dump()})

    def delete(self, op: Operation, identifier: str, state: VolumeState) -> None:
        op.warn(f"volume {state.name} survives with all that is on it: {state.location}. It is yours to remove")
