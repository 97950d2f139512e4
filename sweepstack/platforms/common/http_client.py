"""The HTTP client of the adapters: one API key, retries of reads, and no repeated write.

A read is retried when the network or the platform fails. A write is sent once; only after a 429, or a 403 that is a
rate limit, it is sent again, since the platform then did nothing. When the answer to a write is lost, cut off, or not
from the platform (5xx, a proxy's page), it raises `OutcomeUnknown`: the caller looks for the result before it does
anything else. The key goes into the header only: never into a URL, a log, an error or a chained exception. Adapters
that use an SDK call `retried`. Refusals become our errors by a table of each adapter (`Refusals`).
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    Retired,
    Unreachable,
)
from sweepstack.platforms.common import redact
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver
from sweepstack.platforms.common.rate_limit import RateLimiter, paced

if TYPE_CHECKING:
    import ssl

    import httpx


T = TypeVar("T")

USER_AGENT = "sweepstack/0.1 (+infrastructure as code for sweeps)"
BODY_BYTES = 32 << 20
"""A longer answer counts as unusable."""
TEXT_CHARS = 400
REQUEST_SECONDS = 30.0
"""Limit for one request, from its first byte to the last byte of its answer."""
CALL_SECONDS = 90.0
"""Limit for one call with all retries and rate-limit waits, when the caller gives no deadline."""
TIMEOUT_VARIABLE = "SWEEPSTACK_API_TIMEOUT"
"""Environment variable: the most seconds to wait for one answer."""
ATTEMPTS = 4
"""How often a read is sent, at most, when no answer comes."""
LIMITED_ATTEMPTS = 10
"""How often a request is sent, at most, when each answer is a 429."""
BACKOFF_SECONDS = 0.5
MOST_BACKOFF_SECONDS = 60.0


class NotRetryable(Unreachable):
    """There is no usable answer, and a retry would get the same."""


def retried(
    send: Callable[[], T], deadline: Deadline, what: str, *, limiter: RateLimiter | None = None, writes: bool = False
) -> T:
    """The result of `send`, which sends one request; each attempt waits for `limiter` first. A read that raises
    Unreachable is retried. A read or write that raises RateLimited was not carried out, and is retried after a pause.

    Blocks until `deadline` at the latest. Raises the last error of `send` when there is no retry; DeadlineOver
    (QuotaUsedUp) when the rate limit allows no attempt in time.
    """
    lost = limited = 0
    failure: Unreachable
    while True:
        if limiter is not None:
            limiter.take(deadline, what)
        try:
            return send()
        except RateLimited as error:
            limited += 1
            after = error.retry_after or (limiter is not None and limiter.interval()) or BACKOFF_SECONDS
            if limited >= LIMITED_ATTEMPTS or after > MOST_BACKOFF_SECONDS:
                raise
            failure, pause = error, min(after * 1.5 ** (limited - 1), MOST_BACKOFF_SECONDS)
        except Unreachable as error:
            lost += 1
            if writes or lost >= ATTEMPTS or isinstance(error, NotRetryable):
                raise
            failure, pause = error, BACKOFF_SECONDS * 2 ** (lost - 1)
        try:
            deadline.pause(paced(pause))
            continue
        except DeadlineOver:
            pass
        raise failure


def answer_seconds(deadline: Deadline, usual: float = REQUEST_SECONDS) -> float:
    """Seconds to wait for one answer: at least one, since a write that is cut off leaves its outcome unknown.

    Raises RequestRefused when the user's SWEEPSTACK_API_TIMEOUT is no number.
    """
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        usual = min(usual, float(text)) if text else usual
    except ValueError:
        raise RequestRefused(f"{TIMEOUT_VARIABLE} is {text!r}, and it is a number of seconds: `unset` it") from None
    return max(1.0, min(usual, deadline.left())) if usual >= 1 else max(0.05, usual)


@dataclass(frozen=True)
class HttpAnswer:
    """An answer of the platform itself: 2xx, or a 4xx with a JSON body. `data`: the parsed body, None without one.

    `text`: what the platform refused, for people: one line, of limited length, without secrets.
    """

    status: int
    data: Any = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the platform carried the request out (2xx)."""
        return 200 <= self.status < 300


