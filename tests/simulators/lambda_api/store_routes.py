"""The routes of SSH keys, file systems, firewall rulesets, images and regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulators.lambda_api import catalog, errors
from tests.simulators.lambda_api.requests import AddKey, NewFileSystem, NewRuleset
from tests.simulators.lambda_api.stores import FileSystem, Ruleset, shown_file_system, shown_ruleset
from tests.simulators.simulator import Reply, Request

if TYPE_CHECKING:
    from tests.simulators.lambda_api.platform import LambdaSim

API = "/api/v1"
KEY_KINDS = ("ssh-rsa ", "ssh-ed25519 ", "ecdsa-sha2-", "sk-ssh-ed25519@openssh.com ", "sk-ecdsa-sha2-")
GENERATED = "-----BEGIN RSA PRIVATE KEY-----\nof the simulator\n-----END RSA PRIVATE KEY-----\n"


def data(value: object) -> Reply:
    """A success in the vendor's envelope."""
    return Reply(body={"data": value})


class StoreRoutes:
    """Answers for one simulator."""

    def __init__(self, sim: LambdaSim) -> None:
        self._sim = sim
        for call, handler in (
            ("GET /ssh-keys", self.keys),
            ("POST /ssh-keys", self.add_key),
            ("DELETE /ssh-keys/{id}", self.delete_key),
            ("GET /file-systems", self.file_systems),
            ("POST /file-systems", self.read_only),
            ("POST /filesystems", self.create),
            ("DELETE /filesystems/{id}", self.delete),
            ("GET /firewall-rulesets", self.rulesets),
            ("POST /firewall-rulesets", self.add_ruleset),
            ("GET /firewall-rulesets/{id}", self.ruleset),
            ("DELETE /firewall-rulesets/{id}", self.delete_ruleset),
            ("GET /images", self.images),
            ("GET /regions", self.regions),
        ):
            method, path = call.split(" ")
            sim.route(f"{method} {API}{path}", handler)

    # SSH keys

    def keys(self, request: Request) -> Reply:
        return data([one.outline() for one in self._sim.stores.keys.values() if one.account == request.who.id])

    def add_key(self, request: Request) -> Reply:
        told = self._sim.body(request, AddKey)
        if self._sim.stores.key_named(request.who.id, told.name):
            raise errors.refusal(errors.INVALID, f"An SSH key named {told.name!r} exists.")
        if told.public_key is not None and not told.public_key.startswith(KEY_KINDS):
            raise errors.refusal(errors.INVALID, "public_key: not a public key.")
        public = told.public_key or f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ {told.name}"
        made = self._sim.stores.add_key(request.who.id, told.name, public)
        return data({**made.outline(), **({} if told.public_key else {"private_key": GENERATED})})

    def delete_key(self, request: Request) -> Reply:
        """Refused while an instance has it: seen by a customer, who quotes the text and not the code."""
        found = self._sim.stores.keys.get(request.params["id"])
        if found is None or found.account != request.who.id:
            raise errors.refusal(errors.NOT_FOUND, "SSH key was not found.")
        if any(found.name in one.wanted.ssh_key_names for one in self._sim.instances.of(request.who.id)):
            raise errors.refusal(errors.INVALID, "Key is currently in use, cannot delete")
        del self._sim.stores.keys[found.id]
        return data({})

    # File systems. The list is at /file-systems, what changes them at /filesystems.

    def file_systems(self, request: Request) -> Reply:
        mine = self._sim.stores.file_systems_of(request.who.id)
        return data([shown_file_system(one, request.who, self._sim.instances.uses(one.id)) for one in mine])

    def read_only(self, request: Request) -> Reply:
        """Seen by a customer: 405, which reads as if file systems could not be made at all."""
        self._sim.violate("POST /file-systems: they are made at /filesystems")
        return errors.said(errors.NOT_FOUND, "Method not allowed.", 405)

    def create(self, request: Request) -> Reply:
        told = self._sim.body(request, NewFileSystem)
        if told.region not in catalog.REGIONS:
            raise errors.refusal(errors.INVALID, f"region: there is no {told.region!r}.")
        mine = self._sim.stores.file_systems_of(request.who.id)
        if any((one.name, one.region) == (told.name, told.region) for one in mine):
            raise errors.refusal(errors.DUPLICATE, f"A filesystem named {told.name!r} exists.")
        if "quota" in request.faults or len(mine) >= self._sim.most_file_systems:
            raise errors.refusal(errors.QUOTA)
        made = self._sim.stores.create(request.who.id, told.name, told.region)
        self._sim.book(request, made.id, "create")
        return data(shown_file_system(made, request.who, False))

    def delete(self, request: Request) -> Reply:
        """Refused while an instance has it, also one that is terminating."""
        found = self._file_system(request)
        if self._sim.instances.uses(found.id):
            raise errors.refusal(errors.FILE_SYSTEM_IN_USE, f"Filesystem {found.name!r} is in use.")
        self._sim.book(request, found.id, "delete")
        self._sim.stores.delete(found)
        return data({"deleted_ids": [found.id]})

    def _file_system(self, request: Request) -> FileSystem:
        found = self._sim.stores.file_systems.get(request.params["id"])
        if found is None or found.account != request.who.id:
            raise errors.refusal(errors.NO_OBJECT, "Filesystem was not found.")
        return found

    # Firewall rulesets

    def rulesets(self, request: Request) -> Reply:
        mine = [one for one in self._sim.stores.rulesets.values() if one.account == request.who.id]
        return data([shown_ruleset(one, self._users(one)) for one in mine])

    def add_ruleset(self, request: Request) -> Reply:
        told = self._sim.body(request, NewRuleset)
        if told.region not in catalog.REGIONS or told.region == catalog.NO_FIREWALL:
            raise errors.refusal(errors.INVALID, f"region: {told.region!r} has no firewall rulesets.")
        for rule in told.rules:
            if (rule.protocol == "icmp") == (rule.port_range is not None):
                raise errors.refusal(errors.INVALID, "port_range: not for icmp, and required for the others.")
        made = self._sim.stores.add_ruleset(request.who.id, told.name, told.region, told.rules)
        return data(shown_ruleset(made, []))

    def ruleset(self, request: Request) -> Reply:
        found = self._ruleset(request)
        return data(shown_ruleset(found, self._users(found)))

    def delete_ruleset(self, request: Request) -> Reply:
        found = self._ruleset(request)
        if self._users(found):
            raise errors.refusal(errors.RULESET_IN_USE)
        del self._sim.stores.rulesets[found.id]
        return data({})

    def _ruleset(self, request: Request) -> Ruleset:
        found = self._sim.stores.rulesets.get(request.params["id"])
        if found is None or found.account != request.who.id:
            raise errors.refusal(errors.NO_OBJECT, "Firewall ruleset does not exist or is not yours.")
        return found

    def _users(self, ruleset: Ruleset) -> list[str]:
        mine = self._sim.instances.of(ruleset.account)
        return [one.id for one in mine if ruleset.id in [entry.id for entry in one.wanted.firewall_rulesets]]

    # What there is

    def images(self, request: Request) -> Reply:
        return data([one.outline() for one in catalog.IMAGES])

    def regions(self, request: Request) -> Reply:
        return data([catalog.region(name) for name in catalog.REGIONS])
