"""vast.ai: other people's machines, rented by contract through the official SDK.

A box is an instance; its tag is the instance's label, its native id the contract's number. Facts, each with the month
in which it was checked, are in profiles/vastai.md; how the API behaves is described in the modules that handle it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.host.capabilities import (
    Billed,
    CanStop,
    CanStopItself,
    HasBalance,
    HasBill,
    HasMarket,
    HasVolumes,
    LetsIn,
    OwnStop,
    ReadsVolumes,
    RentsSpot,
)
from sweepstack.onbox.host.offers import Balance, Constraints, Offer
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, VolumeRecord, Wait
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.tag_lock import hold_tag_lock
from sweepstack.platforms.vastai import power, volumes
from sweepstack.platforms.vastai.balance import balance, billed
from sweepstack.platforms.vastai.create import Renting
from sweepstack.platforms.vastai.offers import market_at
from sweepstack.platforms.vastai.session import READ_AGE_SECONDS, Session, box_number
from sweepstack.platforms.vastai.states import channel_to, closed

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel


def connect() -> VastPlatform:
    """vast.ai with the user's key. Reads no key, sends no request and does not import the SDK yet."""
    return VastPlatform()


class VastPlatform(CanStop, CanStopItself, HasMarket, HasBalance, HasBill, RentsSpot, HasVolumes, LetsIn):
    """See `sweepstack.onbox.host.platform.Platform`."""

    name = "vastai"
    over_ssh = True
    lacks: ClassVar[Mapping[type, str]] = {
        ReadsVolumes: "the volume {native_id} lies on {region} of vast.ai and can only be read from a box there. Next: "
        "rent one on that machine with the volume mounted, and pull from it"
    }

    def account(self) -> str:
        """The user number of the key's account."""
        return Session.open().account

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        session = _reading(account)
        # An older answer does not prove that there is none.
        return session.found(tag, age=paced(READ_AGE_SECONDS)) or session.found(tag)

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        if wait.cancelled.is_set():
            raise PlatformError(f"cancelled before {request.name} was looked for: this command has rented nothing")
        with _changing(deadline=Deadline.of(wait)) as session:
            return Renting(session, request, wait).run()

    def get(self, native_id: str, account: str) -> BoxRecord:
        session = _reading(account)
        row = session.row(box_number(native_id), age=paced(READ_AGE_SECONDS))
        if row is not None:
            return session.record(row)
        return BoxRecord(native_id, "", session.account, Phase.GONE, None, None, "vast.ai")

    def destroy(self, native_id: str, account: str) -> None:
        with _changing(account) as session:
            power.destroy(session, box_number(native_id))

    def stop(self, native_id: str, account: str) -> None:
        with _changing(account) as session:
            power.stop(session, box_number(native_id))

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        with _changing(account, Deadline.of(wait)) as session:
            return power.start(session, box_number(native_id), wait)

    def own_stop(self, native_id: str) -> tuple[OwnStop, ...]:
        return power.own_stop(box_number(native_id))

    def let_in(self, native_id: str, account: str, public_key: str) -> None:
        """See `sweepstack.onbox.host.capabilities.LetsIn`."""
        session, identifier = Session.open(account=account), box_number(native_id)
        if not session.client.holds_key(identifier, public_key, session.deadline):
            session.client.attach_key(identifier, public_key, session.deadline)

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        """With the empty prefix also instances without a label: they belong to the account, though not to a sweep."""
        session = _reading()
        return [session.record(row) for row in session.prefixed(prefix, age=paced(READ_AGE_SECONDS))]

    def offers(self, constraints: Constraints) -> list[Offer]:
        session = _reading()
        machine = None
        if constraints.volume:
            machine = _machine(session, constraints.volume)
        market = market_at(session.client.source)
        asks = market.asks(session.client, constraints, session.deadline, bid=constraints.bid, machine=machine)
        return [ask.offer for ask in asks]

    def balance(self) -> Balance | None:
        return balance(_reading())

    def billed(self, begin: datetime, until: datetime) -> list[Billed]:
        return billed(_reading(), begin, until)

    def change_bid(self, native_id: str, account: str, bid: float) -> None:
        with _changing(account) as session:
            power.change_bid(session, box_number(native_id), bid)

    def ensure_volume(self, tag: str, name: str, *, size_gb: int | None = None, region: str = "") -> VolumeRecord:
        """`region`: `machine:<number>`, the machine on which the volume is made."""
        session = Session.open()
        with hold_tag_lock(self.name, session.account, f"volume {tag}", Wait(session.deadline.left())):
            return volumes.ensure(session, tag, size_gb, region)

    def quote_volume(self, size_gb: int, region: str) -> float | None:
        session = _reading()
        return volumes.price_of(volumes.asks(session, size_gb, region)[0], size_gb)

    def list_volumes(self, prefix: str) -> list[VolumeRecord]:
        session = _reading()
        found = volumes.listed(session)
        return [record for _, record in found.values() if record.tag.startswith(prefix)]

    def get_volume(self, native_id: str) -> VolumeRecord | None:
        session = Session.open()
        contract = volumes.contract_of(native_id, session.account)
        found = volumes.listed(session).get(contract)
        return found[1] if found else None

    def delete_volume(self, native_id: str, account: str) -> None:
        session = Session.open(account=account)
        volumes.delete(session, native_id)

    def channel(self, native_id: str, account: str) -> Channel:
        session, identifier = _reading(account), box_number(native_id)
        row = session.row(identifier, age=paced(READ_AGE_SECONDS))
        if row is None:
            raise Unreachable(f"instance {identifier} can't be reached: it is gone")
        return channel_to(row, session.record(row), lambda: self._closed(native_id, account))

    def _closed(self, native_id: str, account: str) -> str:
        """Why nothing may be started on the box now; "" when it may, or when vast.ai can't be asked."""
        try:
            record = self.get(native_id, account)
        except PlatformError:
            return ""
        return closed(record)


def _machine(session: Session, volume: str) -> int:
    contract = volumes.contract_of(volume, session.account)
    found = volumes.listed(session).get(contract)
    machine = found[0].get("machine_id") if found else None
    if not isinstance(machine, int):
        raise PlatformError(f"the volume {volume} is not there any more, or vast.ai does not say where it is")
    return machine


def _reading(account: str = "") -> Session:
    """For an operation that only reads: an answer of a moment ago may say whose key it is."""
    return Session.open(account=account, age=paced(READ_AGE_SECONDS))


@contextlib.contextmanager
def _changing(account: str = "", deadline: Deadline | None = None) -> Iterator[Session]:
    """For an operation that changes something: drops the shared answers after it, so that no later read gets an old
    one."""
    session = Session.open(deadline, account=account)
    try:
        yield session
    finally:
        session.client.state.forget()
