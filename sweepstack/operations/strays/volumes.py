"""Finds the volumes that outlived a sweep's boxes, by its records and the platforms."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from sweepstack.billing.stray import Stray
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceError, PlatformError, SweepstackError
from sweepstack.onbox.host.capabilities import HasVolumes
from sweepstack.onbox.host.platform import Platform
from sweepstack.platforms.registry import has_address, load_platform, need, volume_channel
from sweepstack.status.engine.state import StackState

ASK_SECONDS = 10.0
COUNT_SECONDS = 0.5
"""The most seconds for counting the files of one volume: a status waits for it."""
PLACE = "place-"
"""Ids with this prefix are a tier of the host itself, and no volume of ours."""


def leftovers(state: StackState, store: EvidenceStore | None, births: Iterable[Birth]) -> tuple[Stray, ...]:
    """The volumes of this sweep that no box uses and no state has; empty while the sweep has boxes.

    Blocks for seconds at most; reads only. A platform that does not answer becomes a note. Single hosts are not asked:
    a host that was given back would delay every later command.
    """
    if store is None or state.boxes:
        return ()
    known, births = {volume.native_id for volume in state.volumes}, list(births)
    # A box whose record is open still uses its volumes, even if the state was lost.
    known |= {native_id for birth in births if birth.ended_at is None for native_id in birth.mounts.values()}
    mounted = {(birth.platform, native_id) for birth in births for native_id in birth.mounts.values()}
    left = sorted(one for one in mounted if one[1] not in known and not one[1].startswith(PLACE))
    identity = store.marker.identity
    found = in_parallel({one: partial(_leftover, *one, identity, store) for one in left}, ASK_SECONDS)
    late = "it did not say in time whether it is still there"
    all_of_them = (found.get(one, Stray("volume", *one, name=one[1], why=late)) for one in left)
    return tuple(one for one in all_of_them if one is not None)


def _leftover(adapter: str, native_id: str, identity: str, store: EvidenceStore) -> Stray | None:
    """The volume as a leftover; None if it is gone, belongs to another sweep, or a stack of volumes keeps it."""
    if has_address(adapter):
        if _was_ended(store, native_id):
            return None
        return Stray("volume", adapter, native_id, name=native_id, why="left on its host, which was not asked")
    try:
        platform = load_platform(adapter)
        record = need(platform, HasVolumes).get_volume(native_id)
    except SweepstackError as error:
        return Stray(
            "volume", adapter, native_id, name=native_id, why=f"whether it is still there is not known: {error}"
        )
    ours = box_layout.volume_of(record.tag) if record is not None else None
    if record is None or ours is None or ours[0] != identity:
        return None
    used, more = used_bytes(platform, native_id) if record.size_gb is None else (None, False)
    where, price = record.region or record.location, record.price_per_month
    return Stray(
        *("volume", adapter, native_id, record.tag),
        name=ours[1],
        price_per_month=price,
        why=record.lost,
        where=where,
        size_gb=record.size_gb,
        used_bytes=used,
        used_more=more,
    )


def used_bytes(platform: Platform, native_id: str, seconds: float = COUNT_SECONDS) -> tuple[int | None, bool]:
    """The bytes on a volume, and whether there are more because not all could be counted.

    None: the volume can't be read without a box.
    """
    try:
        listing = volume_channel(platform, native_id, box_layout.DURABLE).walk([box_layout.DURABLE], seconds=seconds)
    except (PlatformError, OSError):
        return None, False
    return sum(size for _, size, _ in listing.files), bool(listing.problem)


def _was_ended(store: EvidenceStore, native_id: str) -> bool:
    from sweepstack.core.local_decisions import Decision

    try:
        return any(decision.native_id == native_id for decision in store.records("decisions", Decision))
    except EvidenceError:
        return False
