"""RunPod on loopback: REST v2, and of GraphQL what its official SDK and spot pods need.

Written from the vendor's facts alone.

What the facts leave open is answered in
the way that costs a careless client most: provisioning bills, deleting a volume is not refused, RUNNING does not mean
ready.
"""

from __future__ import annotations

from tests.simulators.runpod.catalog import COMMUNITY, SECURE, GpuType
from tests.simulators.runpod.platform import CREATE, DELETE, GET, GRAPHQL, KEY, KINDS, LIST, MENU, OTHER_KEY, RunPodSim
from tests.simulators.runpod.pods import Boot
from tests.simulators.runpod.spot import SPOT_CREATE, SPOT_MENU, SPOT_RESUME

__all__ = [
    "COMMUNITY", "CREATE", "DELETE", "GET", "GRAPHQL", "KEY", "KINDS", "LIST", "MENU", "OTHER_KEY", "SECURE",
    "SPOT_CREATE", "SPOT_MENU", "SPOT_RESUME", "Boot", "GpuType", "RunPodSim",
]  # fmt: skip
