"""REST v2: network volumes, SSH keys, registry credentials, tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulators.runpod.pods import EXITED
from tests.simulators.runpod.shapes import (
    CreateRegistry,
    CreateTag,
    CreateVolume,
    PatchVolume,
    SshKeys,
    TagResource,
)
from tests.simulators.runpod.volumes import Volume
from tests.simulators.simulator import Refusal, Reply, Request

if TYPE_CHECKING:
    from tests.simulators.runpod.platform import RunPodSim


class StoreRoutes:
    """Handlers of what an account keeps beside its pods. Paths of tags are not documented, only their base."""

    def __init__(self, sim: RunPodSim) -> None:
        self.sim = sim
        sim.route("GET /v2/network-volumes", self.volumes)
        sim.route("POST /v2/network-volumes", self.create_volume)
        sim.route("GET /v2/network-volumes/{id}", self.volume)
        sim.route("PATCH /v2/network-volumes/{id}", self.patch_volume)
        sim.route("DELETE /v2/network-volumes/{id}", self.delete_volume)
        sim.route("GET /v2/account/ssh-keys", self.keys)
        sim.route("PUT /v2/account/ssh-keys", self.replace_keys)
        sim.route("GET /v2/registries", self.registries)
        sim.route("POST /v2/registries", self.create_registry)
        sim.route("GET /v2/registries/{id}", self.registry)
        sim.route("DELETE /v2/registries/{id}", self.delete_registry)
        sim.route("GET /v2/tags", self.tags)
        sim.route("POST /v2/tags", self.create_tag)
        sim.route("PUT /v2/tags/{id}/{type}/{resource}", self.attach)

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
        """Another name, more room; never less."""
        self.sim.known_query(request)
        volume = self._volume(request)
        change = self.sim.body(request, PatchVolume)
        if not change.model_fields_set:
            raise Refusal(self.sim.problem(400, "nothing to change"))
        if change.size is not None and change.size < volume.size:
            raise Refusal(self.sim.problem(400, "a network volume can only grow"))
        self.sim.volumes.change(volume, name=change.name, size=change.size)
        return Reply(body=volume.outline())

    def delete_volume(self, request: Request) -> Reply:
        """Its content is lost, even while a pod has it: the platform does not reliably refuse, so a client must."""
        sim = self.sim
        sim.known_query(request)
        volume = self._volume(request)
        if users := [pod.id for pod in sim.pods.of(request.who.id) if pod.volume is volume]:
            if sim.refuse_attached:
                raise Refusal(sim.problem(400, "the network volume is attached to a pod"))
            if any(sim.pods.all[id].status != EXITED for id in users):
                sim.violate(f"network volume {volume.id} was deleted while pods have it: {', '.join(users)}")
        sim.volumes.delete(volume)
        return Reply(204)

    def _volume(self, request: Request) -> Volume:
        volume = self.sim.volumes.all.get(request.params["id"])
        if volume is None or volume.account != request.who.id:
            raise Refusal(self.sim.problem(404, "network volume not found"))
        return volume

    def keys(self, request: Request) -> Reply:
        """The account's public keys."""
        self.sim.known_query(request)
        return Reply(body={"keys": self.sim.ssh_keys.get(request.who.id, [])})

    def replace_keys(self, request: Request) -> Reply:
        """The whole set."""
        self.sim.known_query(request)
        keys = self.sim.body(request, SshKeys).keys
        self.sim.ssh_keys[request.who.id] = keys
        return Reply(body={"keys": keys})

    def registries(self, request: Request) -> Reply:
        """Credentials by name; the password is never shown."""
        self.sim.known_query(request)
        mine = [shown for account, shown in self.sim.registries.values() if account == request.who.id]
        return Reply(body={"registries": mine})

    def create_registry(self, request: Request) -> Reply:
        """A new credential."""
        self.sim.known_query(request)
        wanted = self.sim.body(request, CreateRegistry)
        shown = {"id": f"reg{len(self.sim.registries) + 1}", "name": wanted.name}
        self.sim.registries[shown["id"]] = (request.who.id, shown)
        return Reply(201, shown)

    def registry(self, request: Request) -> Reply:
        """One."""
        self.sim.known_query(request)
        return Reply(body=self._registry(request))

    def delete_registry(self, request: Request) -> Reply:
        """Refused while a pod pulls with it."""
        self.sim.known_query(request)
        shown = self._registry(request)
        if any(pod.wanted.registry == shown["id"] for pod in self.sim.pods.of(request.who.id)):
            raise Refusal(self.sim.problem(400, "the credential is in use"))
        del self.sim.registries[shown["id"]]
        return Reply(204)

    def _registry(self, request: Request) -> dict[str, Any]:
        account, shown = self.sim.registries.get(request.params["id"], ("", {}))
        if account != request.who.id:
            raise Refusal(self.sim.problem(404, "registry credential not found"))
        return shown

    def tags(self, request: Request) -> Reply:
        """All of the account, with what they are attached to."""
        self.sim.known_query(request)
        return Reply(body={"tags": [shown for who, shown in self.sim.tags.values() if who == request.who.id]})

    def create_tag(self, request: Request) -> Reply:
        """A new one; it may be attached at once."""
        self.sim.known_query(request)
        wanted = self.sim.body(request, CreateTag)
        if wanted.key.startswith("runpod:"):
            raise Refusal(self.sim.problem(422, "Request validation failed.", ["$.key: prefix runpod: is reserved"]))
        id = f"tag{len(self.sim.tags) + 1}"
        tag: dict[str, Any] = {"id": id, "key": wanted.key, "value": wanted.value, "resources": []}
        self.sim.tags[id] = (request.who.id, tag)
        for resource in wanted.resources:
            self._attach(request, tag, resource)
        return Reply(201, {name: tag[name] for name in ("id", "key", "value")})

    def attach(self, request: Request) -> Reply:
        """One more thing carries the tag."""
        self.sim.known_query(request)
        account, tag = self.sim.tags.get(request.params["id"], ("", {}))
        if account != request.who.id:
            raise Refusal(self.sim.problem(404, "tag not found"))
        place = {"resourceType": request.params["type"], "resourceId": request.params["resource"]}
        self._attach(request, tag, self.sim.checked(TagResource, place))
        return Reply(204)

    def _attach(self, request: Request, tag: dict[str, Any], resource: TagResource) -> None:
        stores: dict[str, dict[str, Any]] = {"POD": {**self.sim.pods.all}, "NETWORK_VOLUME": {**self.sim.volumes.all}}
        thing = stores.get(resource.resourceType, {}).get(resource.resourceId)
        if thing is None or thing.account != request.who.id:
            raise Refusal(self.sim.problem(404, "resource not found"))
        tag["resources"].append(resource.model_dump())
