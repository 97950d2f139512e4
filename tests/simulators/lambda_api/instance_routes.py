"""The routes of instances, their types, and SSH keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulators.lambda_api import catalog, errors
from tests.simulators.lambda_api.instances import STUCK, TERMINATED, UNHEALTHY, Instance
from tests.simulators.lambda_api.requests import USER_DATA_BYTES, AddKey, Ids, Launch
from tests.simulators.simulator import Reply, Request

if TYPE_CHECKING:
    from tests.simulators.lambda_api.platform import LambdaSim

API = "/api/v1"
TYPES, LIST, GET = f"GET {API}/instance-types", f"GET {API}/instances", f"GET {API}/instances/{{id}}"
LAUNCH = f"POST {API}/instance-operations/launch"
TERMINATE = f"POST {API}/instance-operations/terminate"
KEY_KINDS = ("ssh-rsa ", "ssh-ed25519 ", "ecdsa-sha2-", "sk-ssh-ed25519@openssh.com ", "sk-ecdsa-sha2-")


@dataclass
class Key:
    """One SSH key of an account."""

    id: str
    account: str
    name: str
    public_key: str

    def outline(self) -> dict[str, Any]:
        """As the API shows it."""
        return {"id": self.id, "name": self.name, "public_key": self.public_key}


class InstanceRoutes:
    """Answers for one simulator."""

    def __init__(self, sim: LambdaSim) -> None:
        self._sim = sim
        sim.route(TYPES, self.types)
        sim.route(LIST, self.listed)
        sim.route(GET, self.one)
        sim.route(LAUNCH, self.launch)
        sim.route(TERMINATE, self.terminate)
        sim.route(f"GET {API}/file-systems", lambda request: data([]))  # none can be made here
        sim.route(f"GET {API}/ssh-keys", self.keys)
        sim.route(f"POST {API}/ssh-keys", self.add_key)

    # Reading

    def types(self, request: Request) -> Reply:
        """All that are offered, by name: most are free in no region at times, and then stand there with none."""
        stock = self._sim.stock
        return data(
            {
                kind.name: {
                    "instance_type": kind.outline(),
                    "regions_with_capacity_available": [catalog.region(place) for place in stock.places(kind.name)],
                }
                for kind in stock.types.values()
            }
        )

    def listed(self, request: Request) -> Reply:
        """Those that are not terminated; in one answer, without pages."""
        self._sim.known_query(request)
        if rule := request.faults.get("stale_list"):
            return data(self._sim.before(request.who.id, rule.get("writes", 1)))
        mine = self._sim.instances.of(request.who.id)
        if "list_terminated" in request.faults:
            mine += self._sim.instances.ended(request.who.id)
        shown = []
        for one in mine:
            if one.hidden and one.hidden_in_list:
                one.hidden -= 1
            else:
                shown.append(self._sim.instances.look(one))
        return data(shown)

    def one(self, request: Request) -> Reply:
        found = self._find(request, request.params["id"])
        if found.hidden:
            found.hidden -= 1
            raise errors.refusal(errors.NO_OBJECT)
        return data(self._sim.instances.look(found))

    def _find(self, request: Request, id: str) -> Instance:
        found = self._sim.instances.all.get(id)
        if found is None or found.account != request.who.id:
            raise errors.refusal(errors.NO_OBJECT)
        return found

    # Launch

    def launch(self, request: Request) -> Reply:
        told, who = self._sim.body(request, Launch), request.who.id
        for kind, code in (("bad_address", errors.INVALID_ADDRESS), ("quota", errors.QUOTA)):
            if kind in request.faults:
                raise errors.refusal(code)
        self._checked(request, told)
        short = "out_of_capacity" in request.faults
        if short or not self._sim.stock.take(told.instance_type_name, told.region_name):
            raise errors.refusal(errors.NO_CAPACITY)
        self._sim.remember(who)
        trouble = next((word for word in (STUCK, UNHEALTHY) if f"boots_{word}" in request.faults), "")
        made = self._sim.instances.launch(who, told, trouble)
        if rule := request.faults.get("late_address"):
            made.no_address = rule.get("reads", 3)
        if rule := request.faults.get("missing_at_first"):
            made.hidden, made.hidden_in_list = rule.get("reads", 2), rule.get("in_list", False)
        self._sim.book(request, made.id, "create")
        return data({"instance_ids": [made.id]})

    def _checked(self, request: Request, told: Launch) -> None:
        """Everything that a launch names is there. All of it before capacity is looked at, as a customer saw."""
        if told.instance_type_name not in self._sim.stock.types:
            raise errors.refusal(errors.NO_OBJECT, f"Instance type {told.instance_type_name!r} does not exist.")
        if told.region_name not in catalog.REGIONS:
            raise errors.refusal(errors.NO_OBJECT, f"Region {told.region_name!r} does not exist.")
        for name in told.ssh_key_names:
            if self._sim.key_named(request.who.id, name) is None:
                raise errors.refusal(errors.NO_OBJECT, f"SSH key with name {name!r} does not exist.")
        if told.user_data is not None and len(told.user_data.encode()) > USER_DATA_BYTES:
            raise errors.refusal(errors.INVALID, "user_data: more than 1 MB.")

    # Later

    def terminate(self, request: Request) -> Reply:
        """All of them or none. What is terminated already does not exist; what is about to be is answered again."""
        mine = self._named(request)
        for one in mine:
            if not one.launched:  # seen in `actions.terminate`; the code of such a refusal is not documented
                raise errors.refusal(errors.INVALID, f"Instance {one.id} has not launched yet.")
        self._sim.remember(request.who.id)
        ignored = "terminate_ignored" in request.faults
        shown: list[dict[str, Any]] = []
        for one in mine:
            if rule := request.faults.get("terminate_lingers"):
                one.lingers = rule.get("seconds", 600.0)
            if not ignored:
                self._sim.instances.terminate(one)
            shown.append(self._sim.instances.row(one))
            self._sim.book(request, one.id, "terminate", done=not ignored)
        return data({"terminated_instances": shown})

    def _named(self, request: Request) -> list[Instance]:
        told = self._sim.body(request, Ids)
        if not told.instance_ids:
            raise errors.refusal(errors.INVALID, "instance_ids: name one at least.")
        found = [self._find(request, id) for id in told.instance_ids]
        if any(one.status == TERMINATED for one in found):
            raise errors.refusal(errors.NO_OBJECT)
        return found

    # SSH keys

    def keys(self, request: Request) -> Reply:
        return data([one.outline() for one in self._sim.keys.values() if one.account == request.who.id])

    def add_key(self, request: Request) -> Reply:
        told = self._sim.body(request, AddKey)
        if self._sim.key_named(request.who.id, told.name):
            raise errors.refusal(errors.INVALID, f"An SSH key named {told.name!r} exists.")
        if not told.public_key.startswith(KEY_KINDS):
            raise errors.refusal(errors.INVALID, "public_key: not a public key.")
        return data(self._sim.add_key(request.who.id, told.name, told.public_key).outline())


def data(value: object) -> Reply:
    """A success in the vendor's envelope."""
    return Reply(body={"data": value})
