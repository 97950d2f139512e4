"""The simulated Lambda Cloud: accounts, admission, and what happens to an instance behind its owner's back.

Sources: the vendor's OpenAPI document 1.10.0 (https://cloud.lambda.ai/api/v1/openapi.json, kept by the repository
api-evangelist/lambda-labs), its page on rate limits ("Are API requests rate-limited?", LambdaLabs/docsy-lambda-docs),
and what two customers wrote down of real rentals in 2026-08 (the notes of iplane's adapter for Lambda; a survey of four
platforms): a launch took 8.9 s, the address came 71 s later and `active` 173 s after that (others: 238 to 333 s); three
of eleven launches of a listed type were refused for want of capacity; two of three of another came up `unhealthy` and
were billed; a delete of a file system just after a terminate was refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from tests.simulators.clock import VirtualClock
from tests.simulators.faults import Choice
from tests.simulators.lambda_api import catalog, errors
from tests.simulators.lambda_api.hosts import NoHosts, RealHosts
from tests.simulators.lambda_api.instance_routes import API, LAUNCH, LIST, TERMINATE, InstanceRoutes, Key
from tests.simulators.lambda_api.instances import ACTIVE, Instance, Instances, Times
from tests.simulators.ledger import Account
from tests.simulators.own_keys import PLATFORM
from tests.simulators.quotas import IntervalQuota
from tests.simulators.simulator import Refusal, Reply, Request
from tests.simulators.vendor import Vendor, usual

M = TypeVar("M", bound=BaseModel)
KEY, OTHER_KEY = "secret_simulated_of_ann.0001", "secret_simulated_of_bob.0002"
SECONDS, LAUNCH_SECONDS = 1.0, 12.0
"""At most one request in so long, and one launch."""
KINDS = {
    "out_of_capacity": "launch: 400 for want of capacity, though the type is listed",
    "quota": "launch: 400 global/quota-exceeded",
    "bad_address": "launch: 403 global/invalid-address",
    "inactive": "any call: 403 global/account-inactive",
    "forbidden": "any call: 403 global/forbidden",
    "auth": "any call: 401 global/invalid-api-key",
    "provider_down": "any call: provider/internal-unavailable; `status` (503)",
    "boots_stuck": "launch: it boots for ever",
    "boots_unhealthy": "launch: it becomes unhealthy, never active, and bills",
    "late_address": "launch: it shows no address for `reads` (3), also when it is active; None for ever",
    "missing_at_first": "launch: GET is 404 for the first `reads` (2); `in_list`: lists leave it out as often",
    "terminate_lingers": "terminate: it is terminating for `seconds` (600) more, None for ever, and bills",
    "terminate_ignored": "terminate: answered as done, and it runs on",
    "list_terminated": "list: those that were terminated lately, too",
    "stale_list": "list: as it was before the last `writes` (1)",
    "odd_status": "any call: the account's newest instance shows `status` (migrating) for `reads` (1)",
    "preempted": "any call: the account's oldest active instance is preempted first",
    "alert": "any call: the account's oldest active instance was shut down from inside first",
    "vanished": "any call: the account's oldest instance is terminated first",
}
READS = "GET *"
MENU = (
    *usual(LAUNCH, TERMINATE, READS, retry_after=[None]),
    Choice("provider_down", "*", {"status": [503, 500]}),
    Choice("stale_list", LIST, {"writes": [1, 2]}),
    Choice("list_terminated", LIST),
    Choice("out_of_capacity", LAUNCH),
    Choice("quota", LAUNCH),
    Choice("boots_stuck", LAUNCH),
    Choice("boots_unhealthy", LAUNCH),
    Choice("late_address", LAUNCH, {"reads": [1, 3]}),
    Choice("missing_at_first", LAUNCH, {"reads": [1, 2], "in_list": [False, True]}),
    Choice("terminate_lingers", TERMINATE, {"seconds": [30.0, 600.0]}),
    Choice("terminate_ignored", TERMINATE),
    Choice("odd_status", READS, {"status": ["migrating", "rebuilding"]}),
    Choice("preempted", READS),
    Choice("alert", READS),
    Choice("vanished", READS),
)


class LambdaSim(Vendor):
    """See the package. `machines`: instances are real machines, which needs `state`, root and sshd. `limits`: the
    vendor's rate limits hold. Two accounts exist, `ann` (key `KEY`) and `bob`
    (`OTHER_KEY`), each with an SSH key named after it; `add_account` makes more."""

    name, box, up, odd = "lambda_api", "instance", ACTIVE, "migrating"
    befalls: Mapping[str, str] = MappingProxyType({"preempted": "preempt", "alert": "shut_down"})
    base = API
    kinds: Mapping[str, str] = MappingProxyType(KINDS)

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        latency: Mapping[str, float] | None = None,
        state: Path | None = None,
        machines: bool = False,
        times: Times | None = None,
        limits: bool = False,
    ) -> None:
        super().__init__(clock=clock, latency=latency, state=state, machines=machines)
        self.stock = catalog.stock()
        self.keys: dict[str, Key] = {}
        self.hosts = NoHosts()
        if machines and state is not None:
            folder = state / "machines"
            self.hosts = RealHosts(folder, self._keys, self.violate, self.outlets)
        self.instances = Instances(self.ledger, self.timeline, self.stock, times or Times(), self.hosts)
        self._pace = IntervalQuota(SECONDS) if limits else None
        self._launches = IntervalQuota(LAUNCH_SECONDS) if limits else None
        self.add_account("ann", KEY)
        self.add_account("bob", OTHER_KEY)
        InstanceRoutes(self)

    def add_account(self, name: str, key: str, credit: float = 1000.0) -> Account:
        """One more customer, who has one SSH key."""
        account = super().add_account(name, key, credit)
        self.add_key(account.id, f"{name}-key", f"ssh-ed25519 AAAA {name}")
        return account

    def add_key(self, account: str, name: str, public_key: str) -> Key:
        """One more SSH key of an account."""
        id = hashlib.sha256(f"key {len(self.keys) + 1}".encode()).hexdigest()[:32]
        self.keys[id] = Key(id, account, name, public_key)
        return self.keys[id]

    def key_named(self, account: str, name: str) -> Key | None:
        """The SSH key of an account with this name."""
        return next((one for one in self.keys.values() if (one.account, one.name) == (account, name)), None)

    # Admission and envelopes

    def admit(self, request: Request) -> None:
        self.settle()
        account = self.customer(self.key_of(request))
        if account is None or "auth" in request.faults:
            raise errors.refusal(errors.INVALID_KEY)
        request.account = account
        self._limit(request)
        for kind, code in (("inactive", errors.INACTIVE), ("forbidden", errors.FORBIDDEN)):
            if kind in request.faults:
                raise errors.refusal(code)
        if rule := request.faults.get("provider_down"):
            raise errors.refusal(errors.UNAVAILABLE, status=rule.get("status", 503))
        self.befall(request)

    def _limit(self, request: Request) -> None:
        now = self.clock.now()
        for quota, applies in ((self._pace, True), (self._launches, f"{request.method} {request.route}" == LAUNCH)):
            if quota and applies and quota.take(request.who.id, now) is not None:
                raise Refusal(self.too_many(None))

    def problem(self, status: int, detail: str) -> Reply:
        return errors.of_status(status, detail)

    def too_many(self, retry_after: float | None) -> Reply:
        """Of the proxy that stands before the API: no JSON. The vendor documents no Retry-After."""
        reply = Reply(429, b"error code: 1015", content_type="text/plain; charset=UTF-8")
        if retry_after is not None:
            reply.headers["Retry-After"] = f"{retry_after:g}"
        return reply

    # What handlers use

    def body(self, request: Request, model: type[M]) -> M:
        """The body as its model; 400 otherwise. An unknown field fails the test, too. The content type is not looked
        at: the vendor's examples send JSON as curl's default."""
        try:
            value = request.json()
        except ValueError:
            raise errors.refusal(errors.INVALID, "The body is no JSON.") from None
        return self.checked(model, value, request)

    def invalid(self, reasons: list[str]) -> Refusal:
        return errors.refusal(errors.INVALID, "; ".join(reasons))

    def shown(self, account: str) -> list[Any]:
        return [self.instances.row(one) for one in self.instances.of(account)]

    # Behind the client's back

    def boxes(self) -> Mapping[str, Instance]:
        return self.instances.all

    def oldest_first(self, account: str) -> list[Instance]:
        return self.instances.of(account)

    def finish(self, one: Instance) -> None:
        self.instances.end(one)

    def outline(self) -> dict[str, Any]:
        self.settle()
        instances = {
            one.id: {"account": one.account, "name": one.name, "status": one.status, "history": one.history}
            for one in [*self.instances.all.values(), *self.instances.gone.values()]
        }
        return {"instances": instances}

    def act_shut_down(self, id: str) -> None:
        """Its system is powered off from inside: the console's state Alert, and it bills on."""
        self.instances.shut_down(self.found(id))

    def act_preempt(self, id: str) -> None:
        """The vendor takes it back."""
        one = self.found(id)
        self.ledger.note(id, "preempt", PLATFORM)
        self.remember(one.account)
        self.instances.preempt(one)

    def act_empty(self, name: str | None = None, place: str | None = None) -> None:
        """No more stock: of a type or all, in a region or everywhere."""
        self.stock.empty(name, place)

    def close(self) -> None:
        self.hosts.close()

    # What its machines have

    def _keys(self, one: Instance) -> list[str]:
        """Read once, at the launch: a key that is added to the account later opens nothing."""
        named = (self.key_named(one.account, name) for name in one.wanted.ssh_key_names)
        return [key.public_key for key in named if key is not None]

    def log(self, request: Request, status: int) -> None:
        """Also which instances a terminate names, which its path does not: a line for each."""
        path = request.path
        for id in _named(request):
            request.path = f"{path}/{id}"
            super().log(request, status)
        request.path = path
        if not _named(request):
            super().log(request, status)


def _named(request: Request) -> list[str]:
    """The instances that the body of a terminate names."""
    if f"{request.method} {request.route}" != TERMINATE:
        return []
    try:
        told = request.json()
    except ValueError:
        return []
    ids = told.get("instance_ids") if isinstance(told, dict) else None
    return [str(id) for id in ids] if isinstance(ids, list) else []
