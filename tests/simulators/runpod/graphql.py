"""GraphQL: what the official SDK and the console's documents send, against a schema with nothing else in it.

Reads are answered. Spot pods are rented and resumed here, and nowhere else. By its own key a pod may stop itself here,
as the vendor's tool in it does, and nothing else. Other writes are not in the schema: ours go to REST v2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphql import GraphQLError, GraphQLSchema, build_schema, graphql_sync, parse, validate

from tests.simulators.runpod.catalog import COMMUNITY, SECURE, GpuType
from tests.simulators.runpod.pods import ERROR, EXITED, Pod
from tests.simulators.runpod.schema import SDL
from tests.simulators.runpod.spot import mutation_of
from tests.simulators.simulator import Reply, Request

if TYPE_CHECKING:
    from tests.simulators.runpod.platform import RunPodSim

UNAUTHORIZED = "Unauthorized"
"""What the vendor's SDK reports where a key has not the right."""
SPEND_LIMIT = 1000.0
"""USD an hour: of an account. No account here comes near it."""
WORDS = {EXITED: "EXITED", ERROR: "DEAD"}


class GraphQL:
    """Handler of /graphql."""

    def __init__(self, sim: RunPodSim) -> None:
        self.sim = sim
        self.schema: GraphQLSchema = build_schema(SDL)
        sim.route("POST /graphql", self.answer)

    def answer(self, request: Request) -> Reply:
        """200 with data, or with errors; 400 for what is no query of this schema."""
        sim = self.sim
        if "api_key" in request.query:
            sim.violate("a key in a URL: /graphql?api_key=")
        told = request.json()
        if not isinstance(told, dict) or not isinstance(told.get("query"), str):
            return self._errors(400, "POST body missing. Did you forget to use body-parser?")
        for key in sorted(set(told) - {"query", "variables", "operationName"}):
            sim.violate(f"/graphql: unknown field {key!r}")
        if rule := request.faults.get("graphql_error"):
            return self._errors(200, rule.get("message", "Something went wrong. Please try again later."))
        if rule := request.faults.get("spot_removed"):
            gone = f'Cannot query field "{mutation_of(request.body)}" on type "Mutation".'
            return self._errors(rule.get("status", 400), gone, "GRAPHQL_VALIDATION_FAILED")
        try:
            document = parse(told["query"])
        except GraphQLError as error:
            sim.violate(f"/graphql: {error.message}")
            return self._errors(400, error.message)
        if wrong := validate(self.schema, document):
            sim.violate(f"/graphql: {wrong[0].message}")
            return self._errors(400, wrong[0].message)
        result = graphql_sync(
            self.schema, told["query"], root_value=_Root(sim, request), variable_values=told.get("variables")
        )
        if result.data is None and result.errors and all(error.path is None for error in result.errors):
            sim.violate(f"/graphql: {result.errors[0].message}")  # its variables are not of the types that it names
            return self._errors(400, result.errors[0].message)
        body: dict[str, Any] = {"data": result.data}
        if result.errors:
            body["errors"] = [
                {"message": e.message, "path": e.path, "extensions": {"code": "RUNPOD"}} for e in result.errors
            ]
        return Reply(body=body)

    def _errors(self, status: int, message: str, code: str = "INTERNAL_SERVER_ERROR") -> Reply:
        errors = [{"message": message, "path": ["myself"], "extensions": {"code": code}}]
        return Reply(status, {"errors": errors, "data": None})


