"""All calls to Paperspace's API (v1), for one key. Nothing here decides.

Callers share the list of machines (single flight). Writes are sent once (`common.http_client`); a read that begins
after a write sees it. Paperspace publishes no rate limit and answers 429 where there is one: ours is two requests a
second.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from sweepstack.extensions.paperspace_api.errors import NO_SUCH_THING, code_of, refused
from sweepstack.extensions.paperspace_api.login_script import login_script
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    Unreachable,
    WrongAccount,
)
from sweepstack.platforms.common import sessions
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import Answer, HttpClient
from sweepstack.platforms.common.json_values import identifier
from sweepstack.platforms.common.listed import Listed, Names
from sweepstack.platforms.common.rate_limit import Quota, RateLimiter, paced
from sweepstack.platforms.common.sessions import Sessions
from sweepstack.platforms.common.single_flight import SingleFlight

BASE_VARIABLE, BASE_URL = "PAPERSPACE_API_BASE_URL", "https://api.paperspace.com/v1"
KEY_VARIABLE = "PAPERSPACE_API_KEY"
REQUESTS = Quota(2, 1.0)
PAGE = 120
"""Entries of a page: the most that the API gives."""
PAGES = 200
FRESH_SECONDS = 8.0
"""A machine may be read from a list of this age, unless a write of ours came after it."""
LAG_SECONDS = 60.0
"""For so long a machine that we made may not be found by its id, and still be there. Paperspace names no figure."""
READ_SECONDS = 180.0
"""Limit for a read: the requests for other boxes come first."""
POLL_SECONDS = 5.0
_ID = re.compile(r"ps[0-9a-z]{4,40}")
NAMES = Names("Paperspace", "paperspace_api", "machines")


def session() -> Session:
    """The session of the current key, one per process. Sends no request. Raises NotAuthorized when there is no key."""
    missing = (
        f"there is no key for Paperspace's API: `export {KEY_VARIABLE}=…`; or, without a key, make the machine in its "
        "console, and use the platform paperspace with `host:`"
    )
    key = sessions.key_in(KEY_VARIABLE, "Paperspace", missing, NAMES.adapter)
    return SESSIONS.of(sessions.base_url(BASE_VARIABLE, BASE_URL), key)


def checked_id(native_id: str) -> str:
    """See `sessions.checked_id`."""
    return sessions.checked_id(native_id, _ID, "Paperspace machine")


class Session:
    """One key at one API address, with its rate limit and shared answers. Safe to share between threads."""

    def __init__(self, base: str, key: str) -> None:
        self.http = HttpClient("Paperspace", base, key, key_hint=KEY_VARIABLE, limiter=RateLimiter(REQUESTS))
        self._teams = SingleFlight[str]()
        self._machines = SingleFlight[Listed]()
        self._made: dict[str, float] = {}  # id → when we made it (monotonic)
        self._ended: set[str] = set()  # ids whose delete was accepted

    def account(self, *, max_age: float = 3600.0) -> str:
        """The team that the key belongs to: a key sees its machines alone. Raises NotAuthorized, Unreachable."""

        def read() -> str:
            said = self._data(self.http.read("/auth/session", deadline=Deadline(READ_SECONDS)), "whose the key is")
            if said is None:
                raise NotAuthorized(f"Paperspace knows no session of this key: check {KEY_VARIABLE}")
            team = said.get("team") if isinstance(said, dict) else None
            found = team.get("id") if isinstance(team, dict) else None
            if not isinstance(found, str) or not found:
                raise Unreachable("Paperspace does not say which team the key belongs to: nothing is known")
            return found

        return self._teams.get(read, max_age=max_age)

    def require(self, account: str, what: str, *, max_age: float = 3600.0) -> None:
        """Raises WrongAccount unless `account` is the key's team, or empty. `what`: what was asked for."""
        at_hand = self.account(max_age=max_age)
        if account and account != at_hand:
            raise WrongAccount(
                f"{what} belongs to the Paperspace team {account}, and the key at hand to {at_hand}: `export "
                f"{KEY_VARIABLE}=…` with a key of {account}"
            )

    def machines(self, *, max_age: float = 0.0) -> Listed:
        """All machines of the team. `max_age`: seconds that the list may be old. Raises Unreachable."""

        def read() -> Listed:
            found = Listed.of(NAMES, self._all("/machines", "its machines"))
            for shown in found.by_id:
                self._made.pop(shown, None)
            return found

        return self._machines.get(read, max_age=max_age)

    def machine(self, native_id: str) -> Mapping[str, Any] | None:
        """One machine, asked for by its id now; None when Paperspace says that the team has none. Raises Unreachable
        when that is not sure: an answer that is not the API's own, or a machine that was made a moment ago."""
        answer = self.http.read(f"/machines/{checked_id(native_id)}", deadline=Deadline(READ_SECONDS))
        if answer.status == 404 and code_of(answer) == NO_SUCH_THING:
            if time.monotonic() - self._made.get(native_id, -1e9) < paced(LAG_SECONDS):
                raise Unreachable(f"{native_id} was made a moment ago and Paperspace does not show it yet: it may bill")
            return None
        row = self._data(answer, f"to show {native_id}")
        if identifier(row) != native_id:
            raise Unreachable(f"Paperspace was asked for {native_id} and shows something else: nothing is known of it")
        self._made.pop(native_id, None)
        return dict(row)

    def templates(self) -> list[Mapping[str, Any]]:
        """Paperspace's own templates, each with the machine types on which it runs."""
        return self._all("/os-templates", "its templates")

    def events(self, native_id: str) -> list[Mapping[str, Any]]:
        """What happened to a machine, as Paperspace keeps it."""
        return self._all("/machine-events", f"the events of {native_id}", machineId=checked_id(native_id))

    def event(self, event_id: str) -> Mapping[str, Any]:
        """One event. Raises Unreachable when it can't be read."""
        if not re.fullmatch(r"[0-9A-Za-z-]{1,64}", event_id):
            raise Unreachable(f"Paperspace gave no event that could be asked for: {event_id[:40]!r}")
        row = self._data(self.http.read(f"/machine-events/{event_id}", deadline=Deadline(READ_SECONDS)), "an event")
        return dict(row) if isinstance(row, dict) else {}

    def trouble(self) -> str:
        """Why the account is not in good standing, in Paperspace's words; "" when it is, or when that is not known."""
        try:
            said = self._data(self.http.read("/billing/account-standing"), "how the account stands")
        except PlatformError:
            return ""
        if not isinstance(said, dict):
            return ""
        if said.get("isInGoodStanding") is True and said.get("isAdminLocked") is not True:
            return ""
        messages = said.get("messages")
        told = [one for one in messages if isinstance(one, str)] if isinstance(messages, list) else []
        return self.http.clean("; ".join(told)) or "it gives no reason"

    def create(self, body: Mapping[str, Any], deadline: Deadline) -> Answer:
        """Makes one machine. Costs money. Raises OutcomeUnknown when the answer is lost."""
        return self._write("POST", "/machines", body, deadline)

    def made(self, native_id: str) -> None:
        """Notes that we made this machine now."""
        self._made[native_id] = time.monotonic()

    def act(self, native_id: str, verb: str, deadline: Deadline | None = None) -> Answer:
        """Starts or stops a machine (`start`, `stop`). Raises OutcomeUnknown when the answer is lost."""
        until = deadline or Deadline(READ_SECONDS)
        return self._write("PATCH", f"/machines/{checked_id(native_id)}/{verb}", None, until)

    def delete(self, native_id: str) -> Answer:
        """Deletes a machine with its disk, for good. Raises OutcomeUnknown when the answer is lost."""
        answer = self._write("DELETE", f"/machines/{checked_id(native_id)}", None, Deadline(READ_SECONDS))
        if answer.ok:
            self._ended.add(native_id)
        return answer

    def is_ending(self, native_id: str) -> bool:
        """Whether this process had its delete accepted."""
        return native_id in self._ended

    def script_id(self, public_key: str, deadline: Deadline) -> str:
        """The id of the startup script that lets this key in; adds it, if the team has none. Costs nothing. Idempotent:
        after a lost answer the list decides."""
        name, text = login_script(public_key)
        why: PlatformError = Unreachable("Paperspace has the startup script, and does not list it")
        for last in (False, True):
            for one in self._all("/startup-scripts", "its startup scripts", name=name):
                there = one.get("isEnabled") is True and one.get("dtDeleted") is None and one.get("name") == name
                if there and identifier(one):
                    return identifier(one)
            if last:
                break
            try:
                body = {"name": name, "script": text, "isRunOnce": False}
                answer = self.http.write("POST", "/startup-scripts", body, deadline=deadline)
            except OutcomeUnknown as error:
                why = Unreachable(f"{error}. Nothing was rented. Next: the same command again")
                continue
            if answer.ok and identifier(answer.data):
                return identifier(answer.data)
            why = refused(self.http, answer, "to add a startup script with your SSH key (nothing was rented)")
        raise why

    def _write(self, method: str, path: str, body: Mapping[str, Any] | None, deadline: Deadline) -> Answer:
        try:
            return self.http.write(method, path, body, deadline=deadline)
        finally:
            self._machines.forget()  # from now on no caller gets a list from before this

    def _all(self, path: str, asked: str, **parameters: str) -> list[Mapping[str, Any]]:
        """Every entry of a list, of all its pages. Raises Unreachable when it can't be read to its end."""
        found: list[Mapping[str, Any]] = []
        after = ""
        until = Deadline(READ_SECONDS)
        for _ in range(PAGES):
            page = {"limit": str(PAGE), **parameters, **({"after": after} if after else {})}
            said = self._data(self.http.read(path, page, deadline=until), asked)
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

    def _data(self, answer: Answer, asked: str) -> Any:
        if not answer.ok:
            error = refused(self.http, answer, asked)
            kind = NotAuthorized if isinstance(error, NotAuthorized | InsufficientFunds) else Unreachable
            raise kind(f"{error}. What Paperspace has is not known") from None
        return answer.data


SESSIONS = Sessions(Session)
