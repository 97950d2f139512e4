"""AutoDL's wallet: what is left until arrears, which force a 关机 of all instances of the account.

AutoDL counts in thousandths of a yuan; prices in a stack file are USD. Vouchers are not counted: whether they pay for
an instance of every kind is not said. What bills on the account is not known: ordinary instances are in no API.

Pro instances: which one is behind an address, what it does, and its 关机.

No other instance is in the API. Source: www.autodl.com/docs/instance_pro_api, read 2026-11. Nothing is rented, started
or released here.
"""

from __future__ import annotations

import math
from typing import Any

from sweepstack.onbox.common.errors import OutcomeUnknown, Unreachable
from sweepstack.onbox.host.capabilities import ListedHost, ListsHosts, Wallet
from sweepstack.onbox.host.offers import Balance
from sweepstack.platforms.autodl.api import TOKEN_HINT, Api, token
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.common.rate_limit import paced

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
        return instance_at(self._api, host, port)

    def power_off_host(self, id: str) -> None:
        power_off_instance(self._api, id)


OFF = frozenset({"shutdown", "stopped"})
GONE = frozenset({"removed"})
PAGE, MOST_PAGES = 50, 20
OFF_SECONDS, POLL_SECONDS = 180.0, 5.0


def instance_at(api: Api, host: str, port: int) -> ListedHost | None:
    """The Pro instance at this address; None where there is none. Asks for each instance of the account. Raises
    PlatformError, and Unreachable where a list or an instance does not read: then nothing is known."""
    found: list[ListedHost] = []
    for row in _rows(api):
        id, state = row.get("uuid"), row.get("status")
        if not isinstance(id, str) or not id or not isinstance(state, str):
            raise Unreachable("AutoDL's list of Pro instances can't be read: one has no id or no status")
        if state in GONE:
            continue
        told = api.snapshot(id)
        if (told.get("proxy_host"), told.get("ssh_port")) == (host, port):
            found.append(ListedHost(id, state, state in OFF))
    if len(found) > 1:
        raise Unreachable(f"AutoDL shows {len(found)} Pro instances at {host}:{port}")
    return found[0] if found else None


def power_off_instance(api: Api, id: str) -> None:
    """关机 of this instance; blocks until AutoDL says that it is off. Idempotent. Raises OutcomeUnknown when that is
    not so in time; another PlatformError for a refusal."""
    deadline = Deadline(paced(OFF_SECONDS))
    state = api.status(id)
    if state not in OFF:
        api.power_off(id)
    while (state := api.status(id)) not in OFF:
        if deadline.left() <= paced(POLL_SECONDS):
            raise OutcomeUnknown(f"AutoDL took the 关机 of {id}, and still says that it is {state}: it may bill")
        deadline.pause(paced(POLL_SECONDS))


def _rows(api: Api) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for page_number in range(1, MOST_PAGES + 1):
        page = api.instances(page_number, PAGE)
        listed, pages, total = page.get("list"), page.get("max_page"), page.get("result_total")
        if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed):
            raise Unreachable("AutoDL's list of Pro instances can't be read")
        rows += listed
        if not isinstance(pages, int) or page_number >= pages or not listed:
            if isinstance(total, int) and len(rows) < total:
                raise Unreachable(f"AutoDL's list of Pro instances has {len(rows)} of {total}")
            return rows
    raise Unreachable(f"AutoDL lists more than {PAGE * MOST_PAGES} Pro instances")
