"""All calls to Paperspace's API (v1), for one key. Nothing here decides.

Callers share the list of machines (single flight). Writes are sent once (`common.http_client`); a read that begins
after a write sees it. Paperspace publishes no rate limit and answers 429 where there is one: ours is two requests a
second.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from sweepstack.extensions.paperspace_api import KEY, states
from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, RequestRefused, Unreachable, WrongAccount
from sweepstack.onbox.host.platform import BoxRecord
from sweepstack.platforms.common import box_session, keys
from sweepstack.platforms.common.box_session import READ_SECONDS, BoxSession, Names, Row, Sessions
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpAnswer, HttpClient
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.rate_limit import Quota, RateLimiter
from sweepstack.platforms.common.single_flight import SingleFlight

BASE_VARIABLE, BASE_URL = "PAPERSPACE_API_BASE_URL", "https://api.paperspace.com/v1"
KEY_VARIABLE = KEY.variable
REQUESTS = Quota(2, 1.0)
PAGE = 120
"""Entries of a page: the most that the API gives."""
PAGES = 200
POLL_SECONDS = 5.0
NAMES = Names("Paperspace", "paperspace_api", "machines")
_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/=]+")
_SCRIPT = """\
#!/bin/sh
# Written by sweepstack. Lets this SSH key in as the user paperspace, at every boot; run twice, it changes nothing more.
set -eu
keys=/home/paperspace/.ssh/authorized_keys
mkdir -p /home/paperspace/.ssh
touch "$keys"
chown -R paperspace:paperspace /home/paperspace/.ssh
chmod 700 /home/paperspace/.ssh
chmod 600 "$keys"
if ! grep -qF '{key}' "$keys"; then
  mkdir -p {root}/data {root}/scratch {root}/mnt/durable
  chown -R paperspace:paperspace {root}
  printf '\\n%s\\n' '{key}' >> "$keys"
