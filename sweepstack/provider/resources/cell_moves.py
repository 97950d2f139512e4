"""Moves waiting cells between the queues of boxes, and finds cells that are in no queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from sweepstack.core.observation import Existence
from sweepstack.core.records import Birth
from sweepstack.evidence.lazy import Evidence
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.errors import PlatformError, SweepstackError
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.cell_moves import OtherBox, settle, unplaced
from sweepstack.operations.host_shutdown import settled
from sweepstack.operations.observe import look_up, rented_at
from sweepstack.provider.models import QueueState
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxAt, BoxContext


def find(birth: Birth, evidence: Evidence | None = None) -> OtherBox:
    """The box of a birth record, as far as it answers. Never raises for an outage. `evidence`: may have a record that
    the host was ended, which no API can tell."""
    if birth.native_id is None:
        return OtherBox(None)
    resting = False
    try:
        box = BoxAt.of(birth, evidence)
        platform = box.platform
        over = settled(box)
        if over is not None and over[0].existence is Existence.GONE:
            return OtherBox(None, gone=True)
        record = look_up(platform, birth.native_id, birth.account, rented=rented_at(birth.price_per_hour))
        phase = record.phase
        resting = phase is Phase.STOPPED  # while it is stopping, its runner may still claim cells
        if record.emptied:
            return OtherBox(None, emptied=True)
        if phase is Phase.GONE:
            return OtherBox(None, gone=True)
        if phase is Phase.UNKNOWN:
            return OtherBox(None)
        return OtherBox(platform.channel(birth.native_id, birth.account), resting)
    except PlatformError:
        return OtherBox(None, resting)


def move_in(op: Operation, box: BoxContext, state: QueueState, channel: Channel) -> None:
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
    for other, count in _by_box(moved.taken).items():
        op.info(f"queue of {state.box_name}: {count} cells are taken over from box {other}")
    for why, count in _by_box(moved.unknown).items():
        op.warn(f"queue of {state.box_name}: {count} cells could not be taken over ({why}); `pulumi up` tries again")


def waiting_for(box: BoxContext, state: QueueState) -> list[str]:
    """Cells that are to run here and that no queue has: the next `pulumi up` brings them in. Empty if the evidence
    can't be read."""
    try:
        store = box.store
    except SweepstackError:
        return []
    wanted = {cell.name for cell in state.cells} - set(state.dropped)
    again = {name: retry.manifest for name, retry in (state.retries or {}).items()}
    return unplaced(store, state.box_name, state.generation, wanted, partial(find, evidence=box.evidence), again)


def _by_box(moved: Mapping[str, str]) -> Counter[str]:
    return Counter(moved.values())
