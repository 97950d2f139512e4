"""The door of the simulated vast.ai: who asks, with what right, and how often. Source: vast.ai's API reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.simulators.core import Handler, IntervalQuota, Refusal, Reply, Request, Simulator, VirtualClock, WindowQuota
from tests.simulators.vastai import replies
from tests.simulators.vastai.boxes import NoBoxes, RealBoxes
from tests.simulators.vastai.replies import Strange, refusal
from tests.simulators.vastai.settings import VastAccount
from tests.simulators.vastai.world import World

V0, V1 = "/api/v0", "/api/v1"
FAULTS = {
    "snatched": "PUT /asks/{id}/: a stranger takes the offer first; `gpus`: only its GPUs, its id stays",
    "bid_refused": "PUT /asks/{id}/ with a price: the floor has just risen above it",
    "spend_limit": "PUT /asks/{id}/: spend_rate_limit, `status` (400)",
    "success_false": "200 with success:false and nothing done; `msg`",
    "stuck": "PUT /asks/{id}/: the new instance loads for ever",
    "oci": "PUT /asks/{id}/: its image can't run",
    "dies": "PUT /asks/{id}/: it ends while it starts",
    "start_queued": "PUT /instances/{id}/: strangers have its GPUs for `seconds` (60), then it starts by itself",
    "destroy_ignored": "DELETE /instances/{id}/: success, and nothing happens",
    "destroy_slow": "DELETE /instances/{id}/: seen for `reads` (5) more looks",
    "null_read": "GET /instances/{id}/: null although it is there",
    "empty_list": "GET /api/v1/instances/: none, although there are; `filtered`: only where some are asked for",
    "stale_list": "GET /api/v1/instances/: as it was `seconds` (60) ago: newer ones missing, ended ones still there",
    "search_quota": "POST /bundles/: the day's quota is spent",
    "auth": "the key is not recognised; `status` (401), 404 as seen live",
    "lacks_credit": "PUT /asks/{id}/: the money does not suffice",
    "preempted": "GET: what was running has just been stopped, without notice",
    "vanished": "GET, DELETE: it has just been ended behind the client's back",
    "odd_status": "GET: actual_status is `word` (migrating)",
    "no_key": "PUT /asks/{id}/: the new instance's container has no key of its own in its environment",
    "stop_ignored": "PUT /instances/{id}/: a stop is answered as done, and it runs on",
}
LIMITS = {  # seconds between two calls of one key, per route, by its API reference
    f"PUT {V0}/asks/{{id}}/": 4.5,
    f"GET {V0}/instances/{{id}}/": 2.0,
    f"GET {V1}/instances/": 1.0,
    f"PUT {V0}/instances/{{id}}/": 1.0,
    f"DELETE {V0}/instances/{{id}}/": 3.0,
    f"PUT {V0}/instances/bid_price/{{id}}/": 5.5,
    f"PUT {V0}/volumes/": 5.5,
    f"GET {V0}/volumes": 5.5,
    f"GET {V0}/volumes/": 5.5,
    f"DELETE {V0}/volumes/": 5.5,
    f"DELETE {V0}/volumes": 5.5,
    f"POST {V0}/volumes/search/": 5.5,
    f"POST {V0}/instances/{{id}}/ssh/": 1.0,
    f"GET {V0}/charges/": 1.0,
}
SEARCH, CHARGES = f"POST {V0}/bundles/", f"GET {V0}/charges/"
SEARCHES_A_MINUTE = 10  # of one IP
OWN = frozenset(f"{verb} {V0}/instances/{{id}}/" for verb in ("GET", "PUT", "DELETE"))
"""What an instance may do by its own key, if the id is its own: show, start, stop and destroy itself."""


class Gate(Simulator):
    """The simulator without its routes. `machines`: instances are real, with their disks below `state`."""

    name = "vastai"
    kinds: Mapping[str, str] = MappingProxyType(FAULTS)

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        latency: Mapping[str, float] | None = None,
        state: Path | None = None,
        machines: bool = False,
    ) -> None:
        super().__init__(clock=clock, latency=latency, state=state, machines=machines)
        boxes = RealBoxes(state, self.outlets) if machines and state is not None else NoBoxes()
        self.customers: dict[str, VastAccount] = {}
        self.world = World(self.clock, self.ledger, self.customers, boxes, self.own_keys)
        self._intervals = {call: IntervalQuota(seconds) for call, seconds in LIMITS.items()}
        self._searches = WindowQuota(SEARCHES_A_MINUTE, 60.0)
        self._wording = 0

    def add_account(self, name: str, *, credit: float = 100.0) -> VastAccount:
        """One more customer; its id is a number, its key contains its name."""
        number = str(5_000 + len(self.customers))
        account = VastAccount(number, f"vast-key-{name}-{number}", f"{name}@example.com", credit)
        self.customers[number] = self.accounts[number] = account
        return account

    def settle(self) -> None:
        with self.lock:
            self.world.settle()

    def close(self) -> None:
        self.world.boxes.close()

    def too_many(self, retry_after: float | None) -> Reply:
        """A 429 that a fault asks for."""
        self._wording += 1
        return replies.too_often(4.5, self._wording, retry_after)

    def admit(self, request: Request) -> None:
        call = f"{request.method} {request.route}"
        if "api_key" in request.query:
            self.violate(f"a key in a URL: {request.path}")
        if not request.headers.get("user-agent"):
            self.violate(f"no User-Agent: {call}")
        self._identify(request, call)
        if request.box and not (request.params.get("id") == request.box and call in OWN):
            raise refusal(403, "insufficient_permissions", "This key has not the permission for this action.")
        if self.world.settings.limits:
            self._hold_back(request, call)

    def _identify(self, request: Request, call: str) -> None:
        header = request.headers.get("authorization", "")
        if not header:
            status = 403 if call == CHARGES else 401
            raise refusal(status, "auth_error", "This action requires login.")
        if not header.startswith("Bearer "):
            self.violate(f"Authorization without Bearer: {call}")
        key = header.removeprefix("Bearer ")
        request.account = self.customer(key)
        if own := self.own_keys.holder(key):
            request.account = self.customers[own.account]
        told = request.faults.get("auth")
        if request.account is None or told is not None:
            request.account = None
            status = 401 if told is None else told.get("status", 401)
            raise refusal(404 if call in (SEARCH, CHARGES) else status, "auth_error", "Invalid user key")

    def _hold_back(self, request: Request, call: str) -> None:
        key, now = request.headers["authorization"], self.clock.now()
        if call == SEARCH:
            wait, threshold = self._searches.take("one address", now), 6.0
        elif call in self._intervals:
            wait, threshold = self._intervals[call].take(f"{key} {call}", now), self._intervals[call].seconds
        else:
            return
        if wait is not None:
            self._wording += 1
            style = self._wording
            destroy = request.method == "DELETE" and style % 2 == 0
            raise Refusal(replies.too_often(threshold, style, None, destroy=destroy))

    def serve(self, call: str, handler: Handler) -> None:
        """A route. What no client of this API sends is recorded and gets a 400."""

        def strict(request: Request) -> Reply:
            self.world.settle()
            try:
                if "success_false" in request.faults:
                    text = request.faults["success_false"].get("msg", "Something went wrong.")
                    return Reply(body={"success": False, "msg": text})
                return handler(request)
            except Strange as strange:
                self.violate(f"{request.method} {request.path}: {strange}")
                raise replies.invalid_args(str(strange), error="invalid_request") from None

        self.route(call, strict)

    def _only(self, request: Request, *known: str) -> None:
        if strange := sorted(set(request.query) - {*known, "api_key"}):
            raise Strange(f"unknown query parameters: {', '.join(strange)}")

    def _told(self, request: Request, name: str, default: Any) -> Any:
        """A query parameter's JSON."""
        if name not in request.query:
            return default
        try:
            return json.loads(request.query[name][0])
        except ValueError:
            raise refusal(400, "invalid_args", f"{name} is no JSON") from None


def who(request: Request) -> VastAccount:
    """The customer that asks."""
    account = request.who
    assert isinstance(account, VastAccount)
    return account
