"""Clusters that run Slurm: a box is a folder on the cluster's shared tier, and the jobs of one sweep.

Everything is asked of a login node over SSH, as of any host of the user's own; `onbox/agent.py` runs there. Inputs
and state name the adapter with that host, `slurm:user@login:port`, so that another machine can delete the box weeks
later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sweepstack.channel.host_address import HostAddress
from sweepstack.core.box_end import Moves
from sweepstack.extensions.slurm import api
from sweepstack.extensions.slurm.channel import ClusterChannel
from sweepstack.onbox.common.errors import ConfigError, RequestRefused
from sweepstack.onbox.host.capabilities import IsCluster
from sweepstack.platforms.ssh import platform as hosts
from sweepstack.platforms.ssh.platform import SshPlatform, spelled

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel
    from sweepstack.platforms.ssh.api import Caller

__all__ = ["SlurmPlatform", "connect", "connect_to", "prove_same", "spelled"]


def connect() -> SlurmPlatform:
    """The platform without a login node: it lists nothing, and every other method raises ConfigError."""
    return SlurmPlatform(None)


def connect_to(address: str, moves: Moves | None = None) -> SlurmPlatform:
    """The platform of one cluster, by a login node `user@host:port[/folder]`. Does not connect yet. `moves`: when its
    address changes. Raises ConfigError."""
    return SlurmPlatform(HostAddress.parse(address), moves)


def prove_same(address: str, former: str, native_id: str, account: str, host_keys: Sequence[str] | None) -> None:
    """See `sweepstack.platforms.registry.prove_same`."""
    hosts.prove_same(address, former, native_id, account, host_keys, api.calling)


class SlurmPlatform(SshPlatform, IsCluster):
    """See `sweepstack.onbox.host.platform.Platform`."""

    adapter: ClassVar[str] = "slurm"

    @staticmethod
    def calling(address: HostAddress, moves: Moves | None) -> Caller:
        return api.calling(address, moves)

    def refusals(self, scheduler: Mapping[str, Any]) -> list[str]:
        return [str(line) for line in self._ask("refusals", scheduler=dict(scheduler))]

    def power_off(self, native_id: str, account: str, command: str) -> None:
        raise RequestRefused("a cluster is not shut down by a command on its login node: end it where it was rented")

    def channel(self, native_id: str, account: str) -> Channel:
        if self.address is None:
            raise ConfigError("a cluster has a login node: boxes.<name>.host, such as ann@login.example.org")
        caller = self._host()
        root, mounts = caller.where(native_id, account)
        answers = caller.answers(native_id, account)
        return ClusterChannel(
            caller, native_id, account, root, mounts, lambda: self._closed(native_id, account), answers
        )
