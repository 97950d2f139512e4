"""All calls to Lambda's Cloud API (1.10.0), for one key. Nothing here decides.

Callers share the list of instances (single flight). Writes are sent once (`common.http_client`); a read that begins
after a write sees it. Lambda allows one request a second, and one launch in 12 seconds (2026-11).

Lambda's API does not say whose a key is. But an instance that one key rented, and that another one sees under the same
id, shows that both reach the same instances; a note on this machine keeps that. So a key that was exchanged for another
one while its box was there is no dead end: what the new key says of that account's boxes is believed, also that they
are gone. The note holds names of keys (digests), and no key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.extensions.lambda_api import KEY, states
from sweepstack.onbox.common.canonical import canonical_json, write_atomically
from sweepstack.onbox.common.errors import Unreachable, WrongAccount
from sweepstack.onbox.common.xdg import data_folder
from sweepstack.onbox.host.platform import BoxRecord
from sweepstack.platforms.common import box_session, keys
from sweepstack.platforms.common.box_session import READ_SECONDS, BoxSession, Names, Row, Sessions
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpAnswer, HttpClient
from sweepstack.platforms.common.rate_limit import Quota, RateLimiter
from sweepstack.platforms.common.single_flight import SingleFlight

BASE_VARIABLE, BASE_URL = "LAMBDA_API_BASE_URL", "https://cloud.lambda.ai/api/v1"
KEY_VARIABLE = KEY.variable
REQUESTS, LAUNCHES = Quota(1, 1.0), Quota(1, 12.0)
POLL_SECONDS = 3.0
NAMES = Names("Lambda", "lambda_api", "instances")
_NAME = re.compile(r"key-[0-9a-f]{12}")


def session(account: str = "") -> Session:
    """The session of the key for this account (`keys.find`), one a process. Sends no request. Raises NotAuthorized."""
    missing = f"there is no key for Lambda's Cloud API: `export {KEY_VARIABLE}=…`"
    key = box_session.found(KEY, account, missing, NAMES.adapter)
    return SESSIONS.of(box_session.base_url(BASE_VARIABLE, BASE_URL), key)


class _LaunchTurns(RateLimiter):
    """The turns of launches: each is one of all requests, too."""

    def __init__(self, requests: RateLimiter) -> None:
        super().__init__(LAUNCHES)
        self._requests = requests

    def take(self, deadline: Deadline, what: str) -> None:
        super().take(deadline, what)
        self._requests.take(deadline, what)


class Session(BoxSession):
    """See `BoxSession`. Its account is a name for the key: two keys of one account have two names, and that a key sees
    a box of another one proves that it is of the same account."""

    names = NAMES
    form = re.compile(r"[0-9a-f]{8}[0-9a-f-]{8,56}")
    path = "/instances"
    no_such_thing = "global/object-does-not-exist"
    refusals = states.REFUSALS
    one_look_is_enough = False

    def __init__(self, base: str, key: str) -> None:
        requests = RateLimiter(REQUESTS)
        super().__init__(HttpClient("Lambda", base, key, key_hint=keys.hint(KEY, key, KEY_VARIABLE), limiter=requests))
        self._account = f"key-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        self._launches = HttpClient(
            "Lambda", base, key, key_hint=keys.hint(KEY, key, KEY_VARIABLE), limiter=_LaunchTurns(requests)
        )
        self._types = SingleFlight[dict[str, Any]]()

    def account(self) -> str:
        return self._account

    def record_of(self, row: Row, account: str, *, ending: bool) -> BoxRecord:
        return states.record_of(row, account, ending=ending)

    def carries(self, row: Row, tag: str) -> bool:
        return states.carries(row, tag)

    def must_reach(self, account: str, what: str, *, absent: bool) -> None:
        """To another key Lambda says of a box that bills what it says of one that is gone."""
        if absent and account and account != self._account and not are_same(account, self._account):
            raise WrongAccount(
                f"{what} was rented with the Lambda key {account}, and the key at hand, {self._account}, does not see "
                f"it: it is gone, or it bills where this key does not reach. Next: {keys.way(KEY)} with that "
                "key; or, where that key was withdrawn, look at another box that it rented and that is still there, "
                "with the key at hand (`sweepctl status`): what sees one of its boxes is of its account"
            )

    def reached(self, account: str) -> None:
        note_same(account, self._account)

    def rows(self) -> list[Any]:
        found = self.data(self.http.read(self.path, deadline=Deadline(READ_SECONDS)), "its instances")
        if not isinstance(found, list):
            raise Unreachable("Lambda's list of instances is none, so nothing is known")
        return found

    def types(self, *, max_age: float = 0.0) -> dict[str, Any]:
        """The types of instances: name → what it has, its price, and where there is room now."""

        def read() -> dict[str, Any]:
            found = self.data(self.http.read("/instance-types", deadline=Deadline(READ_SECONDS)), "its types")
            if not isinstance(found, dict):
                raise Unreachable("Lambda's list of instance types is none, so nothing is known")
            return found

        return self._types.get(read, max_age=max_age)

    def launch(self, body: Mapping[str, Any], deadline: Deadline) -> HttpAnswer:
        """Launches one instance. Costs money. Raises OutcomeUnknown when the answer is lost."""
        return self.write("POST", "/instance-operations/launch", body, deadline, via=self._launches)

    def terminate(self, native_id: str) -> HttpAnswer:
        """Ends an instance, for good. Raises OutcomeUnknown when the answer is lost or does not come."""
        body = {"instance_ids": [self.checked_id(native_id)]}
        return self.ended(native_id, self.write("POST", "/instance-operations/terminate", body))

    def key_name(self, public_key: str, deadline: Deadline) -> str:
        """The name under which the account has this public key; adds it, if it is not there: an instance lets in keys
        of the account alone. See `added`."""
        wanted = _material(public_key)
        name = f"sweepstack-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"

        def find() -> str:
            found = self.data(self.http.read("/ssh-keys", deadline=deadline), "the account's SSH keys")
            keys = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
            having = (one.get("name") for one in keys if _material(str(one.get("public_key"))) == wanted)
            return next((shown for shown in having if isinstance(shown, str)), "")

        def add() -> HttpAnswer:
            return self.http.write("POST", "/ssh-keys", {"name": name, "public_key": wanted}, deadline=deadline)

        return self.added(find, add, lambda answer: name, ("SSH key", "to add your SSH key to the account"))

    def data(self, answer: HttpAnswer, asked: str) -> Any:
        found = super().data(answer, asked)
        if not isinstance(found, dict) or "data" not in found:
            raise Unreachable(f"Lambda's answer has no data ({asked}): nothing is known")
        return found["data"]


def _material(public_key: str) -> str:
    """Type and key of a public key, without its comment."""
    return " ".join(public_key.split()[:2])


SESSIONS = Sessions(Session)


def note_same(one: str, other: str) -> None:
    """Notes that both keys saw one and the same instance. Never raises: without the note there is only less that a key
    proves."""
    if one == other or not (_NAME.fullmatch(one) and _NAME.fullmatch(other)) or are_same(one, other):
        return
    with contextlib.suppress(OSError):
        path = same_account_note()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, canonical_json({"same": [*_pairs(), sorted((one, other))]}) + b"\n", mode=0o600)


def are_same(one: str, other: str) -> bool:
    """Whether both keys are known to be of one account, directly or through others. A note that does not read knows
    nothing."""
    reached, pairs = {one}, _pairs()
    while more := {name for pair in pairs if reached & set(pair) for name in pair} - reached:
        reached |= more
    return other in reached


def same_account_note() -> Path:
    """The file of the note."""
    return data_folder() / "accounts" / "lambda_api.json"


def _pairs() -> list[list[str]]:
    try:
        told = json.loads(same_account_note().read_bytes())["same"]
        whole = all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) for name in pair) for pair in told
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []
    return list(told) if whole else []