class HttpClient:
    """One API with one key. Threads may share it; it holds no connection open between calls.

    `service`: its name in messages. `key_hint`: where a person puts the key ("RUN_KEY, or ~/.run/key"), for messages.
    `scheme`: what stands before the key in its header.
    Raises RequestRefused when `base_url` would send the key in the clear.
    """

    def __init__(
        self,
        service: str,
        base_url: str,
        key: str,
        *,
        key_hint: str,
        limiter: RateLimiter | None = None,
        headers: Mapping[str, str] | None = None,
        scheme: str = "Bearer ",
    ) -> None:
        parts = urlsplit(base_url)
        plain = parts.scheme == "http" and (not key or _is_loopback(parts.hostname or ""))
        if parts.scheme != "https" and not plain:
            raise RequestRefused(f"the address of {service} must begin with https:// (http:// only on this machine)")
        if parts.username or parts.password or parts.query:
            raise RequestRefused(f"the address of {service} must hold no user, password or query")
        if key:
            redact.learn({key_hint.split()[0].rstrip(","): key})
        self.service = service
        self.base_url = base_url.rstrip("/")
        self.limiter = limiter or RateLimiter()
        self._key = key
        self._scheme = scheme
        self._key_hint = key_hint
        self._headers = {"User-Agent": USER_AGENT, "Accept": "application/json", **(headers or {})}

    def read(
        self, path: str, params: Mapping[str, str] | None = None, *, deadline: Deadline | None = None
    ) -> HttpAnswer:
        """GET. Retried after network errors, 5xx, unreadable bodies and 429, until `deadline` (else `CALL_SECONDS`).

        Blocks. Raises Unreachable (RateLimited for a 429), NotAuthorized (401), Retired (410); other refusals are
        returned.
        """
        return self._sent("GET", path, params, None, deadline)

    def query(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        method: str = "POST",
        params: Mapping[str, str] | None = None,
        deadline: Deadline | None = None,
    ) -> HttpAnswer:
        """A request with a body that only reads: sent again as `read` is, and raises the same."""
        return self._sent(method, path, params, body, deadline, writes=False)

    def write(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, deadline: Deadline | None = None
    ) -> HttpAnswer:
        """POST, PUT, PATCH or DELETE, carried out once at most. A cancel ends the waiting, never a request under way.

        Blocks. Raises OutcomeUnknown when the platform may have carried it out; Unreachable (RateLimited) when it
        certainly did not; NotAuthorized (401), InsufficientFunds (402), Retired (410); other refusals are returned.
        """
        return self._sent(method, path, None, body, deadline)

    def _sent(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        deadline: Deadline | None,
        *,
        writes: bool | None = None,
    ) -> HttpAnswer:
        until = deadline or Deadline(CALL_SECONDS)
        changes = method != "GET" if writes is None else writes
        return retried(
            lambda: self._once(method, path, params, body, answer_seconds(until), changes),
            until,
            f"ask {self.service} ({method} {path})",
            limiter=self.limiter,
            writes=changes,
        )

    def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        seconds: float,
        writes: bool,
    ) -> HttpAnswer:
        import httpx

        asked = f"{method} {path}"
        headers = dict(self._headers)
        if self._key:
            headers["Authorization"] = f"{self._scheme}{self._key}"
        end = time.monotonic() + seconds
        timeout = httpx.Timeout(seconds, connect=min(seconds, 10.0))
        failure: str
        unsent = False
        try:
            with (
                httpx.Client(timeout=timeout, verify=_trust(self.base_url)) as client,
                client.stream(method, self.base_url + path, params=params, json=body, headers=headers) as response,
            ):
                raw = _bounded(response, end)
            return self._judged(asked, writes, response, raw)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            failure, unsent = type(error).__name__, True
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            failure = type(error).__name__
        # Raised outside of the handler: a chained exception would carry the request with its headers and the key.
        if writes and not unsent:
            raise OutcomeUnknown(self._lost(asked, f"the connection broke ({failure})"))
        raise Unreachable(f"{self.service} does not answer ({asked}: {failure}); nothing was changed") from None

    def _judged(self, asked: str, writes: bool, response: httpx.Response, raw: bytes | None) -> HttpAnswer:
        """The Answer of a complete reply, or the error that it means. `raw`: the body, None when it was too long."""
        status = response.status_code
        data, is_json = _parsed(response, raw)
        text = self.clean(_words(data) if is_json else "")
        if status == 429 or (status == 403 and _says_limited(response.headers)):
            after = _seconds(response.headers.get("retry-after", ""))
            if after is None and response.headers.get("x-ratelimit-remaining") == "0":
                after = _until(response.headers.get("x-ratelimit-reset", ""))
            if after is not None and after <= MOST_BACKOFF_SECONDS:
                self.limiter.hold(paced(after))
            raise RateLimited(f"{self.service}: too many requests ({asked}); nothing was done. {text}".strip(), after)
        if 200 <= status < 300 and (is_json or raw == b""):
            if is_json:
                policy, left = (response.headers.get(name, "") for name in ("ratelimit-policy", "ratelimit"))
                self.limiter.learn(policy, left)
            return HttpAnswer(status, data, text, dict(response.headers))
        if status == 410:  # whatever its body: how a retired interface words it is documented nowhere
            raise Retired(f"{self.service} has retired this API ({asked}: {text or '410'}): update sweepstack")
        if not 400 <= status < 500 or not is_json or status == 408:
            what = "" if is_json else ", with a body that is not the API's"
            if writes:
                raise OutcomeUnknown(self._lost(asked, f"it answered {status}{what}. {text}".strip()))
            again = status >= 500 or status == 408 or 200 <= status < 300
            kind = Unreachable if again and raw is not None else NotRetryable
            raise kind(f"{self.service} gave no usable answer to {asked} ({status}{what}); nothing is known. {text}")
        if status == 401:
            raise NotAuthorized(f"{self.service} does not accept the key ({asked}: 401 {text}): check {self._key_hint}")
        if status == 402:
            raise InsufficientFunds(f"{self.service}: the account can't pay for it: {text or '402'}. Top it up")
        return HttpAnswer(status, data, text, dict(response.headers))

    def refusal(self, answer: HttpAnswer, asked: str) -> PlatformError:
        """The error for a refusal that the caller does not know better."""
        if answer.status == 403:
            return NotAuthorized(
                f"{self.service} forbids {asked} (403 {answer.text}): the key lacks the right; check {self._key_hint}"
            )
        return RequestRefused(f"{self.service} refuses {asked}: {answer.status} {answer.text}".rstrip())

    def clean(self, text: str) -> str:
        """A text of the platform, made fit to be shown: one line, of limited length, without secrets."""
        if self._key:
            text = text.replace(self._key, "[key]")
        text = " ".join("".join(c if c.isprintable() else " " for c in redact.redact(text)).split())
        return text if len(text) <= TEXT_CHARS else text[:TEXT_CHARS] + "…"

    def _lost(self, asked: str, why: str) -> str:
        return f"{self.service}: the answer to {asked} is lost, so it may have been carried out: {why}"


