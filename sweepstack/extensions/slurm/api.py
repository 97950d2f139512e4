"""Sends requests to a login node of a cluster, where `onbox/agent.py` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.channel import agent_source
from sweepstack.channel.host_address import HostAddress
from sweepstack.core.box_end import Moves
from sweepstack.platforms.ssh import api
from sweepstack.platforms.ssh.api import Caller

LOGIN_NODE = (*api.HOST, "slurm")
"""The folders of sweepstack/onbox that are sent to a login node."""
READS = api.READS | {"workers", "refusals"}
SHIPPED = ("common", "host", "slurm")
"""The folders that the nodes get, which run workers: `start.py` of the last one starts one."""


def calling(address: HostAddress, moves: Moves | None = None) -> Caller:
    """Who sends the requests to a login node."""
    return Caller(address, source=program, reads=READS, moves=moves)


def program(settings: Mapping[str, Any]) -> bytes:
    """The source that the login node's Python reads and runs."""
    return agent_source.program(settings, LOGIN_NODE, "sweepstack.onbox.slurm.agent", keep=settings["root"])