class _Root:
    """Resolvers: a method for each field of Query and Mutation."""

    def __init__(self, sim: RunPodSim, request: Request) -> None:
        self.sim, self.request = sim, request

    def myself(self, _info: Any) -> dict[str, Any]:
        self._read()
        sim, who = self.sim, self.request.who
        volumes = sim.volumes.of(who.id)
        left = sim.ledger.balance(who)
        return {
            "id": who.id,
            "email": who.email,
            "pubKey": None,
            "pods": [self._shown(pod) for pod in sim.pods.of(who.id)],
            "networkVolumes": [{"id": v.id, "name": v.name, "size": v.size, "dataCenterId": v.center} for v in volumes],
            "clientBalance": left,
            "currentSpendPerHr": sum(sim.ledger.rate(who.id, kind) for kind in ("pod", "volume")),
            "spendLimit": SPEND_LIMIT,
            "underBalance": left <= 0,
        }

    def pod(self, _info: Any, input: dict[str, Any] | None = None) -> dict[str, Any] | None:
        self._read()
        pod = self.sim.pods.all.get((input or {}).get("podId", ""))
        if pod is None or pod.account != self.request.who.id:
            return None
        self.sim.pods.look(pod)
        return self._shown(pod) if pod.id in self.sim.pods.all else None

    def gpuTypes(self, _info: Any, input: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        self._read()
        wanted = (input or {}).get("id")
        return [self._gpu(gpu) for gpu in self.sim.stock.gpus.values() if wanted in (None, gpu.id)]

    def _gpu(self, gpu: GpuType) -> dict[str, Any]:
        stock = self.sim.stock

        def lowest(_info: Any, input: dict[str, Any] | None = None) -> dict[str, Any]:
            asked = input or {}
            count, cloud = asked.get("gpuCount") or 1, SECURE if asked.get("secureCloud", True) else COMMUNITY
            level = _word(stock.level(gpu.id, cloud, count, asked.get("dataCenterId")))
            counts = [n for n in range(1, gpu.most + 1) if stock.level(gpu.id, cloud, n) != "NONE"]
            price = gpu.price(cloud)
            return {
                "minimumBidPrice": floor * count if (floor := stock.floor(gpu.id, cloud)) and level else None,
                "uninterruptablePrice": price * count if price and level else None,
                "stockStatus": level,
                "availableGpuCounts": counts,
            }

        return {
            "id": gpu.id,
            "displayName": gpu.name,
            "manufacturer": gpu.manufacturer,
            "memoryInGb": gpu.memory,
            "cudaCores": 0,
            "secureCloud": gpu.secure is not None,
            "communityCloud": gpu.community is not None,
            "securePrice": gpu.secure,
            "communityPrice": gpu.community,
            "secureSpotPrice": stock.floor(gpu.id, SECURE),
            "communitySpotPrice": stock.floor(gpu.id, COMMUNITY),
            "maxGpuCount": gpu.most,
            "lowestPrice": lowest,
        }

    def _shown(self, pod: Pod) -> dict[str, Any]:
        seen = self.sim.pods.outline(pod)
        up = seen["runtime"]
        ports = [
            {
                "ip": port["ip"],
                "isIpPublic": port["type"] == "tcp",
                "privatePort": port["private"],
                "publicPort": port["public"],
                "type": port["type"],
            }
            for port in (up or {}).get("ports", [])
        ]
        kept = pod.wanted.mounts.persistent
        gpus = [{"id": gpu["id"], "gpuUtilPercent": 0, "memoryUtilPercent": 0} for gpu in (up or {}).get("gpus", [])]
        return {
            "id": pod.id,
            "containerDiskInGb": pod.wanted.disk,
            "costPerHr": pod.price,
            "desiredStatus": WORDS.get(pod.status, "RUNNING"),
            "dockerArgs": pod.wanted.args,
            "dockerId": None,
            "env": [f"{name}={value}" for name, value in pod.env.items()],
            "gpuCount": pod.gpu_count,
            "imageName": pod.wanted.image,
            "lastStatusChange": f"{pod.note}: {seen['startedAt'] or seen['createdAt']}",
            "machineId": f"m{pod.number}",
            "memoryInGb": 32,
            "name": pod.name,
            "podType": "RESERVED" if pod.bid is None else "INTERRUPTABLE",
            "port": None,
            "ports": ",".join(pod.wanted.ports),
            "uptimeSeconds": up["uptime"] if up else 0,
            "vcpuCount": 8,
            "volumeInGb": kept.size if kept else 0,
            "volumeMountPath": kept.path if kept else None,
            "runtime": {"uptimeInSeconds": up["uptime"], "ports": ports, "gpus": gpus} if up else None,
            "machine": {"gpuDisplayName": pod.wanted.gpu.id, "podHostId": f"{pod.id}-host"},
        }

    def podRentInterruptable(self, _info: Any, input: dict[str, Any]) -> dict[str, Any]:
        self._read()
        return self.sim.spot.rent(self.request, input, self._shown)

    def podStop(self, _info: Any, input: dict[str, Any]) -> dict[str, Any]:
        if not self.request.box:
            self.sim.violate("a write through GraphQL: podStop")
        elif input["podId"] != self.request.box:
            raise GraphQLError(UNAUTHORIZED)
        pod = self._pod(input)
        ignored = "stop_ignored" in self.request.faults
        if not ignored:
            self.sim.pods.stop(pod, grace=bool(self.request.box))
        self.sim.book(self.request, pod.id, "stop", done=not ignored)
        return {**self._shown(pod), **({"desiredStatus": "EXITED"} if ignored else {})}

    def podBidResume(self, _info: Any, input: dict[str, Any]) -> dict[str, Any]:
        self._read()
        return self.sim.spot.resume(self.request, self._pod(input), input, self._shown)

    def _read(self) -> None:
        if self.request.box:
            raise GraphQLError(UNAUTHORIZED)

    def _pod(self, input: dict[str, Any]) -> Pod:
        pod = self.sim.pods.all.get(input["podId"])
        if pod is None or pod.account != self.request.who.id:
            raise GraphQLError("pod not found")
        return pod


def _word(level: str) -> str | None:
    return None if level == "NONE" else level.capitalize()
