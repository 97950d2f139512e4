"""AutoDL's refusals as our errors.

No list of its codes is published: these were seen by its users (2026-09).
"""

from __future__ import annotations

from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, RequestRefused, Unreachable
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
