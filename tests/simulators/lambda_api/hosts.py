"""What instances run on: real machines with an sshd at port 22 of an address of their own, or addresses at which
nothing listens, for tests of the API alone."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulators.vendor import Machines

if TYPE_CHECKING:
    from tests.simulators.lambda_api.instances import Instance

LOGIN = "ubuntu"
"""The only login of the vendor's images."""
SSH = 22


class NoHosts:
    """Instances of paper."""

    def __init__(self) -> None:
        self._given = 0

    def address(self, one: Instance) -> str:
        """The address of a new instance, another one each time."""
        self._given += 1
        return f"127.72.{self._given // 250}.{self._given % 250 + 1}"

    def boot(self, one: Instance) -> None:
        """Its system starts, in the background."""

    def ready(self, one: Instance) -> bool:
        """Whether its system has started."""
        return True

    def cut(self, one: Instance) -> None:
        """Its power is cut; its disk stays. Again: nothing."""

    def kill(self, one: Instance) -> None:
        """It ends with its disk. Again: nothing."""

    def close(self) -> None:
        """Ends all of them."""


class RealHosts(NoHosts, Machines):
    """Each instance a machine of `tests.simulators.machines`. `root`: where their disks lie; `keys`: the public keys
    that an instance lets in; `complain`: hears of a machine that did not start; `outlets`: the ports of loopback that
    they reach, asked at each boot."""

    def __init__(
        self,
        root: Path,
        keys: Callable[[Instance], Sequence[str]],
        complain: Callable[[str], None],
        outlets: Callable[[], Sequence[int]],
    ) -> None:
        NoHosts.__init__(self)
        Machines.__init__(self)
        self._root, self._keys = root, keys
        self._complain, self._outlets = complain, outlets
        self._addresses: dict[str, str] = {}

    def address(self, one: Instance) -> str:
        if one.id not in self._addresses:
            self._addresses[one.id] = free_address()
        return self._addresses[one.id]

    def boot(self, one: Instance) -> None:
        self.address(one)
        self.begin(one.id, lambda: self._boot(one))

    def _boot(self, one: Instance) -> None:
        from tests.simulators.machines import Machine

        try:
            self.there[one.id] = Machine.start(
                f"lambda-{one.number}",
                keep=self._root / one.id,
                authorized_keys=self._keys(one),
                gpus=one.kind.gpus,
                outlets=self._outlets(),
                login=LOGIN,
                address=self.address(one),
            )
        except (AssertionError, OSError, ValueError) as error:
            self._complain(f"the machine of instance {one.id} did not start: {error}")

    def ready(self, one: Instance) -> bool:
        return self.up(one.id)

    def cut(self, one: Instance) -> None:
        if machine := self.settled(one.id):
            machine.stop()

    def kill(self, one: Instance) -> None:
        self.end(one.id)

    def close(self) -> None:
        Machines.close(self)


def free_address() -> str:
    """An address of loopback whose port 22 is free. AssertionError: an sshd of this host has it on all addresses."""
    dice = random.SystemRandom()  # the tests' own may be seeded, and alike in all workers
    for _ in range(20):
        address = f"127.{dice.randint(73, 126)}.{dice.randint(0, 254)}.{dice.randint(1, 254)}"
        with socket.socket() as probe, suppress(OSError):
            probe.bind((address, SSH))
            return address
    raise AssertionError(
        "Lambda's instances answer at port 22 of addresses of their own (127.73.0.1 and so on), and something listens "
        "there on all addresses of this computer: let its sshd listen on one address, or run the tests in a container"
    )
