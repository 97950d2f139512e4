"""All calls to AutoDL's developer API, and its refusals as our errors. It decides nothing.

Sources: www.autodl.com/docs/common_api and instance_pro_api, read 2026-11. The key is a developer token, which stands
in the header as it is. Every answer is `{code, msg, data}` and `Success` the only code of a success, whatever the HTTP
status is. The vendor names no variable for the token; its users call it AUTODL_TOKEN. No
list of its codes is published: these were seen by its users (2026-09).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, RequestRefused, Unreachable
from sweepstack.platforms.common import redact
from sweepstack.platforms.common.http_client import Answer, HttpClient

_RIGHTS = ("PermissionDenied", "AuthorizeFailed", "Unauthorized")


def refused(http: HttpClient, answer: Answer, asked: str) -> PlatformError:
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
        return Unreachable(f"AutoDL gave no usable answer when asked for {asked}: {words}. Try again")
    return RequestRefused(f"AutoDL refuses {asked}: {words}")


TOKEN_VARIABLE = "AUTODL_TOKEN"
TOKEN_HINT = f"{TOKEN_VARIABLE}, from AutoDL's console: account, settings, developer token (开发者Token)"
BASE_VARIABLE = "AUTODL_API_BASE_URL"
BASE_URL = "https://api.autodl.com"
BALANCE = "/api/v1/dev/wallet/balance"
PRO = "/api/v1/dev/instance/pro"


def token() -> str:
    """The developer token; "" where none is set. Raises NotAuthorized for what can't be one."""
    found = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not found.isascii() or not found.isprintable() or " " in found:
        raise NotAuthorized(f"the token for AutoDL is not one: it holds blanks or other special signs ({TOKEN_HINT})")
    if found:
        redact.learn({TOKEN_VARIABLE: found}, of="autodl")
    return found


class Api:
    """The calls with one token."""

    def __init__(self, key: str) -> None:
        base = os.environ.get(BASE_VARIABLE, "").strip() or BASE_URL
        self.http = HttpClient("AutoDL", base, key, key_hint=TOKEN_HINT, scheme="")

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

    def _get(self, what: str, id: str) -> Answer:
        """A GET with its id as a query and in a body: the page says the latter, and a gateway was seen to drop it."""
        named = {"instance_uuid": id}
        return self.http.query(f"{PRO}/{what}", named, method="GET", params=named)

    def _object(self, answer: Answer, asked: str) -> Mapping[str, Any]:
        data = self._data(answer, asked)
        if not isinstance(data, dict):
            raise refused(self.http, answer, asked)
        return data

    def _data(self, answer: Answer, asked: str) -> Any:
        said = answer.data if isinstance(answer.data, dict) else {}
        if not answer.ok or said.get("code") != "Success":
            raise refused(self.http, answer, asked)
        return said.get("data")
