"""Whose key this is, once RunPod's older interface does not say it any more.

REST v2 names the account since November 2026. Its documentation page shows no address, so a 404 proves nothing. Where
it does not say, the same key is the same account (by its digest, as it was on record), and so is a key that shows the
recorded box by its id.
"""

from __future__ import annotations

import hashlib

from sweepstack.platforms.common.http_client import HttpClient
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.single_flight import SingleFlight

PATH = "/v2/account"
"""Taken from the name of its documentation page, account/get-your-account (2026-11-13), beside /v2/account/ssh-keys."""


class Owner:
    """The account of one key. `digest`: the key's own, which goes into birth records; no key can be found by it. Safe
    to share between threads."""

    def __init__(self, http: HttpClient, key: str) -> None:
        self.digest = hashlib.sha256(f"sweepstack runpod {key}".encode()).hexdigest()[:16]
        self._http = http
        self._told = SingleFlight[str]()
        self._proved: tuple[str, ...] = (f"key-{self.digest}",)

    def recall(self, account: str) -> None:
        """It is proved, or on record for this very key, that it is of `account`."""
        if account not in self._proved:
            self._proved = (*self._proved, account)

    def name(self) -> str:
        """The account's name: as REST v2 tells it, else as it is on record for this key, else one made of the key's
        digest. Blocks. Raises Unreachable, NotAuthorized."""
        return self._ask() or self._proved[-1]

    def is_of(self, account: str) -> bool | None:
        """Whether the key is of `account`; None where that is not known. Raises what `name` raises."""
        if account in self._proved:
            return True
        told = self._ask()
        return told == account if told else None

    def _ask(self) -> str:
        """The account by REST v2; "" where that does not say. An account never changes, so it is asked for once."""
        return self._told.get(self._asked, max_age=float("inf"))

    def _asked(self) -> str:
        answer = self._http.read(PATH)
        return identifier(answer.data) if answer.ok else ""
