"""Spot pods: rented and resumed by a bid through GraphQL, and given up when another bid is higher.

What the vendor leaves open is the dearest answer: a bid above the price on demand is taken and billed, a pod that was
outbid keeps what it bills while stopped and does not come back by itself, and nothing tells apart an account without
spot, a bid below the floor and no stock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError
from pydantic import ValidationError

from tests.simulators.faults import Choice
from tests.simulators.runpod.pods import ERROR, EXITED, RUNNING, Pod
from tests.simulators.runpod.rest.pods import NO_CAPACITY, NOT_ENOUGH, PodRoutes
from tests.simulators.runpod.shapes import CreatePod
from tests.simulators.simulator import Refusal, Request

if TYPE_CHECKING:
    from tests.simulators.runpod.platform import RunPodSim

NO_SPOT = "There are no longer any instances available with the request specifications. Please try again later."
NO_SPOT_NOW = "There are no instances available with the request specifications. Please try again later."
WRONG = "Something went wrong. Please try again later or contact support."
RENT, RESUME = "podRentInterruptable", "podBidResume"
SPOT_CREATE, SPOT_RESUME = f"POST /graphql/{RENT}", f"POST /graphql/{RESUME}"
SPOT_KINDS = {
    "no_spot": f"{RENT}, {RESUME}: no instances, as for an account without spot; `text`",
    "outbid": f"{RENT}, {RESUME}: it is done and answered, and another bid is higher at once",
    "spot_removed": f"{RENT}, {RESUME}: the API has no such mutation any more; `status` (400)",
}
SPOT_MENU = (
    Choice("no_spot", SPOT_CREATE, {"text": [NO_SPOT, NO_SPOT_NOW]}),
    Choice("no_spot", SPOT_RESUME),
    Choice("outbid", SPOT_CREATE),
    Choice("outbid", SPOT_RESUME),
    Choice("spot_removed", "POST /graphql/*", {"status": [400, 200]}),
    Choice("graphql_error", "POST /graphql/*"),
    Choice("lost_answer", SPOT_CREATE, {"reset": [False, True]}),
    Choice("error_after", SPOT_CREATE, {"status": [500, 502, 503, 504]}),
    Choice("lost_answer", SPOT_RESUME, {"reset": [False, True]}),
    Choice("preempted", "GET /v2/*"),
    Choice("low_balance", SPOT_CREATE),
    Choice("zero_gpus", SPOT_RESUME),
)
"""What a seed draws besides where boxes are rented by bids."""
Shown = Callable[[Pod], dict[str, Any]]


class Spot:
    """See the module."""

    def __init__(self, sim: RunPodSim, routes: PodRoutes) -> None:
        self.sim, self.routes = sim, routes

    def rent(self, request: Request, told: dict[str, Any], shown: Shown) -> dict[str, Any]:
        """`podRentInterruptable`. GraphQLError: nothing was rented."""
        wanted, bid = _wanted(told), told.get("bidPerGpu")
        if not bid or bid <= 0:
            raise _wrong("a spot pod without a bid")
        with _words():
            self._to_be_had(request)
            floor = self.sim.stock.floor(wanted.gpu.id, wanted.cloud) if wanted.gpu.id in self.sim.stock.gpus else 0.0
            if floor is None or bid < floor:
                raise Refusal(self.sim.problem(400, NO_CAPACITY))
            pod = self.routes.rent(request, wanted, bid)
        return self._answer(request, pod, shown)

    def resume(self, request: Request, pod: Pod, told: dict[str, Any], shown: Shown) -> dict[str, Any]:
        """`podBidResume`. GraphQLError: it is as it was."""
        bid, gpu = told["bidPerGpu"], pod.wanted.gpu
        if pod.bid is None or bid <= 0:
            raise _wrong("podBidResume of a pod that is no spot pod, or without a bid")
        if pod.status not in (EXITED, ERROR):
            raise _wrong("podBidResume of a pod that runs")
        if told["gpuCount"] not in (0, pod.gpu_count):  # 0 is not honoured
            raise _wrong("podBidResume with another number of GPUs")
        floor = self.sim.stock.floor(gpu.id, pod.wanted.cloud)
        before = pod.bid, pod.price
        with _words():
            self._to_be_had(request)
            if floor is None or bid < floor:
                raise Refusal(self.sim.problem(400, NO_CAPACITY))
            pod.bid, pod.price = bid, round(bid * pod.gpu_count, 4)
            try:
                self.routes.start(request, pod)
            except Refusal:
                pod.bid, pod.price = before
                raise
        self.sim.book(request, pod.id, "start")
        return self._answer(request, pod, shown)

    def outbid(self, pod: Pod) -> None:
        """Another bid is higher than this pod's."""
        if pod.bid is None:
            raise ValueError(f"{pod.id} is no spot pod")
        self.floor(pod.wanted.gpu.id, pod.wanted.cloud, round(pod.bid + 0.01, 4))

    def floor(self, gpu: str, cloud: str, usd: float) -> None:
        """The least bid that holds from now on; weaker ones give way, all customers' alike."""
        self.sim.stock.floors[gpu, cloud] = usd
        for pod in list(self.sim.pods.all.values()):
            same = (pod.wanted.gpu.id, pod.wanted.cloud) == (gpu, cloud)
            if same and pod.bid is not None and pod.bid < usd and pod.status == RUNNING:
                self.sim.act_preempt(pod.id)

    def _to_be_had(self, request: Request) -> None:
        if rule := request.faults.get("no_spot"):
            raise GraphQLError(rule.get("text", NO_SPOT))

    def _answer(self, request: Request, pod: Pod, shown: Shown) -> dict[str, Any]:
        answer = shown(pod)
        if "outbid" in request.faults:
            self.outbid(pod)
        return answer


