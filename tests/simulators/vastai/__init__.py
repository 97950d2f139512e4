"""vast.ai on loopback: its API reference as of August 2026, for the official SDK and for our adapter, on one world.

    sim = VastSimulator()
    account = sim.add_account("ann")
    with SimServer(sim): VastAI(api_key=account.key, server_url=sim.url, retry=1)

Strict: an unknown route, query parameter, body field or header is a violation, and so is a key in a URL.
"""

from __future__ import annotations

from tests.simulators.vastai.market import Machine
from tests.simulators.vastai.platform import VastSimulator
from tests.simulators.vastai.settings import VastAccount

__all__ = ["Machine", "VastAccount", "VastSimulator"]
