"""The account's balance, from REST v2 (since autumn 2026), else from the older query interface."""

from __future__ import annotations

import math
from typing import Any

from sweepstack.onbox.common.errors import NotAuthorized, Unreachable
from sweepstack.onbox.host.offers import Balance
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.runpod import keys
from sweepstack.platforms.runpod.api import Session
from sweepstack.platforms.runpod.legacy_query import myself

PATH = "/v2/billing/balance"
"""Taken from the name of its documentation page. That page could not be read, so a 404 here proves nothing."""


def balance(session: Session) -> Balance | None:
    """The account's balance (USD), None when the key may not see it. Reads only. Raises Unreachable."""
    answer = session.http.read(PATH)
    if answer.ok and isinstance(answer.data, dict) and (usd := _usd(answer.data.get("balanceAmount"))) is not None:
        mode = answer.data.get("billingMode")
        return Balance(usd, prepaid=mode == "PREPAID" if mode in ("PREPAID", "POSTPAID") else None)
    if answer.status == 403:
        return None
    return _by_query()


def _by_query() -> Balance | None:
    try:
        found = myself("balance", "clientBalance spendLimit", keys.api_key())
    except NotAuthorized:
        return None
    usd = _usd(found.get("clientBalance"))
    if usd is None:
        raise Unreachable("RunPod does not tell the balance")
    return Balance(usd, spend_limit_per_hour=number(found.get("spendLimit")))


def _usd(value: Any) -> float | None:
    return number(value, least=-math.inf)  # negative: the account owes money
