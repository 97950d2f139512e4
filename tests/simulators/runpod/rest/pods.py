"""REST v2: pods. Each refusal is one that the vendor documents, or that was seen; texts that are unknown are ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulators.runpod import catalog
from tests.simulators.runpod.pods import ACTIONS, EXITED, RUNNING, Pod
from tests.simulators.runpod.shapes import Action, CreatePod
from tests.simulators.runpod.volumes import Volume
from tests.simulators.simulator import Refusal, Reply, Request

if TYPE_CHECKING:
    from tests.simulators.runpod.platform import RunPodSim

NO_CAPACITY = (
    "There are no longer any instances available with the requested specifications. Please refresh and try again."
)
NOT_ENOUGH = "There are not enough free GPUs on the host machine to start this pod."
SPOT_ON_DEMAND = "Cannot resume a spot pod as an on demand pod."
NO_DISK = "You must either provide a template id or pod configuration parameters"


class PodRoutes:
    """Handlers of /v2/pods."""

    def __init__(self, sim: RunPodSim) -> None:
        self.sim = sim
        sim.route("GET /v2/pods", self.index)
        sim.route("POST /v2/pods", self.create)
        sim.route("GET /v2/pods/{id}", self.get)
        sim.route("DELETE /v2/pods/{id}", self.delete)
        sim.route("POST /v2/pods/{id}/action", self.action)

    def index(self, request: Request) -> Reply:
        """Newest first; pages only when asked for, or when a fault makes one short."""
        sim, pods = self.sim, self.sim.pods
        sim.known_query(request, "limit", "cursor")
        if old := request.faults.get("stale_list"):
            return Reply(body=self._page(request, sim.before(request.who.id, old.get("writes", 1))))
        for pod in pods.of(request.who.id):
            pods.look(pod)
        found = []
        for pod in pods.of(request.who.id):
            if pod.hidden_in_list and pod.hidden > 0:
                pod.hidden -= 1
            else:
                found.append(pods.outline(pod))
        return Reply(body=self._page(request, found))

    def _page(self, request: Request, found: list[dict[str, Any]]) -> dict[str, Any]:
        limit = self.sim.number(request, "limit", 1000)
        cursor = request.query.get("cursor", ["c0"])[0]
        if not cursor.startswith("c") or not cursor[1:].isdigit():
            raise Refusal(self.sim.problem(422, "Request validation failed.", ["$.cursor: malformed"]))
        if short := request.faults.get("short_page"):
            limit = min(limit, short.get("limit", 1))
        begin = int(cursor[1:])
        more = begin + limit < len(found)
        pagination = {"nextCursor": f"c{begin + limit}" if more else None, "hasNextPage": more}
        return {"pods": found[begin : begin + limit], "pagination": pagination}

    def get(self, request: Request) -> Reply:
        """One pod. 404 for one that is not there, is another account's, or is not known everywhere yet."""
        self.sim.known_query(request)
        pod = self._pod(request)
        if pod.hidden > 0:
            pod.hidden -= 1
            raise Refusal(self._missing())
        self.sim.pods.look(pod)
        if pod.id not in self.sim.pods.all:
            raise Refusal(self._missing())
        return Reply(body=self.sim.pods.outline(pod))

    def create(self, request: Request) -> Reply:
        """Rents on demand."""
        self.sim.known_query(request)
        pod = self.rent(request, self.sim.body(request, CreatePod))
        return Reply(201, self.sim.pods.outline(pod))

    def rent(self, request: Request, wanted: CreatePod, bid: float | None = None) -> Pod:
        """Rents, on demand or for a bid (USD an hour for a single GPU). Refusal: in the words of REST.

        The order of the checks is ours, where the vendor does not say.
        """
        sim = self.sim
        self._plausible(wanted)
        volume = self._volume(request, wanted)
        price = self._price(wanted, bid)
        self._money(request, price)
        if "no_permission" in request.faults:
            raise Refusal(sim.problem(403, "access denied"))
        place = self._place(request, wanted, volume)
        if wanted.disk is None:
            raise Refusal(sim.problem(400, NO_DISK))
        sim.remember(request.who.id)
        gpus = self._gpus(request, wanted.gpu.count or 0)
        sim.stock.take(wanted.gpu.id, wanted.cloud, place, gpus)
        env = dict(wanted.env)
        keyless = "no_key" in request.faults
        pod = sim.pods.create(request.who.id, wanted, env, place, volume, price, gpus, keyless=keyless, bid=bid)
        sim.book(request, pod.id, "create")
        self._curse(request, pod)
        return pod

    def _plausible(self, wanted: CreatePod) -> None:
        sim = self.sim
        if wanted.mounts.persistent and wanted.mounts.network is not None:
            raise Refusal(sim.problem(400, "mounts.persistent and mounts.network are mutually exclusive"))
        if wanted.mounts.network == []:
            raise Refusal(sim.problem(400, "mounts.network must not be empty"))
        if wanted.gpu.allowedCudaVersions and wanted.gpu.minCudaVersion:
            raise Refusal(sim.problem(400, "allowedCudaVersions and minCudaVersion are mutually exclusive"))
        if wanted.gpu.id not in sim.stock.gpus:
            raise Refusal(sim.problem(400, f"gpu {wanted.gpu.id!r} is not a GPU type"))

    def _volume(self, request: Request, wanted: CreatePod) -> Volume | None:
        if not wanted.mounts.network:
            return None
        volume = self.sim.volumes.all.get(wanted.mounts.network[0].volumeId)
        if volume is None or volume.account != request.who.id:
            raise Refusal(self.sim.problem(400, "network volume not found"))
        if wanted.cloud != catalog.SECURE:
            raise Refusal(self.sim.problem(400, "Something went wrong. Please try again later or contact support."))
        return volume

    def _price(self, wanted: CreatePod, bid: float | None) -> float:
        price = self.sim.stock.gpus[wanted.gpu.id].price(wanted.cloud) if bid is None else bid
        return round((price or 0.0) * (wanted.gpu.count or 0), 4)

    def _money(self, request: Request, price: float) -> None:
        """New compute needs credit for an hour of it."""
        sim = self.sim
        if sim.ledger.balance(request.who) < price or "low_balance" in request.faults:
            raise Refusal(sim.problem(402, "Your account balance is too low to rent this pod. Please add funds."))

    def _place(self, request: Request, wanted: CreatePod, volume: Volume | None) -> str | None:
        """Where it goes; 400 with the text that means no capacity, and much else besides."""
        centers = list(wanted.dataCenterIds)
        if volume is not None:
            centers = [volume.center] if not centers or volume.center in centers else ["nowhere"]
        if "out_of_capacity" in request.faults:
            raise Refusal(self.sim.problem(400, NO_CAPACITY))
        if wanted.gpu.count is None:  # the spec says that it is 1 then; machines say otherwise
            raise Refusal(self.sim.problem(400, NO_CAPACITY))
        kind = self.sim.stock.gpus[wanted.gpu.id]
        cuda = [v for v in kind.cuda if not wanted.gpu.allowedCudaVersions or v in wanted.gpu.allowedCudaVersions]
        if least := wanted.gpu.minCudaVersion:
            cuda = [v for v in cuda if _version(v) >= _version(least)]
        places = self.sim.stock.places(wanted.gpu.id, wanted.cloud, wanted.gpu.count, centers)
        if wanted.gpu.count > kind.most or not cuda or not places:
            raise Refusal(self.sim.problem(400, NO_CAPACITY))
        return places[0]

    def _curse(self, request: Request, pod: Pod) -> None:
        """What a fault at its start makes of a pod."""
        faults = request.faults
        if rule := faults.get("never_ready"):
            pod.never_ready = rule.get("status", RUNNING)
        if rule := faults.get("dies_while_starting"):
            pod.dies = (rule.get("reads", 2), rule.get("status", EXITED))
        if rule := faults.get("missing_at_first"):
            pod.hidden, pod.hidden_in_list = rule.get("reads", 2), rule.get("in_list", False)

    def _gpus(self, request: Request, count: int) -> int:
        """How many it really gets."""
        rule = request.faults.get("zero_gpus")
        return int(rule.get("count", 0)) if rule else count

    def delete(self, request: Request) -> Reply:
        """Ends the pod, or says so."""
        self.sim.known_query(request)
        pod = self._pod(request)
        self.sim.remember(request.who.id)
        self.sim.book(request, pod.id, "terminate")
        if rule := request.faults.get("delete_lingers"):
            pod.lingers, pod.lingering = True, rule.get("reads", 3)
            pod.lingering_as = rule.get("status", "")
        elif not (pod.lingers and pod.lingering is not None):
            self.sim.pods.end(pod)
        return Reply(204)

    def action(self, request: Request) -> Reply:
        """start, stop; 409 where the status allows it not."""
        sim = self.sim
        sim.known_query(request)
        pod = self._pod(request)
        verb = sim.body(request, Action).action
        if request.box and verb != "stop":
            raise Refusal(sim.problem(403, "access denied"))
        status = sim.pods.status(pod) if not pod.odd_status else pod.status
        allowed = ["terminate"] if pod.lingers and pod.lingering_as else ACTIONS.get(status, [])
        if verb not in allowed:
            raise Refusal(sim.problem(409, f"action {verb} is not allowed while the pod is {status}"))
        ignored = verb == "stop" and "stop_ignored" in request.faults
        if verb == "start":
            if pod.bid is not None:
                raise Refusal(sim.problem(400, SPOT_ON_DEMAND))
            self.start(request, pod)
        elif not ignored:
            sim.pods.stop(pod, grace=bool(request.box))
        sim.book(request, pod.id, verb, done=not ignored)
        shown = sim.pods.outline(pod)
        return Reply(body={**shown, "status": EXITED, "actions": ACTIONS[EXITED]} if ignored else shown)

    def start(self, request: Request, pod: Pod) -> None:
        """From EXITED or ERROR on, at the pod's price. Refusal: in the words of REST."""
        sim, gpu = self.sim, pod.wanted.gpu
        self._money(request, pod.price)
        count = self._gpus(request, pod.gpu_count)
        if "start_no_gpus" in request.faults or not sim.stock.take(gpu.id, pod.wanted.cloud, pod.place, count):
            raise Refusal(sim.problem(400, NOT_ENOUGH))
        sim.remember(request.who.id)
        pod.keyless = "no_key" in request.faults
        sim.pods.start(pod, gpus=count)
        self._curse(request, pod)

    def _pod(self, request: Request) -> Pod:
        pod = self.sim.pods.all.get(request.params["id"])
        if pod is None or pod.account != request.who.id:
            raise Refusal(self._missing())
        return pod

    def _missing(self) -> Reply:
        return self.sim.problem(404, "pod not found")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
