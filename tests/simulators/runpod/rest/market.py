"""REST v2: the catalogue, the account and its money, and what pods have cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.simulators.clock import rfc3339
from tests.simulators.ledger import Rental
from tests.simulators.runpod.catalog import COMMUNITY, SECURE, GpuType
from tests.simulators.simulator import Refusal, Reply, Request

if TYPE_CHECKING:
    from tests.simulators.runpod.platform import RunPodSim

BUCKETS = {"hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400, "year": 365 * 86400}
NEEDS_INCLUDE = ("count", "cloud", "cudaVersions", "minCudaVersion")
PRODUCTS = ("POD", "CLUSTER", "SERVERLESS")


class MarketRoutes:
    """Handlers of catalogue and money. The path of the balance is not documented, only its page's name."""

    def __init__(self, sim: RunPodSim) -> None:
        self.sim = sim
        sim.route("GET /v2/catalog/gpus", self.gpus)
        sim.route("GET /v2/catalog/datacenters", self.centers)
        sim.route("GET /v2/account", self.account)
        sim.route("GET /v2/billing/balance", self.balance)
        sim.route("GET /v2/billing/pods", self.spent)

    def gpus(self, request: Request) -> Reply:
        """Every type; availability only together with a product."""
        return Reply(body={"gpus": [self._gpu(request, gpu) for gpu in self.sim.stock.gpus.values()]})

    def _gpu(self, request: Request, gpu: GpuType) -> dict[str, Any]:
        sim, query = self.sim, request.query
        sim.known_query(request, "include", "product", *NEEDS_INCLUDE)
        include = set(",".join(query.get("include", [])).split(",")) - {""}
        if include - {"AVAILABILITY"}:
            raise Refusal(sim.problem(400, "include must be AVAILABILITY"))
        if bool(include) != ("product" in query):
            raise Refusal(sim.problem(400, "include=AVAILABILITY and product need each other"))
        if not include and any(name in query for name in NEEDS_INCLUDE):
            raise Refusal(sim.problem(400, "filters need include=AVAILABILITY"))
        if include and query["product"][0] not in PRODUCTS:
            raise Refusal(sim.problem(400, f"product must be one of {', '.join(PRODUCTS)}"))
        shown: dict[str, Any] = {
            "id": gpu.id,
            "name": gpu.name,
            "pool": gpu.pool,
            "manufacturer": gpu.manufacturer,
            "memory": gpu.memory,
            "secure": gpu.secure is not None,
            "community": gpu.community is not None,
            "price": {"secure": gpu.secure, "community": gpu.community},
            "maxCount": {"secure": gpu.most if gpu.secure else 0, "community": gpu.most if gpu.community else 0},
        }
        if include:
            shown |= self._availability(request, gpu)
        return shown

    def _availability(self, request: Request, gpu: GpuType) -> dict[str, Any]:
        stock, cloud = self.sim.stock, request.query.get("cloud", [SECURE])[0]
        if cloud not in (SECURE, COMMUNITY):
            raise Refusal(self.sim.problem(400, "cloud must be SECURE or COMMUNITY"))
        count = self.sim.number(request, "count", 1)
        places = [
            {"id": center.id, "name": center.name, "availability": level}
            for center in stock.centers.values()
            if (level := stock.level(gpu.id, cloud, count, center.id)) != "NONE"
        ]
        shown: dict[str, Any] = {"availability": stock.level(gpu.id, cloud, count)}
        if places:
            shown["dataCenters"] = places
        shown["cudaVersions"] = [{"version": version, "available": True} for version in gpu.cuda]
        return shown

    def centers(self, request: Request) -> Reply:
        """Every data center."""
        self.sim.known_query(request)
        return Reply(body={"dataCenters": [center.outline() for center in self.sim.stock.centers.values()]})

    def account(self, request: Request) -> Reply:
        """Whose key it is (since 2026-11-13; the address is that of its page's group)."""
        self.sim.known_query(request)
        if "no_account" in request.faults:
            raise Refusal(self.sim.problem(404, "resource not found"))
        return Reply(body={"id": request.who.id, "email": request.who.email or None})

    def balance(self, request: Request) -> Reply:
        """What is left."""
        self.sim.known_query(request)
        left = round(self.sim.ledger.balance(request.who), 6)
        return Reply(body={"balanceAmount": left, "billingMode": "PREPAID"})

    def spent(self, request: Request) -> Reply:
        """What each pod has cost, by bucket of time; a bucket holds its begin and not its end."""
        sim, query = self.sim, request.query
        sim.known_query(request, "startTime", "endTime", "lastN", "bucketSize", "podId")
        size = BUCKETS.get(query.get("bucketSize", ["day"])[0])
        if size is None:
            raise Refusal(sim.problem(400, f"bucketSize must be one of {', '.join(BUCKETS)}"))
        now = sim.clock.now()
        last = now - now % size + size  # the end of the bucket that has begun
        begin = last - sim.number(request, "lastN", 30) * size
        begin = self._moment(request, "startTime", begin)
        end = self._moment(request, "endTime", last)
        wanted = query.get("podId", [""])[0]
        records = []
        for rental in sim.ledger.all():
            mine = rental.kind == "pod" and rental.account == request.who.id and wanted in ("", rental.id)
            records += self._buckets(rental, begin, end, size) if mine else []
        total = sum(record["totalAmount"] for record in records)
        unique = len({record["podId"] for record in records})
        metadata = {"recordCount": len(records), "uniquePodCount": unique, "totals": {"totalAmount": total}}
        window = {"startTime": rfc3339(begin), "endTime": rfc3339(end), "bucketSize": size}
        return Reply(body={"records": records, "metadata": {"query": window, **metadata}})

    def _buckets(self, rental: Rental, begin: float, end: float, size: int) -> list[dict[str, Any]]:
        records = []
        first = begin - begin % size
        posted = self.sim.clock.now()
        posted -= posted % self.sim.bill_every if self.sim.bill_every else 0.0
        while first < min(end, rental.ended or posted):
            amount = rental.between(max(begin, first), min(end, first + size, posted))
            if amount:
                pod = self.sim.pods.all.get(rental.id) or self.sim.pods.gone[rental.id]
                compute = min(amount, rental.between(max(begin, first), min(end, first + size, posted), pod.price))
                records.append(
                    {
                        "startTime": rfc3339(first),
                        "endTime": rfc3339(first + size),
                        "podId": rental.id,
                        "totalAmount": amount,
                        "gpuAmount": compute,
                        "cpuAmount": 0.0,
                        "diskAmount": amount - compute,
                    }
                )
            first += size
        return records

    def _moment(self, request: Request, name: str, default: float) -> float:
        text = request.query.get(name, [""])[0]
        if not text:
            return default
        try:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise Refusal(self.sim.problem(400, f"{name} must be RFC 3339")) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
