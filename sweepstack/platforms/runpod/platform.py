"""RunPod: boxes are pods of its Secure Cloud, rented through REST v2; volumes are network volumes.

A pod's name and a variable in its environment hold its tag. Without a volume the box's files are on the pod's volume
disk, which a stop keeps and a destroy deletes; with one they are on the container disk, which a stop wipes, and the
network volume is mounted in it. Why REST v2, and the SDK for reads only: docs/adr/009. Spot pods: `offers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from sweepstack.onbox.host.capabilities import (
    Billed,
    CanStop,
    CanStopItself,
    HasBalance,
    HasBill,
    HasMarket,
    KnowsKeys,
    NamesVolumes,
    OwnStop,
    ReadsVolumes,
    RentsSpot,
)
from sweepstack.onbox.host.offers import Balance, Constraints, Offer
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, VolumeRecord, Wait
from sweepstack.platforms.common.tag_lock import hold_tag_lock
from sweepstack.platforms.runpod import create as pods
from sweepstack.platforms.runpod import offers as market
from sweepstack.platforms.runpod.api import Session, session
from sweepstack.platforms.runpod.balance import balance, billed
from sweepstack.platforms.runpod.create import channel_to, create, own_stop

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel

LOCK_SECONDS = 60.0


def connect() -> RunpodPlatform:
    """RunPod with the key that counts (`common.keys`). Reads no key and sends no request."""
    return RunpodPlatform()


class RunpodPlatform(CanStop, CanStopItself, HasMarket, HasBalance, HasBill, RentsSpot, NamesVolumes, KnowsKeys):
    """See `sweepstack.onbox.host.platform.Platform`."""

    name = "runpod"
    over_ssh = True
    lacks: ClassVar[Mapping[type, str]] = {
        ReadsVolumes: "a network volume of RunPod can't be read without a pod that mounts it: rent a box in its data "
        "center with {native_id} mounted, or read it through RunPod's S3 interface",
    }

    def account(self) -> str:
        return session().account(now=True)

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        return session(account).by_tag(tag, account)

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        return create(request, wait)

    def get(self, native_id: str, account: str) -> BoxRecord:
        return session(account).get(native_id, account)

    def destroy(self, native_id: str, account: str) -> None:
        pods.destroy(session(account), Session.checked_id(native_id), account)

    def stop(self, native_id: str, account: str) -> None:
        pods.stop(session(account), native_id, account)

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        return pods.start(session(account), native_id, account, wait)

    def key_digest(self) -> str:
        return session().owner.digest

    def recall(self, account: str, digest: str) -> None:
        at_hand = session(account)
        if digest == at_hand.owner.digest:
            at_hand.owner.recall(account)

    def change_bid(self, native_id: str, account: str, bid: float) -> None:
        pods.change_bid(session(account), native_id, account, bid)

    def own_stop(self, native_id: str) -> tuple[OwnStop, ...]:
        return own_stop(Session.checked_id(native_id))

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        return session().tagged(prefix)

    def offers(self, constraints: Constraints) -> list[Offer]:
        market.must_be_possible(constraints)
        at_hand = session()
        center = market.placed(at_hand, constraints.volume).data_center if constraints.volume else ""
        if constraints.spot:
            return [one.offer for one in market.spot_candidates(at_hand, constraints, center)]
        gpus = at_hand.gpus(market.catalog_params(constraints))
        return [one.offer for one in market.candidates(gpus, constraints, center)]

    def balance(self) -> Balance | None:
        at_hand = session()
        return balance(at_hand.http, at_hand.spends)

    def billed(self, begin: datetime, until: datetime) -> list[Billed]:
        return billed(session().http, begin, until)

    def ensure_volume(self, tag: str, name: str, *, size_gb: int | None = None, region: str = "") -> VolumeRecord:
        at_hand = session()
        with hold_tag_lock(self.name, at_hand.account(), f"volume {tag}", Wait(LOCK_SECONDS)):
            return market.ensure_volume(at_hand, tag, size_gb=size_gb, region=region)

    def quote_volume(self, size_gb: int, region: str) -> float | None:
        _, kind = market.made_in(session(), region)
        return market.month_of_volume(size_gb, kind)

    def list_volumes(self, prefix: str) -> list[VolumeRecord]:
        return market.tagged_volumes(session(), prefix)

    def delete_volume(self, native_id: str, account: str) -> None:
        market.delete_volume(session(account), native_id, account)

    def name_volume(self, native_id: str, account: str, tag: str) -> VolumeRecord:
        return market.name_volume(session(account), native_id, tag)

    def get_volume(self, native_id: str) -> VolumeRecord | None:
        return market.get_volume(session(market.split(native_id)[0]), native_id)

    def channel(self, native_id: str, account: str) -> Channel:
        return channel_to(session(account), self.get(native_id, account))
