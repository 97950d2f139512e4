"""Paperspace: boxes are its machines, made, stopped, started and deleted by its API.

A machine's name is our tag. Its one disk outlives a stop, and bills on until the machine is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from sweepstack.extensions.paperspace_api import power
from sweepstack.extensions.paperspace_api.api import session
from sweepstack.extensions.paperspace_api.create import create
from sweepstack.extensions.paperspace_api.states import channel_to
from sweepstack.onbox.host.capabilities import CanStop, HasBalance, HasMarket, HasVolumes
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Wait

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel


def connect() -> PaperspacePlatform:
    """Paperspace with the key that counts (`common.keys`). Reads no key and sends no request."""
    return PaperspacePlatform()


class PaperspacePlatform(CanStop):
    """See `sweepstack.onbox.host.platform.Platform`."""

    name = "paperspace-api"
    over_ssh = True
    lacks: ClassVar[Mapping[type, str]] = {
        HasMarket: "Paperspace's API has no prices and no list of machine types: the stack file names the card "
        "(resources.gpu.name) and the price (overrides.paperspace-api.price_per_hour)",
        HasBalance: "Paperspace's API does not tell what the account has left: look at its console",
        HasVolumes: "Paperspace has no volumes that outlive a machine and that its API could mount: pull the results",
    }

    def account(self) -> str:
        return session().account()

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        return session(account).by_tag(tag, account)

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        return create(request, wait)

    def get(self, native_id: str, account: str) -> BoxRecord:
        return session(account).get(native_id, account)

    def stop(self, native_id: str, account: str) -> None:
        power.stop(session(account), native_id, account)

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        return power.start(session(account), native_id, account, wait)

    def destroy(self, native_id: str, account: str) -> None:
        power.destroy(session(account), native_id, account)

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        return session().tagged(prefix)

    def channel(self, native_id: str, account: str) -> Channel:
        return channel_to(self.get(native_id, account))