def _bounded(response: httpx.Response, end: float) -> bytes | None:
    """The body; None when it is too long. Raises TimeoutError when it is not complete at `end` (monotonic)."""
    raw = bytearray()
    for part in response.iter_bytes():
        raw += part
        if len(raw) > BODY_BYTES:
            return None
        if time.monotonic() > end:
            raise TimeoutError
    return bytes(raw)


def _parsed(response: httpx.Response, raw: bytes | None) -> tuple[Any, bool]:
    """The parsed body, and whether it is JSON at all: a proxy's page is not, whatever its status."""
    if raw and "json" in response.headers.get("content-type", "").lower():
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(raw), True
    return None, False


def _words(data: Any) -> str:
    """The text of an error body, in any of the forms that the platforms use."""
    if not isinstance(data, dict):
        return ""
    if isinstance(data.get("error"), dict):
        data = data["error"]
    found = [data[key] for key in ("detail", "message", "error", "msg", "title") if isinstance(data.get(key), str)][:1]
    errors = data.get("errors")
    if isinstance(errors, list):
        found += [str(e.get("message", e)) if isinstance(e, dict) else str(e) for e in errors[:5]]
    return "; ".join(dict.fromkeys(word for word in found if word))


def _seconds(retry_after: str) -> float | None:
    """Seconds of a Retry-After header (a number or a date), at most `MOST_BACKOFF_SECONDS`; None when it is neither."""
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return min(max(0.0, float(retry_after)), MOST_BACKOFF_SECONDS)
    with contextlib.suppress(ValueError, TypeError):
        left = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
        return min(max(0.0, left), MOST_BACKOFF_SECONDS)
    return None


def _says_limited(headers: Mapping[str, str]) -> bool:
    """Whether a 403 is a rate limit, as GitHub answers it: nothing was done, and no right is missing."""
    return "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"


def _until(reset: str) -> float | None:
    """Seconds until an x-ratelimit-reset (seconds since 1970); None when it is none."""
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, float(reset) - time.time())
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _trust(base_url: str) -> ssl.SSLContext | bool:
    return _tls() if base_url.startswith("https:") else False


@functools.cache
def _tls() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()


@dataclass(frozen=True)
class Means:
    """One line of a table: what an answer means that has one of these `statuses` and `codes` (any, where there are
    none), and `words` in its text. `says`: the message, with `{asked}`, `{text}` and `{code}` filled in."""

    kind: type[PlatformError]
    says: str
    statuses: Sequence[int] = ()
    codes: Sequence[str] = ()
    words: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Refusals:
    """The table; the first line that fits counts, and without one the HTTP status (`HttpClient.refusal`). `code`: the
    vendor's own code of an answer; "" when it has none."""

    code: Callable[[HttpAnswer], str]
    table: Sequence[Means]

    def error(self, http: HttpClient, answer: HttpAnswer, asked: str) -> PlatformError:
        """The error for an answer that is not 2xx. `asked`: what was asked for, for the message."""
        code, text = self.code(answer), answer.text or "no reason given"
        for one in self.table:
            fits = (not one.statuses or answer.status in one.statuses) and (not one.codes or code in one.codes)
            if fits and (one.words is None or one.words.search(text)):
                return one.kind(one.says.format(asked=asked, text=text, code=code))
        error = http.refusal(answer, asked)
        return type(error)(f"{error} ({code})") if code else error
