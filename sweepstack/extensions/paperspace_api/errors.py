"""Turns Paperspace's refusals into our errors.

An error has a `code` of the HTTP status alone, and a `message`, which is all that tells a full region from a mistake.
"""

from __future__ import annotations

import re

from sweepstack.onbox.common.errors import NoCapacity, PlatformError, RequestRefused
from sweepstack.platforms.common.http_client import Answer, HttpClient

NO_SUCH_THING = "NOT_FOUND"
_NO_CAPACITY = re.compile(r"capacity|out of stock|not (currently )?available|unavailable|no available", re.IGNORECASE)
_LIMIT = re.compile(r"\blimit|quota|maximum", re.IGNORECASE)


def code_of(answer: Answer) -> str:
    """The `code` of an answer; "" when it has none."""
    code = answer.data.get("code") if isinstance(answer.data, dict) else None
    return code if isinstance(code, str) else ""


def refused(http: HttpClient, answer: Answer, asked: str) -> PlatformError:
    """The error for an answer that is not 2xx. `asked`: what was asked for, for the message."""
    if answer.status in (400, 409, 412) and _NO_CAPACITY.search(answer.text):
        return NoCapacity(f"Paperspace has no room for {asked}: {answer.text}")
    if answer.status == 403 and _LIMIT.search(answer.text):
        return RequestRefused(
            f"Paperspace refuses {asked}, since it would be more than the team may have ({answer.text}). Next: end "
            "what is not needed, or ask Paperspace's support for a higher limit"
        )
    error, code = http.refusal(answer, asked), code_of(answer)
    return type(error)(f"{error} ({code})") if code else error
