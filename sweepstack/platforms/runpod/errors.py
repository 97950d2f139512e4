"""Turns RunPod's refusals into our errors, by status, and by text where a status is ambiguous."""

from __future__ import annotations

import re

from sweepstack.onbox.common.errors import InsufficientFunds, NoCapacity, NotAuthorized, PlatformError, RequestRefused
from sweepstack.platforms.common.http_client import Answer, HttpClient

NO_CAPACITY = re.compile(
    r"no longer any instances available"
    r"|no instances (?:are )?(?:currently )?available"
    r"|not enough free gpus"
    r"|does not have the resources to deploy",
    re.IGNORECASE,
)
NO_FUNDS = re.compile(r"insufficient (?:balance|funds|credit)|balance (?:is )?too low|spend(?:ing)?[ -]?limit", re.I)


def refused(http: HttpClient, answer: Answer, asked: str) -> PlatformError:
    """The error for an answer that is not 2xx. `asked`: what was asked for, for the message. For 404 and 409 the caller
    may know a better error.

    400 means several things on RunPod: no capacity, no money, a wrong request. Its text says which, if we know the
    text.
    """
    text = answer.text or "no reason given"
    if answer.status in (400, 403, 409) and NO_FUNDS.search(text):
        return InsufficientFunds(f"RunPod: {text}. Top up the account, or raise its limit, for {asked}")
    if answer.status in (400, 409) and NO_CAPACITY.search(text):
        return NoCapacity(f"RunPod has no room for {asked}: {text}")
    if answer.status == 403:
        return NotAuthorized(
            f"RunPod forbids {asked}: {text}. Either the key lacks the scope (a read-only or restricted one does), or "
            f"the account may not use this pool"
        )
    return http.refusal(answer, asked) if answer.status != 404 else RequestRefused(f"RunPod: {asked}: 404 {text}")
