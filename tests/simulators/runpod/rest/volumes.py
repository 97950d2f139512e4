"""REST v2: network volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulators.runpod.pods import EXITED
from tests.simulators.runpod.shapes import CreateVolume, PatchVolume
from tests.simulators.runpod.volumes import Volume
from tests.simulators.simulator import Refusal, Reply, Request

if TYPE_CHECKING:
    from tests.simulators.runpod.platform import RunPodSim


class VolumeRoutes:
    """Handlers of /v2/network-volumes."""

    def __init__(self, sim: RunPodSim) -> None:
        self.sim = sim
        sim.route("GET /v2/network-volumes", self.volumes)
        sim.route("POST /v2/network-volumes", self.create_volume)
        sim.route("GET /v2/network-volumes/{id}", self.volume)
        sim.route("PATCH /v2/network-volumes/{id}", self.patch_volume)
        sim.route("DELETE /v2/network-volumes/{id}", self.delete_volume)

    def volumes(self, request: Request) -> Reply:
        """All of the account."""
        self.sim.known_query(request)
        found = [volume.outline() for volume in self.sim.volumes.of(request.who.id)]
        if "stale_list" in request.faults:
            found = found[: -request.faults["stale_list"].get("writes", 1)]
        return Reply(body={"networkVolumes": found})

    def create_volume(self, request: Request) -> Reply:
        """A new one, in a data center that has volumes."""
        sim = self.sim
        sim.known_query(request)
        wanted = sim.body(request, CreateVolume)
        center = sim.stock.centers.get(wanted.dataCenter)
        if center is None or not center.volumes:
            raise Refusal(sim.problem(400, f"data center {wanted.dataCenter} has no network volumes"))
        kind = wanted.type or center.volumes[0]
        if kind not in center.volumes:
            raise Refusal(sim.problem(400, f"data center {wanted.dataCenter} has no {kind} volumes"))
        if "low_balance" in request.faults:
            raise Refusal(sim.problem(402, "Your account balance is too low. Please add funds."))
        volume = sim.volumes.create(request.who.id, wanted.name, wanted.size, wanted.dataCenter, kind)
        return Reply(201, volume.outline())

    def volume(self, request: Request) -> Reply:
        """One."""
        self.sim.known_query(request)
        return Reply(body=self._volume(request).outline())

    def patch_volume(self, request: Request) -> Reply:
        """Another name, and more room; never less."""
        self.sim.known_query(request)
        volume = self._volume(request)
        change = self.sim.body(request, PatchVolume)
        if change.name is None and change.size is None:
            raise Refusal(self.sim.problem(400, "no change was given"))
        volume.name = change.name or volume.name
        if change.size is None:
            return Reply(body=volume.outline())
        if change.size < volume.size:
            raise Refusal(self.sim.problem(400, "a network volume can only grow"))
        self.sim.volumes.grow(volume, change.size)
        return Reply(body=volume.outline())

    def delete_volume(self, request: Request) -> Reply:
        """Its content is lost, even while a pod has it: the platform does not reliably refuse, so a client must."""
        sim = self.sim
        sim.known_query(request)
        volume = self._volume(request)
        users = [pod for pod in sim.pods.of(request.who.id) if pod.volume is volume]
        if any(pod.status != EXITED for pod in users):
            ids = ", ".join(pod.id for pod in users)
            sim.violate(f"network volume {volume.id} was deleted while pods have it: {ids}")
        sim.volumes.delete(volume)
        return Reply(204)

    def _volume(self, request: Request) -> Volume:
        volume = self.sim.volumes.all.get(request.params["id"])
        if volume is None or volume.account != request.who.id:
            raise Refusal(self.sim.problem(404, "network volume not found"))
        return volume
