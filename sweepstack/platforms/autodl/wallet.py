"""AutoDL's wallet: what is left until arrears, which force a 关机 of all instances of the account.

AutoDL counts in thousandths of a yuan; prices in a stack file are USD. Vouchers are not counted: whether they pay for
an instance of every kind is not said. What bills on the account is not known: ordinary instances are in no API.

Of Pro instances it is told which one is behind an address, what it does, and they can be shut down (关机). No other
instance is in the API. Nothing is rented, started or released here.

Sources of the calls: www.autodl.com/docs/common_api and instance_pro_api, read 2026-11. The key is a developer token,
which stands in the header as it is. Every answer is `{code, msg, data}` and `Success` the only code of a success,
whatever the HTTP status is. The vendor names no variable for the token; its users call it AUTODL_TOKEN. No
list of its codes is published: these were seen by its users (2026-09).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.errors import NotAuthorized, OutcomeUnknown, PlatformError, RequestRefused, Unreachable
from sweepstack.onbox.host.capabilities import ListedHost, ListsHosts, Wallet
from sweepstack.onbox.host.offers import Balance
from sweepstack.platforms.autodl import KEY
from sweepstack.platforms.common import keys
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpAnswer, HttpClient
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.common.rate_limit import paced

KEY_HINT = f"{KEY.variable}, from AutoDL's console: account, settings, developer token (开发者Token)"
BASE_VARIABLE = "AUTODL_API_BASE_URL"
BASE_URL = "https://api.autodl.com"
BALANCE = "/api/v1/dev/wallet/balance"
PRO = "/api/v1/dev/instance/pro"
CNY_PER_USD = 7.5
"""More yuan than a dollar has cost in the last fifteen years, so that a balance counts as no more than it is worth."""
PER_YUAN = 1000.0

_RIGHTS = ("PermissionDenied", "AuthorizeFailed", "Unauthorized")


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


def refused(http: HttpClient, answer: HttpAnswer, asked: str) -> PlatformError:
    """The error for an answer that is no success, whatever its HTTP status. An unknown code is a refusal with its
    words."""
    said = answer.data if isinstance(answer.data, dict) else {}
    code, text = http.clean(str(said.get("code") or "")), http.clean(str(said.get("msg") or ""))
    words = f"{code} {text}".strip() or f"HTTP {answer.status} without a reason"
    if code == "TORealName":
        return NotAuthorized(f"AutoDL refuses {asked}: the account has not proved its name (实名认证): {words}")
    if code in _RIGHTS or answer.status in (401, 403):
        return NotAuthorized(f"AutoDL refuses {asked}: {words}. Check AUTODL_TOKEN")
    if code in ("InternalError", "Success") or answer.status >= 500:
        return Unreachable(f"AutoDL gave no usable answer when asked for {asked}: {words}")
    return RequestRefused(f"AutoDL refuses {asked}: {words}")


def token() -> str:
    """The developer token; "" where none is set. Raises NotAuthorized for what can't be one."""
    found = keys.find(KEY)
    if not found.isascii() or not found.isprintable() or " " in found:
        raise NotAuthorized(f"the token for AutoDL is not one: it holds blanks or other special signs ({KEY_HINT})")
    if found:
        keys.learn(KEY, found, "autodl")
    return found


class Api:
    """The calls with one token."""

    def __init__(self, key: str) -> None:
        base = os.environ.get(BASE_VARIABLE, "").strip() or BASE_URL
        self.http = HttpClient("AutoDL", base, key, key_hint=keys.hint(KEY, key, KEY_HINT), scheme="")

    def wallet(self) -> Mapping[str, Any]:
        """The balance. Reads only, though it is a POST. Raises PlatformError; Unreachable for an answer that does not
        read, as all others do."""
        return self._object(self.http.query(BALANCE), "the balance")

    def instances(self, page: int, size: int) -> Mapping[str, Any]:
        """One page of the list of Pro instances; pages count from 1."""
        answer = self.http.query(f"{PRO}/list", {"page_index": page, "page_size": size})
        return self._object(answer, "the list of Pro instances")

    def snapshot(self, id: str) -> Mapping[str, Any]:
        """What is known of one Pro instance. It has its root password: never show it."""
        return self._object(self._get("snapshot", id), f"the Pro instance {id}")

    def status(self, id: str) -> str:
        """Its state, in AutoDL's word for it."""
        answer = self._get("status", id)
        data = self._data(answer, f"the state of {id}")
        if not isinstance(data, str) or not data:
            raise refused(self.http, answer, f"the state of {id}")
        return data

    def power_off(self, id: str) -> None:
        """关机. A return says that AutoDL took it, and not that the instance is off."""
        self._data(self.http.write("POST", f"{PRO}/power_off", {"instance_uuid": id}), f"the 关机 of {id}")

    def _get(self, what: str, id: str) -> HttpAnswer:
        """A GET with its id as a query and in a body: the page says the latter, and a gateway was seen to drop it."""
        named = {"instance_uuid": id}
        return self.http.query(f"{PRO}/{what}", named, method="GET", params=named)

    def _object(self, answer: HttpAnswer, asked: str) -> Mapping[str, Any]:
        data = self._data(answer, asked)
        if not isinstance(data, dict):
            raise refused(self.http, answer, asked)
        return data

    def _data(self, answer: HttpAnswer, asked: str) -> Any:
        said = answer.data if isinstance(answer.data, dict) else {}
        if not answer.ok or said.get("code") != "Success":
            raise refused(self.http, answer, asked)
        return said.get("data")
