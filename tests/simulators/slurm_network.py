"""A Slurm cluster whose nodes have networks of their own, between which lies one switch (a bridge of the kernel).

For cells over several nodes: with all daemons on one loopback, a node would find no other machine. Needs `ip`, and
virtual cards; where the system has none, its tests say so and are skipped.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.simulators.gateway import network_of, raise_loopback
from tests.simulators.slurm_cluster import Login, Part, SlurmCluster

CARD = "fab0"
"""The name of each node's card."""


def _ip(*words: str, inside: int = 0) -> None:
    """`inside`: a process in whose network it runs."""
    enter = ["nsenter", f"--net=/proc/{inside}/ns/net"] if inside else []
    done = subprocess.run([*enter, "ip", *words], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@functools.cache
def missing() -> str:
    """Why there can be no such switch here, which is tried; empty where there can."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
        return "a switch between nodes takes root, ip (iproute2) and nsenter (util-linux)"
    try:
        name = f"sw{os.getpid() % 100000}t"
        _ip("link", "add", name, "type", "bridge")
        _ip("link", "del", name)
        _ip("link", "add", name, "type", "veth", "peer", "name", f"{name}x")
        _ip("link", "del", name)
    except OSError as error:
        return f"a switch between nodes: {error}"
    return ""


def require() -> None:
    """Skips the test where there can be no switch, with what is in the way."""
    import pytest

    if why := missing():
        pytest.skip(f"NOT TESTED: {why}")


class Switch:
    """`net`: the first three numbers of its addresses; `name`: of the bridge."""

    def __init__(self, number: int) -> None:
        self.name, self.net = f"sw{number}", f"10.{100 + number // 256 % 100}.{number % 256}"
        _ip("link", "add", self.name, "type", "bridge")
        _ip("addr", "add", f"{self.net}.254/24", "dev", self.name)
        _ip("link", "set", self.name, "up")
        self._cards, self._card = 0, dict[str, str]()

    def narrow(self, name: str, most: int) -> None:
        """From now on the switch passes no larger packets to a machine, which hears nothing of that."""
        _ip("link", "set", self._card[name], "mtu", str(most))

    def attach(self, pid: int, address: str, name: str) -> None:
        """Gives the network of a process a card with this address. `name`: the machine's."""
        self._cards += 1
        card = self._card[name] = f"{self.name}c{self._cards}"
        _ip("link", "add", card, "type", "veth", "peer", "name", CARD, "netns", str(pid))
        _ip("link", "set", card, "master", self.name, "up")
        _ip("addr", "add", f"{address}/24", "dev", CARD, inside=pid)
        _ip("link", "set", CARD, "up", inside=pid)

    def close(self) -> None:
        """Takes it away; the cards go with the networks that they are in."""
        _ip("link", "del", self.name)


class NetworkedCluster(SlurmCluster):
    """See `SlurmCluster`. Each node is at `fab0`, with an address of its own."""

    def __init__(self, keep: Path, settings: Mapping[str, str], partitions: Sequence[str]) -> None:
        require()
        super().__init__(keep, settings, partitions)
        # torch is in the environment of the tests, whose Python may lie below a home
        self.seen = {path: Path(path) for path in (sys.prefix, sys.base_prefix)}
        self.switch = switch = Switch(self.port)
        at = self.at

        class Node(Part):
            own_network = True

            def _connect(self, port: int) -> None:
                self._network = network_of(self.pid)
                raise_loopback(self._network)
                switch.attach(self.pid, at(self.name), self.name)

        class AttachedLogin(Login):
            def _connect(self, port: int) -> None:
                super()._connect(port)
                switch.attach(self.pid, at(self.name), self.name)

        self.part, self.login_kind = Node, AttachedLogin

    def at(self, name: str) -> str:
        last = {"ctl": 254, "login": 253}.get(name) or int(name[1:])
        return f"{self.switch.net}.{last}"

    def stop(self) -> None:
        super().stop()
        with contextlib.suppress(OSError):  # it is gone already
            self.switch.close()
