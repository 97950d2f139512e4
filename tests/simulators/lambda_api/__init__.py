"""Lambda Cloud on loopback: API v1, document 1.10.0, for instances and SSH keys.

Written from the vendor's facts alone (`platform` names the sources).

What the facts leave open is answered in the way that costs a careless client most: what was once active bills until it
is terminated, whatever its status; a terminate right after the launch is refused; one that is terminated is in no list,
and unknown by its id after a while. There is no stop. Behind an instance stands a real machine whose sshd lets `ubuntu`
in at port 22 of an address of its own (`machines=True`), or nothing.
"""

from __future__ import annotations

from tests.simulators.lambda_api.instance_routes import GET, LAUNCH, LIST, TERMINATE
from tests.simulators.lambda_api.instances import AT_ONCE, Times
from tests.simulators.lambda_api.platform import KEY, MENU, OTHER_KEY, LambdaSim

__all__ = ["AT_ONCE", "GET", "KEY", "LAUNCH", "LIST", "MENU", "OTHER_KEY", "TERMINATE", "LambdaSim", "Times"]
