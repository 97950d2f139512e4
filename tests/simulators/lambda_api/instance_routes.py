"""The routes of instances: types, list, launch, rename, restart, terminate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulators.lambda_api import catalog, errors
from tests.simulators.lambda_api.instances import ACTIVE, STUCK, TERMINATED, UNHEALTHY, Instance
from tests.simulators.lambda_api.requests import USER_DATA_BYTES, Ids, ImageId, Launch, Rename
from tests.simulators.lambda_api.store_routes import API, data
from tests.simulators.lambda_api.stores import FileSystem
from tests.simulators.simulator import Reply, Request

if TYPE_CHECKING:
    from tests.simulators.lambda_api.platform import LambdaSim

TYPES, LIST, GET = f"GET {API}/instance-types", f"GET {API}/instances", f"GET {API}/instances/{{id}}"
LAUNCH = f"POST {API}/instance-operations/launch"
TERMINATE, RESTART = f"POST {API}/instance-operations/terminate", f"POST {API}/instance-operations/restart"


class InstanceRoutes:
    """Answers for one simulator."""

    def __init__(self, sim: LambdaSim) -> None:
        self._sim = sim
        sim.route(TYPES, self.types)
        sim.route(LIST, self.listed)
        sim.route(GET, self.one)
        sim.route(f"POST {API}/instances/{{id}}", self.rename)
        sim.route(LAUNCH, self.launch)
        sim.route(TERMINATE, self.terminate)
        sim.route(RESTART, self.restart)

    # Reading

    def types(self, request: Request) -> Reply:
        """All that are offered, by name: most are free in no region at times, and then stand there with none."""
        stock = self._sim.stock
        return data(
            {
                kind.name: {
                    "instance_type": kind.outline(),
                    "regions_with_capacity_available": [catalog.region(place) for place in stock.regions(kind.name)],
                }
                for kind in stock.types.values()
            }
        )

    def listed(self, request: Request) -> Reply:
        """Those that are not terminated; in one answer, without pages."""
        self._sim.known_query(request, "cluster_id")
        if rule := request.faults.get("stale_list"):
            return data(self._sim.before(request.who.id, rule.get("writes", 1)))
        if "empty_list" in request.faults or "cluster_id" in request.query:
            return data([])
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
        mounts = self._checked(request, told)
        most = self._sim.most_instances
        if most is not None and len(self._sim.instances.of(who)) + told.quantity > most:
            raise errors.refusal(errors.QUOTA)
        short = "out_of_capacity" in request.faults
        if short or not self._sim.stock.take(told.instance_type_name, told.region_name, told.quantity):
            raise errors.refusal(errors.NO_CAPACITY)
        self._sim.remember(who)
        trouble = next((word for word in (STUCK, UNHEALTHY) if f"boots_{word}" in request.faults), "")
        made = [self._sim.instances.launch(who, told, mounts, trouble) for _ in range(told.quantity)]
        for one in made:
            if rule := request.faults.get("late_address"):
                one.no_address = rule.get("reads", 3)
            if rule := request.faults.get("missing_at_first"):
                one.hidden, one.hidden_in_list = rule.get("reads", 2), rule.get("in_list", False)
            self._sim.book(request, one.id, "create")
        return data({"instance_ids": [one.id for one in made]})

    def _checked(self, request: Request, told: Launch) -> dict[str, tuple[str, str]]:
        """Everything that a launch names is there. All of it before capacity is looked at, as a customer saw."""
        who, stores = request.who.id, self._sim.stores
        kind = self._sim.stock.types.get(told.instance_type_name)
        if kind is None:
            raise errors.refusal(errors.NO_OBJECT, f"Instance type {told.instance_type_name!r} does not exist.")
        if told.region_name not in catalog.REGIONS:
            raise errors.refusal(errors.NO_OBJECT, f"Region {told.region_name!r} does not exist.")
        for name in told.ssh_key_names:
            if stores.key_named(who, name) is None:
                raise errors.refusal(errors.NO_OBJECT, f"SSH key with name {name!r} does not exist.")
        if told.user_data is not None and len(told.user_data.encode()) > USER_DATA_BYTES:
            raise errors.refusal(errors.INVALID, "user_data: more than 1 MB.")
        if told.image is not None:
            same = [one for one in catalog.IMAGES if one.region == told.region_name]
            wanted = told.image
            if isinstance(wanted, ImageId):
                same = [one for one in same if one.id == wanted.id]
            else:
                same = [one for one in same if one.family == wanted.family]
            if not any(one.architecture == kind.architecture for one in same):
                raise errors.refusal(errors.NO_OBJECT, "Image does not exist in this region for this type.")
        for entry in told.firewall_rulesets:
            ruleset = stores.rulesets.get(entry.id)
            if ruleset is None or (ruleset.account, ruleset.region) != (who, told.region_name):
                raise errors.refusal(errors.NO_OBJECT, f"Firewall ruleset {entry.id!r} does not exist in this region.")
        return self._mounts(who, told)

    def _mounts(self, who: str, told: Launch) -> dict[str, tuple[str, str]]:
        """File system id → (name, place). At most one altogether."""
        mine = self._sim.stores.file_systems_of(who)
        found: dict[str, tuple[str, str]] = {}
        for name in told.file_system_names:
            same = [one for one in mine if one.name == name]
            here = [one for one in same if one.region == told.region_name]
            if not here:
                raise self._elsewhere(same, name, told.region_name)
            found[here[0].id] = (name, here[0].mount_point)
        for mount in told.file_system_mounts:
            named = self._sim.stores.file_systems.get(mount.file_system_id)
            if named is None or named.account != who:
                raise errors.refusal(errors.NO_OBJECT, f"Filesystem {mount.file_system_id!r} does not exist.")
            if named.region != told.region_name:
                raise errors.refusal(errors.WRONG_REGION)
            found[named.id] = (named.name, mount.mount_point)
        if len(found) > 1:
            raise errors.refusal(errors.INVALID, "At most one file system may be specified.")
        return found

    def _elsewhere(self, same: list[FileSystem], name: str, region: str) -> Exception:
        """A customer was told that it does not exist; the document has a code of its own for the wrong region."""
        if same and self._sim.says_wrong_region:
            return errors.refusal(errors.WRONG_REGION)
        text = f"Filesystem with name '{name}' does not exist in region '{region}', or you do not have permission"
        return errors.refusal(errors.NO_OBJECT, f"{text} to access it.")

    # Later

    def rename(self, request: Request) -> Reply:
        told = self._sim.body(request, Rename)
        found = self._find(request, request.params["id"])
        if told.name is not None:
            self._sim.remember(request.who.id)
            found.name = told.name
            self._sim.ledger.retag(found.id, told.name)
        return data(self._sim.instances.row(found))

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

    def restart(self, request: Request) -> Reply:
        """All of them or none. It shows the status that it had, as in the document's example."""
        mine = self._named(request)
        if any(one.acting or one.status not in (ACTIVE, UNHEALTHY) for one in mine):
            raise errors.refusal(errors.CONFLICT)
        self._sim.remember(request.who.id)
        for one in mine:
            self._sim.instances.restart(one)
            self._sim.book(request, one.id, "restart")
        return data({"restarted_instances": [self._sim.instances.row(one) for one in mine]})

    def _named(self, request: Request) -> list[Instance]:
        told = self._sim.body(request, Ids)
        if not told.instance_ids:
            raise errors.refusal(errors.INVALID, "instance_ids: name one at least.")
        found = [self._find(request, id) for id in told.instance_ids]
        if any(one.status == TERMINATED for one in found):
            raise errors.refusal(errors.NO_OBJECT)
        return found
