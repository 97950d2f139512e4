"""What the simulated vast.ai answers when it does not do what was asked: status, body, and the vendor's own words.

Source: vast.ai's API reference, errors; where it leaves a text or a status open, a setting of the world picks one.
"""

from __future__ import annotations

from typing import Any

from tests.simulators.core import Refusal, Reply


class Strange(Exception):
    """What no client of this API sends (unknown field, wrong type): recorded as a violation, answered with 400."""


def refusal(status: int, error: str | None, msg: str, **more: Any) -> Refusal:
    """The vendor's envelope. `error=None`: one of the endpoints that only send `msg`."""
    return Refusal(Reply(status, {"success": False, **({"error": error} if error else {}), "msg": msg, **more}))


def no_such_ask(ask: int) -> Refusal:
    text = f"error 404/3603: no_such_ask Instance type by id {ask} is not available."
    return refusal(404, "invalid_args", text, ask_id=ask)


def ask_gone(ask: int) -> Refusal:
    text = f"error 410/3907: no_such_ask Instance type {ask} is no longer available."
    return refusal(410, "no_such_ask", text, ask_id=ask)


def invalid_args(why: str, *, error: str = "invalid_args", **more: Any) -> Refusal:
    return refusal(400, error, f"error 400/3467: Invalid args: {why}", **more)


def lacks_credit() -> Refusal:
    return refusal(400, "insufficient_credit", "Your account lacks credit; see the billing page.")


def no_such_instance(number: int) -> Refusal:
    return refusal(404, "no_such_instance", f"Instance {number} not found.")


def no_such_bid() -> Refusal:
    return refusal(404, "no_such_instance", "Instance with that ID does not exist.")


def too_often(threshold: float, style: int, retry_after: float | None, *, destroy: bool = False) -> Reply:
    """The 429 in one of its wordings: plain text with and without the threshold, JSON, and the destroy's own."""
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    words = f"API requests too frequent endpoint threshold={threshold}"
    if destroy:
        return Reply(429, {"success": False, "error": "rate_limit_exceeded", "msg": words}, headers)
    if style % 3 == 2:
        return Reply(429, {"detail": words}, headers)
    text = "API requests too frequent" + (f": endpoint threshold={threshold}" if style % 3 else "")
    return Reply(429, text.encode(), headers, content_type="text/plain; charset=utf-8")


def quota_exceeded() -> Refusal:
    """The daily search quota, until UTC midnight. The SDK does not retry it."""
    return refusal(429, "search_quota_exceeded", "Daily search quota exceeded.")
