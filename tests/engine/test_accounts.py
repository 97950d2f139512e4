"""Keys in the provider's configuration: two accounts in one program, a rotated key, and no key in clear anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.harness_runpod import REGION
from tests.engine.commands import Result, assert_failed, ok
from tests.engine.harness import Stack
from tests.engine.programs import become_program, write_program
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.ledger import Account
from tests.simulators.runpod import KEY, OTHER_KEY, RunPodSim

NEW_KEY, OTHER_NEW_KEY = "rpa_ROTATED0000000000000000000000000001", "rpa_ROTATED0000000000000000000000000002"
PROGRAM = f"""
import pulumi
from base import identity
from components.resources import Provider, Volume

config = pulumi.Config()
i = identity()
bob = Provider("bob", runpod_api_key=config.require_secret("bob"))
homes = {{"ann": None, "bob": bob}}
for name, provider in homes.items():
    at = {{"identity": i.identity, "evidence": i.evidence, "adapter": "runpod", "name": name}}
    volume = Volume(name, pulumi.ResourceOptions(provider=provider), size_gb=10, region="{REGION}", **at)
    pulumi.export(name, volume.native_id)
"""
SWEEPCTL = """
import sys
from pathlib import Path
from sweepstack.platforms.common import keys
from sweepstack.platforms.runpod import KEY
from sweepstack.status.engine.stack_keys import StackKeys
from sweepstack.status.engine.state import read_state

stack, account = sys.argv[1:]
keys.look_in(StackKeys(stack, Path.cwd(), Path(f"Pulumi.{stack}.yaml")))
read_state(stack, Path.cwd())
print(keys.find(KEY), keys.find(KEY, account))
"""


class Vendor(RunPodSim):
    """An account may have a second key."""

    def __init__(self, state: Path) -> None:
        super().__init__(clock=VirtualClock(scale=1.0), state=state)
        self.second: dict[str, str] = {}

    def customer(self, key: str) -> Account | None:
        return super().customer(self.second.get(key, key))

    def withdraw(self, old: str, new: str) -> None:
        """Its account has the new key alone."""
        with self.lock:
            account = self.customer(old)
            assert account is not None
            self.second.pop(new, None)
            account.key = new


@dataclass
class World:
    """A program with the accounts ann, of the default provider, and bob, of a provider of its own."""

    stack: Stack
    sim: Vendor
    said: str = ""

    def say(self, result: Result) -> Result:
        """The result, kept for `shows_no_key`."""
        self.said += str(result)
        return result

    def set(self, **keys: str) -> None:
        """`pulumi config set --secret` of each: `ann` is the key of the default provider."""
        named = [f"{name.replace('ann', 'sweepstack:runpodApiKey')}={key}" for name, key in keys.items()]
        words = [word for one in named for word in ("--secret", one)]
        self.said += ok(self.stack.pulumi("config", "set-all", *words)).text

    def up(self, *words: str) -> Result:
        """`pulumi up`."""
        return self.say(self.stack.up(*words))

    def of(self, key: str) -> str:
        """The account of a key."""
        return next(one.id for one in self.sim.accounts.values() if one.key == key)

    def shows_no_key(self) -> None:
        """Neither in what was said, nor in any file of the stack."""
        folders = ("backend", "program", "evidence", "data", "cache")
        files = [path for name in folders for path in (self.stack.base / name).rglob("*") if path.is_file()]
        texts = {"what was said": self.said.encode()} | {str(path): path.read_bytes() for path in files}
        for key in (KEY, OTHER_KEY, NEW_KEY, OTHER_NEW_KEY):
            assert not [where for where, text in texts.items() if key.encode() in text], f"{key} is shown"


@pytest.fixture
def world(make_stack: Callable[..., Stack], tmp_path: Path) -> Iterator[World]:
    """Up: a volume in each account. No key is in the environment."""
    sim = Vendor(tmp_path)
    with SimServer(sim) as server:
        stack = make_stack(config=False, init=False)
        become_program(stack)
        stack.env |= {"RUNPOD_API_BASE_URL": server.api, "SWEEPSTACK_API_PACE": "0.02"}
        write_program(stack, PROGRAM)
        made = World(stack, sim)
        made.set(ann=KEY, bob=OTHER_KEY)
        ok(made.up())
        yield made
    sim.check()


def volumes(stack: Stack) -> dict[str, Any]:
    """name → outputs."""
    return {one["urn"].rsplit("::", 1)[-1]: one["outputs"] for one in stack.resources("Volume")}


def test_two_accounts_and_a_rotated_key(world: World) -> None:
    """What was rented is changed by no new key of the same account, which each later command uses."""
    ann, bob = world.of(KEY), world.of(OTHER_KEY)
    before = volumes(world.stack)
    assert {name: one["account"] for name, one in before.items()} == {"ann": ann, "bob": bob}
    assert [len(world.sim.volumes.of(account)) for account in (ann, bob)] == [1, 1]
    world.shows_no_key()

    found = world.stack.run("python", "-c", SWEEPCTL, world.stack.name, bob)
    assert ok(found).out.split() == [KEY, OTHER_KEY], "sweepctl has the same keys"

    world.sim.second[NEW_KEY] = KEY
    world.set(ann=NEW_KEY)
    ok(world.up("--expect-no-changes"))
    assert volumes(world.stack) == before
    world.sim.withdraw(KEY, NEW_KEY)
    world.sim.withdraw(OTHER_KEY, OTHER_NEW_KEY)  # before the stack has another: its boxes can't be looked at
    world.set(bob=OTHER_NEW_KEY)
    mended = ok(world.up())
    assert "volume ann: unknown" not in mended.text
    assert "volume bob: unknown" in mended.text
    assert volumes(world.stack) == before
    assert [len(world.sim.volumes.of(account)) for account in (ann, bob)] == [1, 1]
    world.shows_no_key()
    providers = [one for one in world.stack.state()["resources"] if one["type"] == "pulumi:providers:sweepstack"]
    assert sorted(json.dumps(one["inputs"]["accounts"]) for one in providers) == sorted(
        json.dumps({"runpod": account}) for account in (ann, bob)
    )
    ok(world.say(world.stack.destroy()))


@pytest.mark.proof  # the provider's own answers are in tests/unit/provider/test_configuration.py
def test_another_account_is_refused(world: World) -> None:
    """By its key; and where a resource is given to another provider, which the engine takes for no change."""
    ann, bob, before = world.of(KEY), world.of(OTHER_KEY), volumes(world.stack)
    world.set(ann=OTHER_KEY)
    assert_failed(world.up(), f"is a key of the RunPod account {bob}", f"worked with {ann}", "nothing was changed")
    world.set(ann=KEY)
    write_program(world.stack, PROGRAM.replace('"ann": None', '"ann": bob'))
    assert_failed(world.up(), "Volume ann: it is of the RunPod account", "give it the provider that it had")
    assert volumes(world.stack) == before
    write_program(world.stack, PROGRAM)
    ok(world.up("--expect-no-changes"))
