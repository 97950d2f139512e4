"""Lambda Cloud on loopback: API v1, document 1.10.0, for instances, SSH keys, file systems and firewall rulesets.

Written from the vendor's facts alone (`platform` names the sources).

    python -m tests.simulators.lambda_api --port 0     # prints its URL; Ctrl-C ends it

What the facts leave open is answered in the way that costs a careless client most: what was once active bills until it
is terminated, whatever its status; an instance shows `active` while it restarts; a terminate right after the launch is
refused; one that is terminated is in no list, and unknown by its id after a while. There is no stop. Behind an instance
stands a real machine whose sshd lets `ubuntu` in at port 22 of an address of its own (`machines=True`), or nothing.
"""

from __future__ import annotations

from tests.simulators.lambda_api.instance_routes import GET, LAUNCH, LIST, RESTART, TERMINATE, TYPES
from tests.simulators.lambda_api.platform import KEY, KINDS, MENU, OTHER_KEY, LambdaSim
from tests.simulators.lambda_api.timeline import AT_ONCE, Times

__all__ = [
    "AT_ONCE", "GET", "KEY", "KINDS", "LAUNCH", "LIST", "MENU", "OTHER_KEY", "RESTART", "TERMINATE", "TYPES",
    "LambdaSim", "Times",
]  # fmt: skip
