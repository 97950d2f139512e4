"""All calls to Lambda's Cloud API (1.10.0), for one key. Nothing here decides.

Callers share the list of instances (single flight). Writes are sent once (`common.http_client`); a read that begins
after a write sees it. Lambda allows one request a second, and one launch in 12 seconds (2026-11).
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any

from sweepstack.extensions.lambda_api.errors import NO_SUCH_THING, code_of, refused
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    Unreachable,
)
from sweepstack.platforms.common import sessions
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import Answer, HttpClient
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.listed import Listed, Names
from sweepstack.platforms.common.rate_limit import Quota, RateLimiter, paced
from sweepstack.platforms.common.sessions import Sessions
from sweepstack.platforms.common.single_flight import SingleFlight

BASE_VARIABLE, BASE_URL = "LAMBDA_API_BASE_URL", "https://cloud.lambda.ai/api/v1"
KEY_VARIABLE = "LAMBDA_API_KEY"
REQUESTS, LAUNCHES = Quota(1, 1.0), Quota(1, 12.0)
FRESH_SECONDS = 8.0
"""A box may be read from a list of this age, unless a write of ours came after it."""
LAG_SECONDS = 60.0
"""For so long an instance that we launched may not be found by its id, and still be there. Lambda names no figure."""
READ_SECONDS = 180.0
"""Limit for a read: at one request a second, those of other boxes come first."""
POLL_SECONDS = 3.0
_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]{8,56}")
NAMES = Names("Lambda", "lambda_api", "instances")


def session() -> Session:
    """The session of the current key, one per process. Sends no request. Raises NotAuthorized when there is no key."""
    missing = f"there is no key for Lambda's Cloud API: `export {KEY_VARIABLE}=…`"
    key = sessions.key_in(KEY_VARIABLE, "Lambda", missing, NAMES.adapter)
    return SESSIONS.of(sessions.base_url(BASE_VARIABLE, BASE_URL), key)


def checked_id(native_id: str) -> str:
    """See `sessions.checked_id`."""
    return sessions.checked_id(native_id, _ID, "Lambda instance")


class _LaunchTurns(RateLimiter):
    """The turns of launches: each is one of all requests, too."""

    def __init__(self, requests: RateLimiter) -> None:
        super().__init__(LAUNCHES)
        self._requests = requests

    def take(self, deadline: Deadline, what: str) -> None:
        super().take(deadline, what)
        self._requests.take(deadline, what)


class Session:
    """One key at one API address, with its rate limits and shared answers. Safe to share between threads.

    `account`: a name for the key. Lambda's API says nothing of the account that a key belongs to, so two keys of one
    account have two names; that a key sees a box of another one proves that it is of the same account (`same_account`).
    """

    def __init__(self, base: str, key: str) -> None:
        self.account = f"key-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        requests = RateLimiter(REQUESTS)
        self.http = HttpClient("Lambda", base, key, key_hint=KEY_VARIABLE, limiter=requests)
        self._launches = HttpClient("Lambda", base, key, key_hint=KEY_VARIABLE, limiter=_LaunchTurns(requests))
        self._instances = SingleFlight[Listed]()
        self._types = SingleFlight[dict[str, Any]]()
        self._made: dict[str, float] = {}  # id → when we launched it (monotonic)
        self._ended: set[str] = set()  # ids whose terminate was accepted

    def instances(self, *, max_age: float = 0.0) -> Listed:
        """All instances that the key sees. `max_age`: seconds that the list may be old. Raises Unreachable."""
        return self._instances.get(self._list, max_age=max_age)

    def instance(self, native_id: str) -> Mapping[str, Any] | None:
        """One instance, asked for by its id now; None when Lambda says that there is none. Raises Unreachable when that
        is not sure: an answer that is not the API's own, or an instance that was launched a moment ago."""
        answer = self.http.read(f"/instances/{checked_id(native_id)}", deadline=Deadline(READ_SECONDS))
        if answer.status == 404 and code_of(answer) == NO_SUCH_THING:
            if time.monotonic() - self._made.get(native_id, -1e9) < paced(LAG_SECONDS):
                raise Unreachable(f"{native_id} was launched a moment ago and Lambda does not show it yet: it may bill")
            return None
        row = self._data(answer, f"to show {native_id}")
        if identifier(row) != native_id:
            raise Unreachable(f"Lambda was asked for {native_id} and shows something else: nothing is known of it")
        return dict(row)

    def types(self, *, max_age: float = 0.0) -> dict[str, Any]:
        """The types of instances: name → what it has, its price, and where there is room now."""

        def read() -> dict[str, Any]:
            found = self._data(self.http.read("/instance-types", deadline=Deadline(READ_SECONDS)), "its types")
            if not isinstance(found, dict):
                raise Unreachable("Lambda's list of instance types is none, so nothing is known")
            return found

        return self._types.get(read, max_age=max_age)

    def launch(self, body: Mapping[str, Any], deadline: Deadline) -> Answer:
        """Launches one instance. Costs money. Raises OutcomeUnknown when the answer is lost."""
        try:
            return self._launches.write("POST", "/instance-operations/launch", body, deadline=deadline)
        finally:
            self._instances.forget()  # from now on no caller gets a list from before this

    def launched(self, native_id: str) -> None:
        """Notes that we launched this instance now."""
        self._made[native_id] = time.monotonic()

    def terminate(self, native_id: str) -> Answer:
        """Ends an instance, for good. Raises OutcomeUnknown when the answer is lost or does not come."""
        body = {"instance_ids": [checked_id(native_id)]}
        try:
            answer = self.http.write("POST", "/instance-operations/terminate", body, deadline=Deadline(READ_SECONDS))
        finally:
            self._instances.forget()  # from now on no caller gets a list from before this
        if answer.ok:
            self._ended.add(native_id)
        return answer

    def is_ending(self, native_id: str) -> bool:
        """Whether this process had its terminate accepted."""
        return native_id in self._ended

    def key_name(self, public_key: str, deadline: Deadline) -> str:
        """The name under which the account has this public key; adds it, if it is not there: an instance lets in keys
        of the account alone. Costs nothing. Idempotent: after a lost answer the list decides."""
        wanted = _material(public_key)
        name = f"sweepstack-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"
        why: PlatformError = Unreachable("Lambda has the SSH key, and does not list it")
        for last in (False, True):
            found = self._data(self.http.read("/ssh-keys", deadline=deadline), "the account's SSH keys")
            keys = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
            for one in keys:
                if _material(str(one.get("public_key"))) == wanted and isinstance(one.get("name"), str):
                    return str(one["name"])
            if last:
                break
            try:
                body = {"name": name, "public_key": wanted}
                answer = self.http.write("POST", "/ssh-keys", body, deadline=deadline)
            except OutcomeUnknown as error:
                why = Unreachable(f"{error}. Nothing was rented. Next: the same command again")
                continue
            if answer.ok:
                return name
            # another command may have added it meanwhile
            why = refused(self.http, answer, "to add your SSH key to the account (nothing was rented)")
        raise why

    def _list(self) -> Listed:
        found = self._data(self.http.read("/instances", deadline=Deadline(READ_SECONDS)), "its instances")
        if not isinstance(found, list):
            raise Unreachable("Lambda's list of instances is none, so nothing is known")
        return Listed.of(NAMES, found)

    def _data(self, answer: Answer, asked: str) -> Any:
        if not answer.ok:
            error = refused(self.http, answer, asked)
            kind = NotAuthorized if isinstance(error, NotAuthorized | InsufficientFunds) else Unreachable
            raise kind(f"{error}. What Lambda has is not known") from None
        if not isinstance(answer.data, dict) or "data" not in answer.data:
            raise Unreachable(f"Lambda's answer has no data ({asked}): nothing is known")
        return answer.data["data"]


def _material(public_key: str) -> str:
    """Type and key of a public key, without its comment."""
    return " ".join(public_key.split()[:2])


SESSIONS = Sessions(Session)
