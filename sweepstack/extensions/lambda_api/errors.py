"""Turns Lambda's refusals into our errors, by their `error.code`.

Its texts may change, its codes do not (2026-11).
"""

from __future__ import annotations

from sweepstack.onbox.common.errors import InsufficientFunds, NoCapacity, PlatformError, RequestRefused
from sweepstack.platforms.common.http_client import Answer, HttpClient

NO_SUCH_THING = "global/object-does-not-exist"
_NO_CAPACITY = "instance-operations/launch/insufficient-capacity"
_QUOTA = "global/quota-exceeded"
_CANT_PAY = ("global/account-inactive", "global/invalid-address")


def code_of(answer: Answer) -> str:
    """The `error.code` of an answer; "" when it has none."""
    error = answer.data.get("error") if isinstance(answer.data, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else ""


def refused(http: HttpClient, answer: Answer, asked: str) -> PlatformError:
    """The error for an answer that is not 2xx. `asked`: what was asked for, for the message."""
    code, text = code_of(answer), answer.text or "no reason given"
    if code == _NO_CAPACITY:
        return NoCapacity(f"Lambda has no room for {asked}: {text}")
    if code in _CANT_PAY:
        return InsufficientFunds(
            f"Lambda does not rent to this account ({code}: {text}). Next: see to its payment method and its billing "
            f"address in Lambda's console. Asked for: {asked}"
        )
    if code == _QUOTA:
        return RequestRefused(
            f"Lambda refuses {asked}, since it would be more than the account may have ({text}). Next: end what is not "
            "needed, or ask Lambda's support for a higher quota"
        )
    error = http.refusal(answer, asked)
    return type(error)(f"{error} ({code})") if code else error
