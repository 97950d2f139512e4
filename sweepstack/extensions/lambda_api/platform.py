"""Lambda: boxes are on-demand instances, launched and terminated by its Cloud API.

A tag of the instance holds our tag. There is no stop: the local disk is erased at the end. Lambda's API does not say
whose account a key belongs to, so `account` names the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from sweepstack.extensions.lambda_api import offers as market
from sweepstack.extensions.lambda_api import power
from sweepstack.extensions.lambda_api.api import session
from sweepstack.extensions.lambda_api.create import create
from sweepstack.extensions.lambda_api.states import channel_to
from sweepstack.onbox.host.capabilities import CanStop, HasMarket, HasVolumes
from sweepstack.onbox.host.offers import Constraints, Offer
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Wait
from sweepstack.platforms.common.box_session import FRESH_SECONDS
from sweepstack.platforms.common.rate_limit import paced

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel


def connect() -> LambdaPlatform:
    """Lambda with the key that counts (`common.keys`). Reads no key and sends no request."""
    return LambdaPlatform()


class LambdaPlatform(HasMarket):
    """See `sweepstack.onbox.host.platform.Platform`."""

    name = "lambda-api"
    over_ssh = True
    lacks: ClassVar[Mapping[type, str]] = {
        CanStop: "Lambda has no stop: an instance bills until it is terminated, which erases its local disk. Pull and "
        "verify, then approve its end",
        HasVolumes: "file systems of Lambda are not made or mounted by the platform lambda-api: launch the instance by "
        "hand with its file system, and use the platform lambda with `host:`",
    }

    def account(self) -> str:
        at_hand = session()
        at_hand.boxes(max_age=paced(FRESH_SECONDS))  # proves that the key is accepted
        return at_hand.account()

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        return session(account).by_tag(tag, account)

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        return create(request, wait)

    def get(self, native_id: str, account: str) -> BoxRecord:
        return session(account).get(native_id, account)

    def destroy(self, native_id: str, account: str) -> None:
        power.destroy(session(account), native_id, account)

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        return session().tagged(prefix)

    def offers(self, constraints: Constraints) -> list[Offer]:
        market.must_be_possible(constraints)
        return market.fitting(session().types(max_age=paced(FRESH_SECONDS)), constraints)

    def channel(self, native_id: str, account: str) -> Channel:
        return channel_to(self.get(native_id, account))
