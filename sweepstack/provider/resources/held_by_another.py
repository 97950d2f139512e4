"""Refuses to adopt a box, or its volume, that another backend's state holds.

Writes on a box who owns it, for people who find it without its state.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import backend_name, folder_here, same, taken_over
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.box_layout import tag_prefix
from sweepstack.onbox.common.errors import PlatformError, SweepstackError
from sweepstack.onbox.host.capabilities import BeginsWithQueue, HasMarket
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform
from sweepstack.operations.observe import observe
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.ownership import HELD, Owner, read_owner, sign, who


def refuse_held(op: Operation, platform: Platform, store: EvidenceStore, tag: str, on_record: BoxRecord | None) -> None:
    """Raises SweepstackError if another backend's state holds the box with this tag now, unless a person took it over
    by name.

    Copied evidence gives two sweeps one identity, and so one tag: each `up` would put its cells on the other's box, and
    could end it. `on_record`: the box that this evidence knows. A box that it does not know is not adopted either,
    while the box does not say who owns it; one of a rental platform says so from its first cells on.
    """
    found = on_record
    if found is None and store.marker.created_at.timestamp() < op.session.began:  # a newer evidence has no copy yet
        found = platform.find_by_tag(tag, platform.account())
    if found is not None:
        known = on_record is not None or _on_record(store, found)
        _refuse(op, platform, store, found, "Nothing was adopted or rented.", known=known)


def refuse_volume(op: Operation, platform: Platform, store: EvidenceStore, name: str) -> None:
    """Raises SweepstackError if another backend's state holds a box of this sweep, as `refuse_held`: its boxes mount
    the volume, and a volume can't say who owns it. Called before the volume is adopted or grown, and before its use is
    recorded."""
    for found in platform.list_tagged(tag_prefix(store.marker.identity)):
        undone = f"The volume {name} was not taken over."
        _refuse(op, platform, store, found, undone, known=_on_record(store, found))


def _refuse(
    op: Operation, platform: Platform, store: EvidenceStore, found: BoxRecord, undone: str, *, known: bool
) -> None:
    """`undone`: says what was not done, for the message; `known`: this evidence has the box on record."""
    if found.phase is Phase.GONE:
        return
    try:
        owner = read_owner(platform.channel(found.native_id, found.account))
    except (PlatformError, OSError) as error:
        if known:
            return
        raise SweepstackError(
            f"{found.native_id} on {platform.name} carries the tag of a box of this sweep, nothing on record speaks of "
            f"it, and whose it is can't be read from it: {error}. {undone} It may bill. Next: pulumi up --stack "
            f"{op.stack}    (asks again; sweepctl audit names what ends it)"
        ) from error
    if owner is None and not known:
        raise SweepstackError(
            f"{found.native_id} on {platform.name} carries the tag of a box of this sweep, nothing on record speaks of "
            f"it, and it does not say whose it is. {undone} It may bill. Next: sweepctl audit, which shows what is on "
            "it and names what ends it"
        )
    if (
        owner is None
        or not owner.backend
        or same(owner.backend, backend_name())
        or taken_over(store, owner.backend, backend_name())
    ):
        return
    seen, _ = observe(BoxAt(platform.name, found.native_id, found.account, platform=platform), files=False)
    until = owner.held_at(datetime.now(UTC), seen.journal)
    if until is None:
        return
    folder, lost = folder_here(owner.backend), shlex.quote(owner.backend)
    there = shlex.quote(f"file://{folder}") if folder is not None else lost
    raise SweepstackError(
        f"box {owner.box or found.native_id}: {found.native_id} carries this box's tag, and {owner.person} holds it "
        f"for {owner.sweep} until {until:%Y-%m-%d %H:%M} UTC, by the state in {owner.backend}. {undone} To go on "
        f"there: PULUMI_BACKEND_URL={there} sweepctl status --stack {owner.stack or op.stack}. For a sweep of your "
        f"own: another pull_to, since the identity in this evidence is in use there. Next, where that backend is lost: "
        f'sweepctl adopt --stack {op.stack} --from {lost} --reason "…" && pulumi up --stack {op.stack}'
    )


def _on_record(store: EvidenceStore, found: BoxRecord) -> bool:
    return any(birth.tag == found.tag or birth.native_id == found.native_id for birth in store.births())


def sign_new(op: Operation, platform: Platform, record: BoxRecord, birth: Birth, store: EvidenceStore) -> None:
    """Signs a box that was just made or adopted, if it is a folder of this machine or of a host. A box of a rental
    platform may let no login in for minutes, and a cluster may have no pod for it yet: those are signed when they are
    given cells. Never raises for an outage."""
    if record.phase is not Phase.RUNNING or isinstance(platform, HasMarket | BeginsWithQueue):
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
