"""A simulator of AutoDL's developer API: the wallet, and the instances of the line "Pro", which alone have one."""

from __future__ import annotations

from tests.simulators.autodl.platform import API, KINDS, LIST, OFF, SNAPSHOT, STATUS, TOKEN, WALLET, AutodlSim, Instance

__all__ = ["API", "KINDS", "LIST", "OFF", "SNAPSHOT", "STATUS", "TOKEN", "WALLET", "AutodlSim", "Instance"]