fi
"""
"""Lets a person's SSH key in: Paperspace's API has no SSH keys. It also makes the folders of the box's tiers, once,
with the key: a create that was cancelled makes none, and no later boot may put empty ones in place of lost ones."""


def session(account: str = "") -> Session:
    """The session of the key for this account (`keys.find`), one a process. Sends no request. Raises NotAuthorized."""
    missing = (
        f"there is no key for Paperspace's API: `export {KEY_VARIABLE}=…`; or, without a key, make the machine in its "
        "console, and use the platform paperspace with `host:`"
    )
    key = box_session.found(KEY, account, missing, NAMES.adapter)
    return SESSIONS.of(box_session.base_url(BASE_VARIABLE, BASE_URL), key)


class Session(BoxSession):
    """See `BoxSession`. Its account is the key's team: a key sees its machines alone."""

    names = NAMES
    form = re.compile(r"ps[0-9a-z]{4,40}")
    path = "/machines"
    no_such_thing = "NOT_FOUND"
    refusals = states.REFUSALS

    def __init__(self, base: str, key: str) -> None:
        super().__init__(
            HttpClient(
                "Paperspace", base, key, key_hint=keys.hint(KEY, key, KEY_VARIABLE), limiter=RateLimiter(REQUESTS)
            )
        )
        self._teams = SingleFlight[str]()

    def account(self, *, max_age: float = 3600.0) -> str:
        def read() -> str:
            said = self.data(self.http.read("/auth/session", deadline=Deadline(READ_SECONDS)), "whose the key is")
            if said is None:
                raise NotAuthorized(f"Paperspace knows no session of this key: check {KEY_VARIABLE}")
            team = said.get("team") if isinstance(said, dict) else None
            if not identifier(team):
                raise Unreachable("Paperspace does not say which team the key belongs to: nothing is known")
            return identifier(team)

        return self._teams.get(read, max_age=max_age)

    def must_reach(self, account: str, what: str, *, absent: bool) -> None:
        if not absent:  # else `by_id` has asked
            self._require(account, what)

    def _require(self, account: str, what: str, *, max_age: float = 3600.0) -> None:
        at_hand = self.account(max_age=max_age)
        if account and account != at_hand:
            raise WrongAccount(
                f"{what} belongs to the Paperspace team {account}, and the key at hand to {at_hand}: "
                f"{keys.way(KEY)} with a key of {account}"
            )

    def rows(self) -> list[Row]:
        return self._all(self.path, "its machines")

    def record_of(self, row: Row, account: str, *, ending: bool) -> BoxRecord:
        return states.record_of(row, account, ending=ending)

    def carries(self, row: Row, tag: str) -> bool:
        """The tag is its name, the one thing that we can write on it."""
        return row.get("name") == tag

    def by_id(self, native_id: str) -> BoxRecord | None:
        """Where there is none the key's team is asked for again, since another team's key is told the same of a machine
        that bills. Raises WrongAccount."""
        before, found = self.account(), super().by_id(native_id)
        if found is None:
            self._require(before, f"the box {native_id}", max_age=0.0)
        return found

    def listed_as(self, row: Row) -> BoxRecord:
        """One that is being deleted is asked for by its id, since a list may show it for longer."""
        if not states.is_deleted(row):
            return self.recorded(row)
        return self.by_id(identifier(row)) or self.gone(identifier(row), self.account())

    def templates(self) -> list[Mapping[str, Any]]:
        """Paperspace's own templates, each with the machine types on which it runs."""
        return self._all("/os-templates", "its templates")

    def events(self, native_id: str) -> list[Mapping[str, Any]]:
        """What happened to a machine, as Paperspace keeps it."""
        return self._all("/machine-events", f"the events of {native_id}", machineId=self.checked_id(native_id))

    def event(self, event_id: str) -> Mapping[str, Any]:
        """One event. Raises Unreachable when it can't be read."""
        if not re.fullmatch(r"[0-9A-Za-z-]{1,64}", event_id):
            raise Unreachable(f"Paperspace gave no event that could be asked for: {event_id[:40]!r}")
        row = self.data(self.http.read(f"/machine-events/{event_id}", deadline=Deadline(READ_SECONDS)), "an event")
        return dict(row) if isinstance(row, dict) else {}

    def trouble(self) -> str:
        """Why the account is not in good standing, in Paperspace's words; "" when it is, or when that is not known."""
        try:
            said = self.data(self.http.read("/billing/account-standing"), "how the account stands")
        except PlatformError:
            return ""
        if not isinstance(said, dict):
            return ""
        if said.get("isInGoodStanding") is True and said.get("isAdminLocked") is not True:
            return ""
        messages = said.get("messages")
        told = [one for one in messages if isinstance(one, str)] if isinstance(messages, list) else []
        return self.http.clean("; ".join(told)) or "it gives no reason"

    def create(self, body: Mapping[str, Any], deadline: Deadline) -> HttpAnswer:
        """Makes one machine. Costs money. Raises OutcomeUnknown when the answer is lost."""
        return self.write("POST", self.path, body, deadline)

    def act(self, native_id: str, verb: str) -> HttpAnswer:
        """Starts or stops a machine (`start`, `stop`). Raises OutcomeUnknown when the answer is lost."""
        return self.write("PATCH", f"{self.path}/{self.checked_id(native_id)}/{verb}", None)

    def delete(self, native_id: str) -> HttpAnswer:
        """Deletes a machine with its disk, for good. Raises OutcomeUnknown when the answer is lost."""
        return self.ended(native_id, self.write("DELETE", f"{self.path}/{self.checked_id(native_id)}", None))

    def script_id(self, public_key: str, deadline: Deadline) -> str:
        """The id of the startup script that lets this key in; adds it, if the team has none. See `added`."""
        name, text = login_script(public_key)

        def find() -> str:
            for one in self._all("/startup-scripts", "its startup scripts", name=name):
                if one.get("isEnabled") is True and one.get("dtDeleted") is None and one.get("name") == name:
                    return identifier(one)
            return ""

        def add() -> HttpAnswer:
            body = {"name": name, "script": text, "isRunOnce": False}
            return self.http.write("POST", "/startup-scripts", body, deadline=deadline)

        what = "startup script", "to add a startup script with your SSH key"
        return self.added(find, add, lambda answer: identifier(answer.data), what)

    def _all(self, path: str, asked: str, **parameters: str) -> list[Mapping[str, Any]]:
        """Every entry of a list, of all its pages. Raises Unreachable when it can't be read to its end."""
        found: list[Mapping[str, Any]] = []
        after = ""
        until = Deadline(READ_SECONDS)
        for _ in range(PAGES):
            page = {"limit": str(PAGE), **parameters, **({"after": after} if after else {})}
            said = self.data(self.http.read(path, page, deadline=until), asked)
            items = said.get("items") if isinstance(said, dict) else None
            if not isinstance(items, list) or not isinstance(said.get("hasMore"), bool):
                raise Unreachable(f"Paperspace's list is none ({asked}), so nothing is known")
            found += [row if isinstance(row, dict) else {} for row in items]
            if not said["hasMore"]:
                return found
            following = said.get("nextPage")
            if not isinstance(following, str) or not following or following == after:
                raise Unreachable(f"Paperspace's list has no next page ({asked}), so it is not known whole")
            after = following
        raise Unreachable(f"Paperspace's list does not end ({asked}), so it is not known whole")


def login_script(public_key: str) -> tuple[str, str]:
    """Name and text of the script for this public key. The name has the digest of the text, which Paperspace does not
    show again: a script that differs has another name. Raises RequestRefused for what can't be a key."""
    key = " ".join(public_key.split()[:2])  # without its comment
    if not _KEY.fullmatch(key):
        raise RequestRefused("your public SSH key does not read as `<type> <key>`: `ssh-keygen -t ed25519` makes one")
    text = _SCRIPT.format(key=key, root=states.ROOT)
    return f"sweepstack-{hashlib.sha256(text.encode()).hexdigest()[:16]}", text


SESSIONS = Sessions(Session)
