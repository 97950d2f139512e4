"""SSH keys, file systems and firewall rulesets: what outlives instances."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from tests.simulators.clock import rfc3339
from tests.simulators.lambda_api import catalog
from tests.simulators.lambda_api.requests import Rule
from tests.simulators.lambda_api.timeline import Timeline
from tests.simulators.ledger import HOUR, MONTH, Account, RentalLedger

STEP = HOUR
"""A file system is billed in steps of this."""


def id_of(*what: object) -> str:
    """An id in the vendor's form: 32 hexadecimal digits."""
    return hashlib.sha256(" ".join(map(str, what)).encode()).hexdigest()[:32]


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


@dataclass
class FileSystem:
    """One file system. `used`: bytes, by which it is billed; the API shows them some hours late."""

    id: str
    account: str
    name: str
    region: str
    created: float
    used: int = 0

    @property
    def mount_point(self) -> str:
        """Where it is mounted unless the launch says otherwise."""
        return f"/lambda/nfs/{self.name}"

    @property
    def rate(self) -> float:
        """USD an hour."""
        return self.used / catalog.GIB * catalog.FILE_SYSTEM_GIB * HOUR / MONTH


@dataclass
class Ruleset:
    """One firewall ruleset."""

    id: str
    account: str
    name: str
    region: str
    rules: list[Rule]
    created: float


class Stores:
    """Those of all accounts."""

    def __init__(self, ledger: RentalLedger, timeline: Timeline) -> None:
        self._ledger, self._timeline = ledger, timeline
        self._made = 0
        self.keys: dict[str, Key] = {}
        self.file_systems: dict[str, FileSystem] = {}
        self.rulesets: dict[str, Ruleset] = {}

    def add_key(self, account: str, name: str, public_key: str) -> Key:
        """One more."""
        key = Key(self._id("key"), account, name, public_key)
        self.keys[key.id] = key
        return key

    def key_named(self, account: str, name: str) -> Key | None:
        """An account's key of this name."""
        return next((one for one in self.keys.values() if (one.account, one.name) == (account, name)), None)

    def create(self, account: str, name: str, region: str) -> FileSystem:
        """A new, empty file system: it bills from now on, for what it will hold."""
        made = FileSystem(self._id("file system"), account, name, region, self._timeline.now())
        self.file_systems[made.id] = made
        self._ledger.begin(made.id, account=account, tag=name, kind="file_system", state="kept", rate=made.rate)
        return made

    def fill(self, one: FileSystem, used: int) -> None:
        """It holds so many bytes now."""
        one.used = used
        self._ledger.turn(one.id, "kept", one.rate)

    def delete(self, one: FileSystem) -> None:
        """Its content is lost."""
        del self.file_systems[one.id]
        self._ledger.end(one.id, "deleted", step=STEP)

    def file_systems_of(self, account: str) -> list[FileSystem]:
        """An account's."""
        return [one for one in self.file_systems.values() if one.account == account]

    def add_ruleset(self, account: str, name: str, region: str, rules: list[Rule]) -> Ruleset:
        """One more."""
        made = Ruleset(self._id("ruleset"), account, name, region, rules, self._timeline.now())
        self.rulesets[made.id] = made
        return made

    def _id(self, what: str) -> str:
        self._made += 1
        return id_of(what, self._made)


def shown_file_system(one: FileSystem, account: Account, in_use: bool) -> dict[str, Any]:
    """`Filesystem` of the vendor's document."""
    return {
        "id": one.id,
        "name": one.name,
        "mount_point": one.mount_point,
        "created": rfc3339(one.created),
        "created_by": {"id": id_of("user", account.id), "email": account.email, "status": "active"},
        "is_in_use": in_use,
        "region": catalog.region(one.region),
        "bytes_used": one.used,
    }


def shown_ruleset(one: Ruleset, instances: list[str]) -> dict[str, Any]:
    """`FirewallRuleset` of the vendor's document."""
    return {
        "id": one.id,
        "name": one.name,
        "region": catalog.region(one.region),
        "rules": [rule.model_dump(exclude_none=True) for rule in one.rules],
        "created": rfc3339(one.created),
        "instance_ids": instances,
    }
