"""A queue among the other boxes' queues: taking over what has not started there, and noticing what nobody has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from provider.models import QueueState
from provider.platforms.base import Phase
from provider.platforms.registry import load_platform
from provider.session import Operation
from sweep.channel.base import Channel
from sweep.errors import PlatformError, SweepstackError
from sweep.evidence.store import EvidenceStore
from sweep.model import Birth
from sweep.moving import Neighbour, settle, unplaced


def find(birth: Birth) -> Neighbour:
    """The box of a birth record, as far as it answers. Never raises for an outage."""
    if birth.native_id is None:
        return Neighbour(None)
    resting = False
    try:
        platform = load_platform(birth.platform)
        phase = platform.get(birth.native_id, birth.account).phase
        resting = phase is Phase.STOPPED  # on its way there, its runner may still claim cells
        if phase in (Phase.GONE, Phase.UNKNOWN):
            return Neighbour(None)
        return Neighbour(platform.channel(birth.native_id, birth.account), resting)
    except PlatformError:
        return Neighbour(None, resting)


def move_in(op: Operation, state: QueueState, store: EvidenceStore, channel: Channel) -> None:
    """Before this queue is brought up: lets go and takes over. Says what changed hands, and what could not."""
    wanted = {cell.name for cell in state.cells} - set(state.dropped)
    moved = settle(
        store,
        state.box_name,
        state.generation,
        channel,
        wanted,
        keep=state.dropped,
        elsewhere=state.others,
        find=find,
    )
    if moved.left:
        op.info(f"queue of {state.box_name}: {', '.join(moved.left)} taken out")
    for box, count in _by_box(moved.taken).items():
        op.info(f"queue of {state.box_name}: {count} cells that had not started are taken over from box {box}")
    for why, count in _by_box(moved.unknown).items():
        op.warn(f"queue of {state.box_name}: {count} cells could not be taken over ({why}); `pulumi up` tries again")


def waiting_for(state: QueueState) -> list[str]:
    """Cells that are to run here and that no queue has: the next `pulumi up` brings them in."""
    try:
        store = EvidenceStore.open(state.evidence)
    except SweepstackError:
        return []
    wanted = {cell.name for cell in state.cells} - set(state.dropped)
    again = {name: retry.manifest for name, retry in (state.retries or {}).items()}
    return unplaced(store, state.box_name, state.generation, wanted, find, again)


def _by_box(moved: Mapping[str, str]) -> Counter[str]:
    return Counter(moved.values())
