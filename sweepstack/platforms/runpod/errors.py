"""RunPod's refusals → our errors. By status first: its texts change, and one status means several things."""

from __future__ import annotations

import re

from sweepstack.onbox.common.errors import InsufficientFunds, NoCapacity, NotAuthorized, PlatformError, RequestRefused
from sweepstack.platforms.common.http_client import Answer, HttpClient

_NO_CAPACITY = re.compile(
    r"no longer any instances available"
    r"|no instances (?:are )?(?:currently )?available"
    r"|not enough free gpus"
    r"|does not have the resources to deploy",
    re.IGNORECASE,
)
_NO_FUNDS = re.compile(r"insufficient (?:balance|funds|credit)|balance (?:is )?too low|spend(?:ing)?[ -]?limit", re.I)


def refused(http: HttpClient, answer: Answer, asked: str) -> PlatformError:
    """The error for an answer that is not 2xx to something that `asked` names. Of 404 and 409 the caller knows more.

    400 is several things on RunPod: no room, no money, a wrong request; its text tells which, where it is known.
    """
    text = answer.text or "no reason given"
    if answer.status in (400, 403, 409) and _NO_FUNDS.search(text):
        return InsufficientFunds(f"RunPod: {text}. Top up the account, or raise its limit, for {asked}")
    if answer.status in (400, 409) and _NO_CAPACITY.search(text):
        return NoCapacity(f"RunPod has no room for {asked}: {text}")
    if answer.status == 403:
        return NotAuthorized(
            f"RunPod forbids {asked}: {text}. Either the key lacks the scope (a read-only or restricted one does), or "
            f"the account may not use this pool"
        )
    return http.refusal(answer, asked) if answer.status != 404 else RequestRefused(f"RunPod: {asked}: 404 {text}")
