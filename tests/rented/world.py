"""Sweeps on rented boxes: the real engine with a simulated platform whose boxes are machines.

The commands and the checkout are those of `tests.engine.harness`; what differs is the account, and that a box is
another machine, which sees nothing of this one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engine.harness import Stack
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.machines import Machine, require
from tests.simulators.rental import Options, Rental, rental

PACKAGES = "/usr/local/lib/python3.11/dist-packages"
OF_IMAGES = ("/etc/rp_environment", "/etc/ssh/sshd_config")
"""Files of a box in which an image itself keeps the box's key, where it exports it to its sessions."""
RETIRED = False
"""Whether platforms that open from here on have retired their older interface, where they have one."""
PACE = "0.02"
"""Waits between calls of an API, as a part of what the platform asks for: the simulated clock asks for none."""


@dataclass
class World:
    """One platform with one customer, and the stack that rents there."""

    platform: str
    sim: Any
    server: SimServer
    key: str
    stack: Stack

    @property
    def its(self) -> Rental:
        """What is known of the platform."""
        return rental(self.platform)

    @property
    def account(self) -> str:
        """The customer's id."""
        return next(one.id for one in self.sim.accounts.values() if one.key == self.key)

    def retire(self) -> None:
        """The platform's older interface answers 410 from now on, where it has one: the end of a box is proved by its
        bill then, which takes minutes. Here it takes a second."""
        if has_older_interface(self.platform):
            self.sim.faults.add("retired", self.its.older, times=None)
            self.stack.env["SWEEPSTACK_API_PACE"] = "0.002"

    def rentals(self) -> set[str]:
        """Native ids of the boxes that bill now, by the platform's own books."""
        return {one.id for one in self.sim.ledger.live() if one.kind == self.its.box}


@contextmanager
def image() -> Iterator[None]:
    """Machines that start meanwhile are containers of the tests' image: Debian's Python, and this environment's
    packages. Those of later tests must not see these: what runs on a machine finds torch there, or does not."""
    site = Path(sys.prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    before = Machine.image_binds, Machine.image_tools
    Machine.image_binds = {PACKAGES: site}
    Machine.image_tools = {"python": '#!/bin/sh\nexec /usr/bin/python3 "$@"\n'}
    try:
        yield
    finally:
        Machine.image_binds, Machine.image_tools = before


@contextmanager
def rented(platform: str, base: Path, name: str, *, machines: bool = True) -> Iterator[World]:
    """A world whose stack file is the one that ships, without the set-up that would ask the internet."""
    if machines:
        require()
    sim, key, variables = _open(platform, base / "platform", machines)
    ssh_key = base / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh_key)], check=True)
    with image() if machines else nullcontext(), SimServer(sim) as server:
        stack = Stack(base / "sweep", name=name)
        stack.env |= {
            **{variable: server.api if value == "URL" else value for variable, value in variables.items()},
            "SWEEPSTACK_SSH_KEY": str(ssh_key),
            "SWEEPSTACK_API_PACE": PACE,
        }
        stack.evidence = stack.checkout / "results" / name
        world = World(platform, sim, server, key, stack)
        if RETIRED:
            world.retire()
        try:
            yield world
        finally:
            # The boxes end with the platform. `stack.close()` would end what carries their ids on the whole host, and
            # another worker's vast.ai gives its boxes the same numbers.
            print(last_words(base / "platform"))  # pytest shows it where a test of this world failed
        sim.check()
        spilled = holding(base, key, *(own.key for own in sim.own_keys.ever))
        spilled = [path for path in spilled if not path.endswith(OF_IMAGES)]
        assert spilled == [], f"the platform's key, or one of a box, lies in {spilled}"


def has_older_interface(platform: str) -> bool:
    """Whether it can retire one, which our adapter still asks."""
    return bool(getattr(rental(platform), "older", ""))


@contextmanager
def beside(world: World, platform: str, base: Path) -> Iterator[World]:
    """A second platform for the stack of `world`: an account there, whose boxes are machines as well."""
    sim, key, variables = _open(platform, base / "platform", machines=True)
    with SimServer(sim) as server:
        world.stack.env |= {variable: server.api if value == "URL" else value for variable, value in variables.items()}
        try:
            yield World(platform, sim, server, key, world.stack)
        finally:
            print(last_words(base / "platform"))
    sim.check()


def _open(platform: str, state: Path, machines: bool) -> tuple[Any, str, dict[str, str]]:
    state.mkdir(parents=True)
    its = rental(platform)
    customers = its.open(VirtualClock(scale=1.0), Options(state=state, machines=machines, pace=float(PACE)))
    return customers.sim, customers.key, {its.url: "URL", its.key: customers.key}


def last_words(platform: Path) -> str:
    """The ends of what cells and runners printed on the boxes, whose disks go with the world."""
    logs = sorted({*platform.rglob("cells/*/*/log.txt"), *platform.rglob("data/sweep/runner.log")})
    return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-1500:]}" for log in logs)


def holding(folder: Path, *secrets: str) -> list[str]:
    """The files below `folder` in which one of `secrets` can be read: state, evidence, logs, caches, boxes' disks."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if any(secret.encode() in content for secret in secrets):
            found.append(str(path.relative_to(folder)))
    return found


def without_internet(stack: Stack) -> None:
    """`job.setup` would ask an index: what it installs is in the image of the tests, beside a torch that the job does
    not use and that finds no card. And two epochs do."""
    stack.edit_config(lambda sweep: sweep["job"].pop("setup"))
    stack.edit_config(lambda sweep: sweep["job"].setdefault("env", {}).update(SWEEPSTACK_CHECK_TORCH="0"))
    stack.edit_config(lambda sweep: sweep["cells"]["base"].update(epochs=2))
