"""Paperspace's API v1 on loopback: machines and their events, templates, startup scripts.

Written from the vendor's facts alone (`platform` names the sources).

What the facts leave open is answered in the way that costs a careless client most: a create that does not say so starts
and bills; without a card the machine is made all the same, stays off, and its disk bills; compute is paid by the begun
hour and until it is off; a machine is deleted only when it is off; one that was powered off from inside bills on; a
filter by name matches a part of a name. There is no call for prices, for the balance or for SSH keys. Nothing stands
behind a machine: its address is one of loopback at which nothing listens.
"""

from __future__ import annotations

from tests.simulators.paperspace.machine_routes import API, CREATE, DELETE, EVENT, GET, LIST, START, STOP
from tests.simulators.paperspace.machines import AT_ONCE, Times
from tests.simulators.paperspace.platform import KEY, OTHER_KEY, PaperspaceSim

__all__ = [
    "API", "AT_ONCE", "CREATE", "DELETE", "EVENT", "GET", "KEY", "LIST", "OTHER_KEY", "START", "STOP", "PaperspaceSim",
    "Times",
]  # fmt: skip
