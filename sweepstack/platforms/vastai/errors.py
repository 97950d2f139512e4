"""Turns vast.ai's refusals into our errors: the body decides, since the status alone says too little.

As of 2026-11: 404 means a bad key, an offer that was taken, an instance that is not there, or a gateway's own error;
200 comes with `success: false`; and an error may carry `new_contract`, an instance that was made all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    Unreachable,
)
from sweepstack.platforms.common.redact import redact

KEY_HELP = (
    "the key is looked for in VAST_API_KEY, then in $XDG_CONFIG_HOME/vastai/vast_api_key (that is, "
    "~/.config/vastai/vast_api_key), then in ~/.vast_api_key; keys are made at https://cloud.vast.ai/manage-keys/"
)
TOP_UP = "top up at https://cloud.vast.ai/billing/, then run the command again"
_THRESHOLD = re.compile(r"threshold=(\d+(?:\.\d+)?)")
_TOO_FREQUENT = re.compile(r"^api requests too frequent", re.IGNORECASE)
_BAD_KEY = re.compile(r"invalid user key|requires login", re.IGNORECASE)
_NO_FUNDS = re.compile(r"lacks credit|insufficient credit|insufficient balance", re.IGNORECASE)
_QUEUED = re.compile(r"state change queued|resources are currently unavailable", re.IGNORECASE)
_LONGEST = 300


class NoSuchThing(RequestRefused):
    """vast.ai says that it has no instance, or no volume, with that id. One answer alone proves nothing: see
    `Session.row`."""


class StartQueued(NoCapacity):
    """The GPU is taken, and vast.ai queued the start: it would start and bill at some later time unless it is
    stopped."""


class RentedAnyway(PlatformError):
    """vast.ai refused the request with `why`, and made instance `contract` all the same."""

    def __init__(self, contract: int, why: PlatformError) -> None:
        super().__init__(f"{why}; instance {contract} was made all the same")
        self.contract = contract
        self.why = why


@dataclass(frozen=True)
class Refusal:
    """One answer that is no success. `spoken`: the body was vast.ai's JSON, not a gateway's page. `contract`: the
    instance that was made all the same. `retry_after`: seconds."""

    status: int
    error: str = ""
    text: str = ""
    spoken: bool = False
    contract: int | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, status: int, body: str, headers: Mapping[str, str]) -> Refusal:
        """The refusal in an HTTP answer."""
        try:
            data = json.loads(body)
        except ValueError:
            data = None
        retry_after = _number(headers.get("Retry-After"))
        if isinstance(data, dict):
            return cls._of_json(status, data, retry_after)
        text = body.strip()
        if "<" in text[:200]:
            text = "a page instead of an answer"
        return cls(status, text=_short(text), retry_after=retry_after)

    @classmethod
    def _of_json(cls, status: int, data: Mapping[str, Any], retry_after: float | None = None) -> Refusal:
        error = data.get("error")
        texts = [data.get(name) for name in ("msg", "message", "detail")]
        text = next((str(item) for item in texts if item), "")
        contract = data.get("new_contract")
        spoken = bool(text or error) or "success" in data
        valid = isinstance(contract, int) and not isinstance(contract, bool) and contract > 0
        return cls(status, _short(str(error or "")), _short(text), spoken, contract if valid else None, retry_after)

    @classmethod
    def in_success(cls, data: Any) -> Refusal | None:
        """The refusal in an answer with status 200; None when it is a success."""
        if isinstance(data, dict) and (data.get("success") is False or (data.get("error") and "success" not in data)):
            return cls._of_json(200, data)
        return None

    def __str__(self) -> str:
        told = ": ".join(part for part in (self.error, self.text) if part) or "no reason given"
        return redact(f"{told} (status {self.status})")


def error_for(refusal: Refusal, what: str, *, writes: bool) -> PlatformError:
    """The error that a refusal means. `what`: the request, in words ("rent offer 7"). `writes`: it changes something.

    An answer of an unknown kind is Unreachable, and OutcomeUnknown after a write.
    """
    if refusal.contract is not None:
        bare = Refusal(refusal.status, refusal.error, refusal.text, refusal.spoken)
        return RentedAnyway(refusal.contract, error_for(bare, what, writes=writes))
    said = f"vast.ai does not {what}: {refusal}"
    for look in (_cannot_pay, _too_fast, _not_served, _not_authorized, _cannot_have, _wrong):
        found = look(refusal, said)
        if found is not None:
            return _lost(what, str(refusal)) if isinstance(found, _Lost) and writes else found
    if writes:
        return _lost(what, str(refusal))
    return Unreachable(f"vast.ai was asked to {what}, and its answer can't be read: {refusal}; nothing is known")


def lost_answer(what: str, why: str, *, writes: bool) -> PlatformError:
    """The error for a request without a readable answer: OutcomeUnknown for a write, else Unreachable."""
    if writes:
        return _lost(what, why)
    return Unreachable(f"vast.ai did not answer when asked to {what}: {redact(why)}")


def _lost(what: str, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"vast.ai was asked to {what}, and whether it did is not known: {redact(why)}. Nothing was sent twice"
    )


class _Lost(Unreachable):
    """A failure of the server; after a write it becomes OutcomeUnknown."""


def _cannot_pay(refusal: Refusal, said: str) -> PlatformError | None:
    """InsufficientFunds when the account spends too fast. By the error's name: the status that comes with it is not
    known."""
    if refusal.error == "spend_rate_limit":
        return InsufficientFunds(f"{said}. The account may not spend faster yet; {TOP_UP}, or rent less at a time")
    return None


def _too_fast(refusal: Refusal, said: str) -> PlatformError | None:
    if refusal.error == "search_quota_exceeded":
        return RateLimited(f"{said}; the day's searches are used up until midnight UTC", _until_midnight())
    threshold = _THRESHOLD.search(refusal.text)
    if refusal.status == 429 or refusal.error == "rate_limit_exceeded" or _TOO_FREQUENT.match(refusal.text):
        after = refusal.retry_after
        if after is None and threshold:
            after = float(threshold[1])
        return RateLimited(f"{said}; nothing was carried out", after)
    return None


def _not_served(refusal: Refusal, said: str) -> PlatformError | None:
    return _Lost(f"{said}; nothing is known") if refusal.status >= 500 or refusal.status == 408 else None


def _not_authorized(refusal: Refusal, said: str) -> PlatformError | None:
    if refusal.status == 401 or refusal.error == "auth_error" or _BAD_KEY.search(refusal.text):
        return NotAuthorized(f"{said}. The key is not one that it knows: {KEY_HELP}")
    if refusal.status == 403 and refusal.error != "invalid_args":
        return NotAuthorized(
            f"{said}. The key lacks a right: instance_read, instance_write, user_read and misc are needed; {KEY_HELP}"
        )
    return None


def _cannot_have(refusal: Refusal, said: str) -> PlatformError | None:
    told = f"{refusal.error} {refusal.text}"
    if "no_such_ask" in told:
        return NoCapacity(f"{said}: another customer has it")
    if refusal.error == "missing_billing" or _NO_FUNDS.search(told):
        return InsufficientFunds(f"{said}; {TOP_UP}")
    if _QUEUED.search(refusal.text):
        return StartQueued(f"{said}: another customer has its GPU now")
    return None


def _wrong(refusal: Refusal, said: str) -> PlatformError | None:
    if refusal.spoken and refusal.error in ("no_such_instance", "no_such_volume", "not_found"):
        return NoSuchThing(said)
    if refusal.status == 404 and not refusal.error:
        return None  # a gateway says the same
    if refusal.spoken and refusal.status < 500:
        return RequestRefused(f"{said}{_hint(refusal)}")
    if refusal.status in (400, 405, 411, 413, 415, 422):
        return RequestRefused(f"{said}. An account without credit is answered like this, too: {TOP_UP}")
    return None


def _hint(refusal: Refusal) -> str:
    if "own machines" in refusal.text:
        return ". Next: use the key of an account that is no host"
    if refusal.error == "no_ssh_key_for_vm":
        return ". Next: add a public key at https://cloud.vast.ai/manage-keys/"
    return ""


def _until_midnight() -> float:
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - now).total_seconds()


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < 1e7 else None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