def mutation_of(body: bytes) -> str:
    """The write of a spot pod that a call to /graphql carries; empty for any other call."""
    try:
        query = json.loads(body)["query"]
    except (ValueError, KeyError, TypeError):
        return ""
    found = re.search(rf"\b({RENT}|{RESUME})\s*\(", query) if isinstance(query, str) else None
    return found.group(1) if found else ""


def _wanted(told: dict[str, Any]) -> CreatePod:
    """What is asked for, as REST has it. GraphQLError: what can't be rented, in words that do not say what."""
    needed = ("name", "imageName", "gpuTypeId", "gpuCount", "cloudType", "containerDiskInGb")
    if lacking := [name for name in needed if not told.get(name)]:
        raise _wrong(f"a spot pod without {', '.join(lacking)}")
    path = told.get("volumeMountPath")
    mounts: dict[str, Any] = {}
    if told.get("networkVolumeId"):
        mounts["network"] = [{"volumeId": told["networkVolumeId"], "path": path}]
    elif told.get("volumeInGb"):
        mounts["persistent"] = {"size": told["volumeInGb"], "path": path}
    gpu = {
        "id": told["gpuTypeId"],
        "count": told["gpuCount"],
        "allowedCudaVersions": told.get("allowedCudaVersions") or [],
        "minCudaVersion": told.get("minCudaVersion"),
    }
    body = {
        "name": told["name"],
        "image": told["imageName"],
        "gpu": gpu,
        "cloud": told["cloudType"],
        "dataCenterIds": [told["dataCenterId"]] if told.get("dataCenterId") else [],
        "disk": told["containerDiskInGb"],
        "mounts": mounts,
        "ports": [port for port in (told.get("ports") or "").split(",") if port],
        "env": {one["key"]: one["value"] for one in told.get("env") or []},
        "args": told.get("dockerArgs") or "",
    }
    try:
        return CreatePod.model_validate(body)
    except ValidationError as error:
        raise _wrong(str(error)) from None


def _wrong(_why: str) -> GraphQLError:
    """The vendor does not say why."""
    return GraphQLError(WRONG)


@contextmanager
def _words() -> Iterator[None]:
    """A refusal of REST in the words of GraphQL."""
    try:
        yield
    except Refusal as refusal:
        detail, status = refusal.reply.body["detail"], refusal.reply.status
        if detail == NO_CAPACITY:
            raise GraphQLError(NO_SPOT) from None
        told = detail in (NOT_ENOUGH, "access denied") or status == 402
        raise GraphQLError(detail if told else WRONG) from None
