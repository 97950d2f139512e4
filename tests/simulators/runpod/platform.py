"""The simulated RunPod: accounts, admission, and what can happen to a pod behind its owner's back."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from tests.simulators.clock import VirtualClock
from tests.simulators.faults import Choice
from tests.simulators.own_keys import PLATFORM
from tests.simulators.quotas import WindowQuota
from tests.simulators.runpod.catalog import Stock
from tests.simulators.runpod.graphql import GraphQL
from tests.simulators.runpod.hosts import NoHosts, RealHosts
from tests.simulators.runpod.pods import EXITED, RUNNING, Boot, Pod, Pods
from tests.simulators.runpod.rest.market import MarketRoutes
from tests.simulators.runpod.rest.pods import PodRoutes
from tests.simulators.runpod.rest.volumes import VolumeRoutes
from tests.simulators.runpod.spot import SPOT_KINDS, Spot, mutation_of
from tests.simulators.runpod.volumes import Volumes
from tests.simulators.simulator import Handler, Refusal, Reply, Request
from tests.simulators.vendor import Vendor, usual

M = TypeVar("M", bound=BaseModel)
KEY, OTHER_KEY = "rpa_simulated_key_of_ann_0001", "rpa_simulated_key_of_bob_0002"
MOST_BYTES = 102_400
KINDS = {
    "out_of_capacity": "create: 400 with the text for no capacity",
    "low_balance": "create, start: 402",
    "no_permission": "create: 403 access denied, as for a pool",
    "never_ready": "create, start: runtime and ssh never come; `status` (RUNNING)",
    "dies_while_starting": "create, start: `status` (EXITED) after `reads` (2)",
    "missing_at_first": "create: GET is 404 for the first `reads` (2); `in_list`: lists leave it out as often",
    "zero_gpus": "create, start: it runs with `count` (0) GPUs",
    "start_no_gpus": "start: 400, the host has no free GPUs",
    "delete_lingers": "delete, terminate: 204, and it is there for `reads` (3) more, None for ever; `status` to show",
    "stale_list": "list: as it was before the last `writes` (1)",
    "short_page": "list: `limit` (1) a page",
    "odd_status": "any call: the account's newest pod shows `status` (MIGRATING) for `reads` (1)",
    "preempted": "any call: the account's oldest running pod is stopped first",
    "vanished": "any call: the account's oldest pod is terminated first, as when the money runs out",
    "auth": "any call: the key is not accepted, 401",
    "no_key": "create, start: its machine has no key of its own in its environment",
    "no_pod_keys": "REST v2: it does not take the keys of pods; `status` (403)",
    "stop_ignored": "stop: answered as done, and it runs on",
    "retired": "any call: 410; at `GRAPHQL`: the whole older interface is no more",
    "no_account": "account: 404, as before REST v2 had it",
    "graphql_error": "GraphQL: 200 with `errors`; `message`",
    **SPOT_KINDS,
}
GRAPHQL = "POST /graphql*"
LIST, GET, CREATE, DELETE = "GET /v2/pods", "GET /v2/pods/{id}", "POST /v2/pods", "DELETE /v2/pods/{id}"
READS = "GET /v2/*"
MENU = (
    *usual(CREATE, DELETE, READS, late=[500, 502, 503, 504]),
    Choice("stale_list", LIST, {"writes": [1, 2]}),
    Choice("short_page", LIST),
    Choice("out_of_capacity", CREATE),
    Choice("low_balance", CREATE),
    Choice("no_permission", CREATE),
    Choice("never_ready", CREATE, {"status": ["RUNNING", "STARTING"]}),
    Choice("dies_while_starting", CREATE, {"reads": [0, 1, 2], "status": ["EXITED", "ERROR"]}),
    Choice("missing_at_first", CREATE, {"reads": [1, 2], "in_list": [False, True]}),
    Choice("zero_gpus", CREATE),
    Choice("delete_lingers", DELETE, {"reads": [1, 3], "status": ["", "TERMINATED", "EXITED"]}),
    Choice("odd_status", READS, {"status": ["MIGRATING", "PAUSED"]}),
    Choice("preempted", READS),
    Choice("vanished", READS),
    Choice("graphql_error", "POST /graphql"),
)


class RunPodSim(Vendor):
    """See the package. `machines`: pods are real machines, which needs `state`, root and sshd. `boot`: how pods become
    ready. Two accounts exist, `ann` (key `KEY`) and `bob` (`OTHER_KEY`); `add_account` makes more."""

    name, box, up, odd = "runpod", "pod", RUNNING, "MIGRATING"
    befalls: Mapping[str, str] = MappingProxyType({"preempted": "preempt"})
    kinds: Mapping[str, str] = MappingProxyType(KINDS)

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        latency: Mapping[str, float] | None = None,
        state: Path | None = None,
        machines: bool = False,
        boot: Boot | None = None,
        per_minute: int | None = None,
    ) -> None:
        super().__init__(clock=clock, latency=latency, state=state, machines=machines)
        self.stock = Stock()
        self.hosts = (
            RealHosts(state / "machines", self.violate, self.outlets, self.own_keys)
            if machines and state
            else NoHosts()
        )
        self.pods = Pods(self.clock, self.ledger, self.stock, self.hosts, boot or Boot(), self.own_keys)
        self.volumes = Volumes(self.ledger, state / "volumes" if state else None)
        self.bill_every = 0.0
        """Seconds between two postings of charges (the vendor's are about 300); 0: each is on the bill at once."""
        self.quota = WindowQuota(per_minute) if per_minute else None
        self.add_account("ann", KEY)
        self.add_account("bob", OTHER_KEY)
        self.spot = Spot(self, PodRoutes(self))
        VolumeRoutes(self)
        MarketRoutes(self)
        GraphQL(self)
        self.route("* /v1{rest*}", self._retired)

    def find(self, request: Request) -> Handler | None:
        """As ever; the writes of spot pods have routes of their own for faults and the log: all are one address."""
        handler = super().find(request)
        if request.route == "/graphql" and (name := mutation_of(request.body)):
            request.route = f"/graphql/{name}"
        return handler

    # Admission and envelopes

    def admit(self, request: Request) -> None:
        agent = request.headers.get("user-agent", "")
        if not agent or agent.startswith("Python-urllib"):
            self.violate(f"{request.method} {request.path}: no User-Agent that the platform lets through")
            raise Refusal(_page(403))
        if "retired" in request.faults:
            raise Refusal(self._retired(request))
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not key:
            raise Refusal(self.problem(401, "missing bearer token"))
        account = self.customer(key)
        if own := self.own_keys.holder(key):
            account = self.accounts[own.account]
        if account is None or "auth" in request.faults:
            raise Refusal(self.problem(401, "invalid bearer token"))
        request.account = account
        if len(request.body) > MOST_BYTES:
            raise Refusal(self.problem(413, "request body too large"))
        if self.quota and (after := self.quota.take(account.id, self.clock.now())) is not None:
            raise Refusal(self.too_many(after))
        if request.box:
            self._narrow(request)
        self.befall(request)

    def _narrow(self, request: Request) -> None:
        """What a pod may do by its own key: stop and terminate itself, by what the vendor's own tool in it sends, and
        by REST v2, which is not proved. People who tried to read with it say that it may do nothing else."""
        if request.path == "/graphql":
            return  # its resolvers say which
        if rule := request.faults.get("no_pod_keys"):
            raise Refusal(self.problem(rule.get("status", 403), "access denied"))
        itself = request.params.get("id") == request.box
        call = f"{request.method} {request.route}"
        if not itself or call not in ("POST /v2/pods/{id}/action", DELETE):
            raise Refusal(self.problem(403, "access denied"))

    def decorate(self, request: Request, reply: Reply) -> None:
        """The two headers of the vendor, on REST."""
        if request.path.startswith("/v2/"):
            limit = self.quota.limit if self.quota else 60
            left = self.quota.left(request.who.id, self.clock.now()) if self.quota else 60
            reset = self.quota.reset(request.who.id, self.clock.now()) if self.quota else 60
            reply.headers["RateLimit"] = f'"minute";r={left};t={reset}, "hour";r=2900;t=3600, "day";r=49000;t=86400'
            policy = f'"minute";q={limit};w=60, "hour";q=3000;w=3600, "day";q=50000;w=86400'
            reply.headers["RateLimit-Policy"] = policy

    def problem(self, status: int, detail: str, errors: list[str] | None = None) -> Reply:
        """`application/problem+json`."""
        titles = {400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found"}
        titles |= {409: "Conflict", 410: "Gone", 413: "Content Too Large", 422: "Unprocessable Entity"}
        titles |= {429: "Too Many Requests"}
        body: dict[str, Any] = {"title": titles.get(status, "Internal Server Error"), "status": status}
        body |= {"detail": detail, **({"errors": errors} if errors else {})}
        return Reply(status, body, content_type="application/problem+json")

    def too_many(self, retry_after: float | None) -> Reply:
        reply = self.problem(429, "rate limit exceeded for the minute window")
        if retry_after is not None:
            reply.headers["Retry-After"] = str(int(retry_after))
        return reply

    def _retired(self, request: Request) -> Reply:
        if "retired" not in request.faults:
            self.violate(f"{request.method} {request.path}: REST v1 is retired")
        return self.problem(410, "This API version has been retired.")

    # What handlers use

    def body(self, request: Request, model: type[M]) -> M:
        """The body as its model; 422 otherwise. An unknown field fails the test, too."""
        if not request.headers.get("content-type", "").startswith("application/json"):
            self.violate(f"{request.method} {request.route}: Content-Type is not application/json")
        try:
            value = request.json()
        except ValueError:
            self.violate(f"{request.method} {request.route}: the body is no JSON")
            raise Refusal(self.problem(400, "malformed JSON")) from None
        return self.checked(model, value, request)

    def invalid(self, reasons: list[str]) -> Refusal:
        return Refusal(self.problem(422, "Request validation failed.", reasons))

    def number(self, request: Request, name: str, default: int) -> int:
        """A query parameter from 1 to 1000; 422 otherwise."""
        text = request.query.get(name, [str(default)])[0]
        if not text.isdigit() or not 1 <= int(text) <= 1000:
            raise self.invalid([f"$.{name}: must be from 1 to 1000"])
        return int(text)

    def shown(self, account: str) -> list[Any]:
        return [copy(pod) for pod in self.pods.of(account)]

    def before(self, account: str, writes: int) -> list[Any]:
        return [self.pods.outline(pod) for pod in super().before(account, writes)]

    # Behind the client's back

    def boxes(self) -> Mapping[str, Pod]:
        return self.pods.all

    def oldest_first(self, account: str) -> list[Pod]:
        return self.pods.of(account)[::-1]

    def finish(self, one: Pod) -> None:
        self.pods.end(one)

    def outline(self) -> dict[str, Any]:
        pods = {
            pod.id: {"account": pod.account, "name": pod.name, "status": pod.status, "history": pod.history}
            for pod in [*self.pods.all.values(), *self.pods.gone.values()]
        }
        volumes = {volume.id: volume.outline() for volume in self.volumes.all.values()}
        return {"pods": pods, "volumes": volumes}

    def act_preempt(self, id: str) -> None:
        """Another customer pays more, or the host fails: it is stopped. A spot pod gets SIGTERM first."""
        pod = self.found(id)
        self.ledger.note(id, "stop", PLATFORM)
        self.pods.stop(pod, EXITED, "Exited by Runpod", notice=pod.bid is not None)

    def act_outbid(self, id: str) -> None:
        """Another customer bids more: the least bid for its GPUs rises above its own."""
        self.spot.outbid(self.found(id))

    def act_floor(self, gpu: str, cloud: str, usd: float) -> None:
        """The least bid for a type's GPUs becomes this, USD an hour for a single one: weaker ones give way."""
        self.spot.floor(gpu, cloud, usd)

    def act_duplicate(self, id: str) -> str:
        """A second pod of the same name and env appears, as after a blind retry. Returns its id."""
        pod = self.found(id)
        self.remember(pod.account)
        self.stock.take(pod.wanted.gpu.id, pod.wanted.cloud, pod.place, pod.gpu_count)
        return self.pods.create(
            pod.account, pod.wanted, dict(pod.env), pod.place, pod.volume, pod.price, bid=pod.bid
        ).id

    def act_credit(self, account: str, usd: float) -> None:
        """What an account has left becomes this much."""
        self.accounts[account].credit = self.ledger.spent(account) + usd

    def act_isolate(self, id: str, isolated: bool = True) -> None:
        """The network of its machine is gone, both ways; or there again."""
        self.found(id)
        if not isinstance(self.hosts, RealHosts):
            raise ValueError("these pods are no machines")
        self.hosts.machine(id).isolate(isolated)

    def act_session_env(self, on: bool = True) -> None:
        """From the next boots on, sessions over SSH have the vendor's variables, too."""
        self.hosts.session_env = on

    def act_empty(self, gpu: str | None = None, where: str | None = None) -> None:
        """No more stock."""
        self.stock.empty(gpu, where)

    def close(self) -> None:
        self.hosts.close()


def _page(status: int) -> Reply:
    body = b"<html><title>Access denied</title>error code: 1010</html>"
    return Reply(status, body, content_type="text/html; charset=UTF-8")
