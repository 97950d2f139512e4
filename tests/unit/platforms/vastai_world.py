"""A few instances of one account behind `Loopback`, for tests of single answers."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.platforms.loopback import Loopback, Reply, Request

USER = 77
V0, V1 = "/api/v0", "/api/v1"
LIST = f"{V1}/instances/"
SEARCH = f"{V0}/bundles/"


def instance(identifier: int, label: str | None, **changes: Any) -> dict[str, Any]:
    return {
        "id": identifier,
        "label": label,
        "machine_id": 99,
        "actual_status": "running",
        "intended_status": "running",
        "cur_state": "running",
        "next_state": "running",
        "dph_total": 0.41,
        "start_date": 1_790_000_000.0,
        "extra_env": [],
        "geolocation": "Texas, US",
        "num_gpus": 1,
        "is_bid": False,
        "public_ipaddr": "127.0.0.1",
        "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "1"}]},
        **changes,
    }


AT_REST = {"actual_status": "exited", "intended_status": "stopped", "cur_state": "stopped", "next_state": "stopped"}


def offer(identifier: int, price: float = 0.41, **changes: Any) -> dict[str, Any]:
    return {
        "id": identifier,
        "ask_contract_id": identifier,
        "machine_id": identifier * 10,
        "gpu_name": "RTX 4090",
        "num_gpus": 1,
        "gpu_ram": 24564,
        "disk_space": 500.0,
        "dph_total": price,
        "min_bid": price / 2,
        "storage_cost": 0.2,
        "storage_total_cost": 0.005,
        "inet_up_cost": 0.01,
        "inet_down_cost": 0.02,
        "reliability": 0.99,
        "cuda_max_good": 12.8,
        "geolocation": "Texas, US",
        "rentable": True,
        **changes,
    }


class World(Loopback):
    """Instances that are listed, shown, stopped and destroyed; everything else a test says by `routes`."""

    def __init__(self) -> None:
        super().__init__()
        self.instances: dict[int, dict[str, Any]] = {}
        self.offers: list[dict[str, Any]] = []
        self.routes[("GET", f"{V0}/users/current")] = Reply({"id": USER, "credit": 12.5, "api_key": "not for us"})
        self.routes[("GET", LIST)] = self.list
        self.routes[("GET", f"{V0}/volumes")] = Reply({"volumes": []})
        self.routes[("POST", SEARCH)] = lambda _: Reply({"offers": self.offers})

    def add(self, identifier: int, label: str | None, **changes: Any) -> None:
        """An instance with its routes."""
        self.instances[identifier] = instance(identifier, label, **changes)
        path = f"{V0}/instances/{identifier}/"
        self.routes[("GET", path)] = lambda _: Reply({"instances": self.instances.get(identifier)})
        self.routes[("DELETE", path)] = lambda _: self.end(identifier)
        self.routes[("PUT", path)] = lambda request: self.turn(identifier, request)
        self.routes[("POST", f"{path}ssh/")] = Reply({"success": True})
        self.routes[("GET", f"{path}ssh/")] = Reply({"success": True, "ssh_keys": []})

    def absent(self, identifier: int) -> None:
        """An id that vast.ai knows nothing of."""
        path = f"{V0}/instances/{identifier}/"
        missing = Reply(
            {"success": False, "error": "no_such_instance", "msg": f"Instance {identifier} not found."}, 404
        )
        self.routes[("GET", path)] = Reply({"instances": None})
        self.routes[("DELETE", path)] = self.routes[("PUT", path)] = missing

    def end(self, identifier: int) -> Reply:
        if self.instances.pop(identifier, None) is None:
            return Reply({"success": False, "error": "no_such_instance", "msg": "Instance not found"}, 404)
        return Reply({"success": True, "msg": "destroying"})

    def turn(self, identifier: int, request: Request) -> Reply:
        word = request.body["state"]
        names = ("intended_status", "cur_state", "next_state")
        self.instances[identifier].update(dict.fromkeys(names, word))
        self.instances[identifier]["actual_status"] = "running" if word == "running" else "exited"
        return Reply({"success": True, "msg": word})

    def list(self, request: Request, size: int = 25) -> Reply:
        """One page, and how many there are of everything, or of the ids or labels that were asked for."""
        begin = int(request.query.get("after_token", "0"))
        asked = json.loads(request.query.get("select_filters", "{}"))
        rows = sorted(self.instances.values(), key=lambda row: row["id"])
        for column, wanted in asked.items():
            assert column in ("id", "label"), asked
            assert list(wanted) == ["in"], asked
            rows = [row for row in rows if row[column] in wanted["in"]]
        size = min(size, int(request.query.get("limit", size)))
        page = [row for row in rows if row["id"] > begin][:size]
        later = [row for row in rows if page and row["id"] > page[-1]["id"]]
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["label"] or ""] = counts.get(row["label"] or "", 0) + 1
        return Reply(
            {
                "success": True,
                "instances": page,
                "instances_found": len(page),
                "total_instances": len(rows),
                "label_counts": counts,
                "next_token": str(page[-1]["id"]) if later else None,
            }
        )

    def asked(self) -> list[str]:
        """Methods and paths, in order."""
        return [f"{request.method} {request.path}" for request in self.requests]
