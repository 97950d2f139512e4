"""REST v2: pods. Each refusal is one that the vendor documents, or that was seen; texts that are unknown are ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulators.runpod import catalog
from tests.simulators.runpod.pods import ACTIONS, EXITED, RUNNING, Pod
from tests.simulators.runpod.shapes import Action, CreatePod, PatchPod
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
        sim.route("PATCH /v2/pods/{id}", self.patch)
        sim.route("DELETE /v2/pods/{id}", self.delete)
        sim.route("POST /v2/pods/{id}/action", self.action)

    def index(self, request: Request) -> Reply:
        """Newest first; pages only when asked for, or when a fault makes one short."""
        sim, pods = self.sim, self.sim.pods
        sim.known_query(request, "includeClusterPods", "limit", "cursor")
        if old := request.faults.get("stale_list"):
            return Reply(body=self._page(request, sim.before(request.who.id, old.get("writes", 1))))
        for pod in pods.of(request.who.id):
            pods.look(pod)
        with_clusters = request.query.get("includeClusterPods") == ["true"]
        found = []
        for pod in pods.of(request.who.id):
            if pod.hidden_in_list and pod.hidden > 0:
                pod.hidden -= 1
            elif with_clusters or not pod.cluster:
                found.append(pods.outline(pod))
        if "empty_list" in request.faults:
            found = []
        return Reply(body=self._page(request, found))

    def _page(self, request: Request, found: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.sim.paging:
            return {"pods": found}
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
        gpus = self._gpus(request, wanted.gpu.count or 0) if wanted.gpu else 0
        if wanted.gpu:
            sim.stock.take(wanted.gpu.id, wanted.cloud, place, gpus)
        env = dict(wanted.env)
        if wanted.startSsh and "PUBLIC_KEY" not in env and (keys := sim.ssh_keys.get(request.who.id)):
            env["PUBLIC_KEY"] = "\n".join(keys)
        keyless = "no_key" in request.faults
        pod = sim.pods.create(request.who.id, wanted, env, place, volume, price, gpus, keyless=keyless, bid=bid)
        sim.book(request, pod.id, "create")
        self._curse(request, pod)
        return pod

    def _plausible(self, wanted: CreatePod) -> None:
        sim = self.sim
        if (wanted.gpu is None) == (wanted.cpu is None):
            raise Refusal(sim.problem(400, "exactly one of gpu and cpu must be given"))
        if wanted.image is None and wanted.templateId is None:
            raise Refusal(sim.problem(422, "Request validation failed.", ["$: missing property 'image'"]))
        if wanted.templateId is not None:
            raise Refusal(sim.problem(404, "template not found"))
        if wanted.mounts.persistent and wanted.mounts.network is not None:
            raise Refusal(sim.problem(400, "mounts.persistent and mounts.network are mutually exclusive"))
        if wanted.mounts.network == []:
            raise Refusal(sim.problem(400, "mounts.network must not be empty"))
        if wanted.cpu and wanted.mounts.persistent:
            raise Refusal(sim.problem(400, "a CPU pod takes no persistent mount"))
        if wanted.gpu and wanted.gpu.allowedCudaVersions and wanted.gpu.minCudaVersion:
            raise Refusal(sim.problem(400, "allowedCudaVersions and minCudaVersion are mutually exclusive"))
        if wanted.registry is not None and wanted.registry not in sim.registries:
            raise Refusal(sim.problem(400, "registry credential not found"))
        if wanted.gpu and wanted.gpu.id not in sim.stock.gpus:
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
        if wanted.cpu:
            return round(wanted.cpu.vcpuCount * catalog.CPU_PRICE, 4)
        assert wanted.gpu
        price = self.sim.stock.gpus[wanted.gpu.id].price(wanted.cloud) if bid is None else bid
        return round((price or 0.0) * (wanted.gpu.count or 0), 4)

    def _money(self, request: Request, price: float) -> None:
        """New compute needs credit for an hour of it, and room below the account's limit."""
        sim, who = self.sim, request.who
        short = sim.billing_mode == "PREPAID" and sim.ledger.balance(who) < price
        if short or "low_balance" in request.faults:
            raise Refusal(sim.problem(402, "Your account balance is too low to rent this pod. Please add funds."))
        if sim.ledger.rate(who.id, "pod") + price > sim.spend_limit:
            raise Refusal(sim.problem(402, "This pod would exceed the hourly spend limit of your account."))

    def _place(self, request: Request, wanted: CreatePod, volume: Volume | None) -> str | None:
        """Where it goes; 400 with the text that means no capacity, and much else besides."""
        centers = list(wanted.dataCenterIds)
        if volume is not None:
            centers = [volume.center] if not centers or volume.center in centers else ["nowhere"]
        if "out_of_capacity" in request.faults:
            raise Refusal(self.sim.problem(400, NO_CAPACITY))
        if wanted.gpu is None:
            return centers[0] if centers else next(iter(self.sim.stock.centers))
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

    def patch(self, request: Request) -> Reply:
        """Edits in place; whatever the container is made from makes it anew when it runs."""
        sim = self.sim
        sim.known_query(request)
        pod = self._pod(request)
        change = sim.body(request, PatchPod)
        if pod.cluster:
            raise Refusal(sim.problem(409, "the pod is a member of a cluster"))
        given = change.model_fields_set
        mounts = pod.wanted.mounts.model_copy(deep=True)
        if change.mounts is not None:
            self._remount(mounts, change)
        if change.registry is not None and change.registry not in sim.registries:
            raise Refusal(sim.problem(400, "registry credential not found"))
        if change.templateId is not None:
            raise Refusal(sim.problem(404, "template not found"))
        sim.remember(request.who.id)
        plain = {name: getattr(change, name) for name in given - {"mounts", "env", "templateId"}}
        plain = {name: value for name, value in plain.items() if value is not None or name == "registry"}
        pod.wanted = pod.wanted.model_copy(update={**plain, "mounts": mounts})
        if change.env is not None:
            pod.env = dict(change.env)
        sim.ledger.retag(pod.id, pod.wanted.name)
        if pod.status == RUNNING and given - {"name", "locked"}:
            sim.pods.restart(pod)
        else:
            sim.ledger.turn(pod.id, sim.ledger.get(pod.id).state, sim.pods.rate(pod))
        return Reply(body=sim.pods.outline(pod))

    def _remount(self, mounts: Any, change: PatchPod) -> None:
        problem = self.sim.problem
        assert change.mounts is not None
        if change.mounts.network is not None:
            if not change.mounts.network or not mounts.network:
                raise Refusal(problem(400, "mounts.network can neither be added nor removed"))
            if change.mounts.network[0].volumeId != mounts.network[0].volumeId:
                raise Refusal(problem(400, "a pod keeps its network volume"))
            mounts.network[0].path = change.mounts.network[0].path
        if kept := change.mounts.persistent:
            if mounts.persistent is None:
                raise Refusal(problem(400, "mounts.persistent can't be added"))
            if kept.size is not None and kept.size < mounts.persistent.size:
                raise Refusal(problem(400, "a volume disk can only grow"))
            mounts.persistent.size = kept.size or mounts.persistent.size
            mounts.persistent.path = kept.path or mounts.persistent.path

    def delete(self, request: Request) -> Reply:
        """Ends the pod, or says so."""
        self.sim.known_query(request)
        pod = self._pod(request)
        if pod.cluster:
            raise Refusal(self.sim.problem(409, "the pod is a member of a cluster"))
        return self._end(request, pod)

    def _end(self, request: Request, pod: Pod) -> Reply:
        self.sim.remember(request.who.id)
        self.sim.book(request, pod.id, "terminate")
        if rule := request.faults.get("delete_lingers"):
            pod.lingers, pod.lingering = True, rule.get("reads", 3)
            pod.lingering_as = rule.get("status", "")
        elif not (pod.lingers and pod.lingering is not None):
            self.sim.pods.end(pod)
        return Reply(204)

    def action(self, request: Request) -> Reply:
        """start, stop, restart, terminate; 409 where the status allows it not."""
        sim = self.sim
        sim.known_query(request)
        pod = self._pod(request)
        verb = sim.body(request, Action).action
        if request.box and verb not in ("stop", "terminate"):
            raise Refusal(sim.problem(403, "access denied"))
        status = sim.pods.status(pod) if not pod.odd_status else pod.status
        allowed = ["terminate"] if pod.lingers and pod.lingering_as else ACTIONS.get(status, [])
        if pod.cluster or "conflict" in request.faults or verb not in allowed:
            raise Refusal(sim.problem(409, f"action {verb} is not allowed while the pod is {status}"))
        if pod.wanted.locked and verb in ("stop", "restart"):
            raise Refusal(sim.problem(409, "the pod is locked"))
        if verb == "terminate":
            return self._end(request, pod)
        if verb == "stop" and "stop_refused" in request.faults:
            raise Refusal(sim.problem(400, "This pod can't be stopped. Please terminate it instead."))
        ignored = verb == "stop" and "stop_ignored" in request.faults
        if verb == "start":
            if pod.bid is not None:
                raise Refusal(sim.problem(400, SPOT_ON_DEMAND))
            self.start(request, pod)
        elif verb == "restart":
            sim.pods.restart(pod)
        elif rule := request.faults.get("stop_lingers"):
            pod.stops_late = rule.get("reads", 3)
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
        if gpu and (
            "start_no_gpus" in request.faults or not sim.stock.take(gpu.id, pod.wanted.cloud, pod.place, count)
        ):
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
