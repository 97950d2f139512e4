"""All calls to AutoDL's developer API. It decides nothing.

Source: www.autodl.com/docs/common_api, read 2026-11. The key is a developer token, which stands in the header as it is.
Every answer is `{code, msg, data}` and `Success` the only code of a success, whatever the HTTP status is. The vendor
names no variable for the token; its users call it AUTODL_TOKEN.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.errors import NotAuthorized
from sweepstack.platforms.autodl.errors import refused
from sweepstack.platforms.common import redact
from sweepstack.platforms.common.http_client import HttpClient

TOKEN_VARIABLE = "AUTODL_TOKEN"
TOKEN_HINT = f"{TOKEN_VARIABLE}, from AutoDL's console: account, settings, developer token (开发者Token)"
BASE_VARIABLE = "AUTODL_API_BASE_URL"
BASE_URL = "https://api.autodl.com"
BALANCE = "/api/v1/dev/wallet/balance"


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
        """`data` of the balance. Reads only, though it is a POST. Raises PlatformError; Unreachable for an answer that
        does not read."""
        answer = self.http.query(BALANCE)
        said = answer.data if isinstance(answer.data, dict) else {}
        data = said.get("data")
        if not answer.ok or said.get("code") != "Success" or not isinstance(data, dict):
            raise refused(self.http, answer, "the balance")
        return data
