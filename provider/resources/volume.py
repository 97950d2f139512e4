"""Volume: a tier that outlives the boxes. Never deleted here: ending the sweep leaves it and says where it is."""

from __future__ import annotations

from typing import Any, ClassVar

from provider.models import VolumeInputs, VolumeState
from provider.platforms.base import Platform, VolumeRecord
from provider.platforms.offers import Capability
from provider.platforms.registry import load_platform
from provider.resources.base import Checked, Decision, Gone, Handler, Seen
from provider.session import Operation
from sweep.errors import PlatformError, SweepstackError, Unsupported
from sweep.onbox import TAGS, volume_tag


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
        "kept": Decision.REFUSE,
        "keep_until": Decision.UPDATE,
    }

    def check(self, op: Operation, old: VolumeInputs | None, new: VolumeInputs) -> Checked[VolumeInputs]:
        return Checked(new)

    def create(self, op: Operation, inputs: VolumeInputs) -> tuple[str, VolumeState]:
        platform = load_platform(inputs.adapter)
        if inputs.kept:
            record = find_kept(platform, inputs.name)
        else:
            record = platform.ensure_volume(volume_tag(inputs.identity, inputs.name), inputs.name)
            if not record.created:
                op.info(f"volume {inputs.name} was there already ({record.location}): adopted with what is on it")
        return record.native_id, VolumeState(**inputs.model_dump(), **seen_of(record))

    def read(self, op: Operation, identifier: str, state: VolumeState) -> Seen[VolumeInputs, VolumeState] | Gone:
        inputs = VolumeInputs.model_validate(state.model_dump(include=set(VolumeInputs.model_fields)))
        try:
            record = load_platform(state.adapter).get_volume(state.native_id)
        except PlatformError as error:
            return Seen(inputs, state, (f"volume {state.name}: unknown, {error}",))
        if record is None:
            op.warn(f"volume {state.name} ({state.native_id}) is gone, with all that was on it")
            return Gone()
        return Seen(inputs, state.model_copy(update=seen_of(record)))

    def update(self, op: Operation, identifier: str, old: VolumeState, new: VolumeInputs) -> VolumeState:
        return VolumeState.model_validate({**old.model_dump(), **new.model_dump()})

    def delete(self, op: Operation, identifier: str, state: VolumeState) -> None:
        whose = "the stack that keeps it ends it" if state.kept else "It is yours to remove"
        op.warn(f"volume {state.name} survives with all that is on it: {state.location}. {whose}")


def find_kept(platform: Platform, name: str) -> VolumeRecord:
    """The volume of this name that a stack of volumes keeps in the account. Raises SweepstackError when there is none,
    or several."""
    if Capability.VOLUMES not in platform.capabilities:
        raise Unsupported(f"{platform.name} has no volumes: leave mounts out of the stack file")
    found = [record for record in platform.list_volumes(TAGS) if record.tag.endswith(volume_tag("", name)[len(TAGS) :])]
    if not found:
        raise SweepstackError(
            f"there is no volume {name} on {platform.name}. Next: make it with the stack that keeps it "
            f"(docs/stack-config.md#volumes), or correct mounts"
        )
    if len(found) > 1:
        listed = ", ".join(f"{record.native_id} ({record.tag})" for record in found)
        raise SweepstackError(f"several volumes of {platform.name} are called {name}: {listed}. Give one another name")
    return found[0]


def seen_of(record: VolumeRecord) -> dict[str, Any]:
    """What the platform says of a volume, as outputs; nothing where it says nothing."""
    facts = {
        "native_id": record.native_id,
        "location": record.location,
        "account": record.account,
        "region": record.region,
        "size_gb": record.size_gb,
        "price_per_month": record.price_per_month,
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}
