"""AutoDL's wallet: what is left until arrears, which force a 关机 of all instances of the account.

AutoDL counts in thousandths of a yuan; prices in a stack file are USD. Vouchers are not counted: whether they pay for
an instance of every kind is not said. What bills on the account is not known: ordinary instances are in no API.
"""

from __future__ import annotations

import math

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.capabilities import ListedHost, ListsHosts, Wallet
from sweepstack.onbox.host.offers import Balance
from sweepstack.platforms.autodl import instances
from sweepstack.platforms.autodl.api import TOKEN_HINT, Api, token
from sweepstack.platforms.common.json_values import number

CNY_PER_USD = 7.5
"""More yuan than a dollar has cost in the last fifteen years, so that a balance counts as no more than it is worth."""
PER_YUAN = 1000.0
KEY_HINT = TOKEN_HINT


def connect() -> AutodlWallet | None:
    """The wallet; None where no token is set. Sends nothing. Raises NotAuthorized for a token that can't be one."""
    key = token()
    return AutodlWallet(Api(key)) if key else None


class AutodlWallet(Wallet, ListsHosts):
    """See `Wallet` and `ListsHosts`."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def balance(self) -> Balance:
        """What is left, without what is frozen. May be below zero: the account is in arrears. Raises PlatformError,
        and Unreachable where it is not told."""
        told = self._api.wallet()
        left, frozen = number(told.get("assets"), least=-math.inf), number(told.get("blocked_asset", 0))
        if left is None or frozen is None:
            raise Unreachable("AutoDL does not tell the balance")
        yuan, vouchers = (left - frozen) / PER_YUAN, (number(told.get("voucher_balance")) or 0.0) / PER_YUAN
        said = f"¥{yuan:.2f} at {CNY_PER_USD:g} to the dollar"
        if vouchers:
            said += f"; ¥{vouchers:.2f} in vouchers is not counted"
        return Balance(yuan / CNY_PER_USD, prepaid=None, said=said)

    def host_at(self, host: str, port: int) -> ListedHost | None:
        return instances.host_at(self._api, host, port)

    def power_off_host(self, id: str) -> None:
        instances.power_off(self._api, id)
