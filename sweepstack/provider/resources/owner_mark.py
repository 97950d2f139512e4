"""Writes on a box who owns it, for people who find it without its state."""

from __future__ import annotations

from datetime import UTC, datetime

from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform
from sweepstack.provider.backend import backend_name
from sweepstack.provider.session import Operation
from sweepstack.teardown.ownership import HELD, Owner, sign, who


def sign_new(op: Operation, platform: Platform, record: BoxRecord, birth: Birth, store: EvidenceStore) -> None:
    """Signs a box that was just made or adopted, if it is a folder of this machine or of a host. A box of a rental
    platform may let no login in for minutes: it is signed when it is given cells. Never raises for an outage."""
    if record.phase is not Phase.RUNNING or isinstance(platform, HasMarket):
        return
    try:
        channel = platform.channel(record.native_id, record.account)
    except PlatformError:
        return
    sign_box(op, channel, store, box=birth.box, generation=birth.generation)


def sign_box(op: Operation, channel: Channel, store: EvidenceStore, *, box: str, generation: int) -> None:
    """Writes the owner on the box, for `HELD` from now. Never raises: a box that names no owner counts as an unknown
    owner's, which locks it more, not less."""
    owner = Owner(
        person=who(),
        identity=store.marker.identity,
        native_id=channel.native_id,
        box=box,
        generation=generation,
        project=store.marker.project,
        stack=store.marker.stack,
        backend=backend_name(),
        evidence=store.objects.uri,
        held_until=datetime.now(UTC) + HELD,
    )
    try:
        sign(channel, owner)
    except (PlatformError, OSError) as error:
        op.info(f"box {box}: whose it is could not be written on it: {error}")
