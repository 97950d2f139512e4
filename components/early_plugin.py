"""Has the engine start our plugin while the program still imports its parts.

The engine starts a plugin at the first request for it, and holds what is asked until the plugin is there. That takes
about as long as the imports, and neither needs the other.
"""

from __future__ import annotations

import contextlib
import threading

import grpc
import pulumi
from pulumi.runtime.config import CONFIG
from pulumi.runtime.proto import resource_pb2, resource_pb2_grpc

from sweepstack.core.functions import READY

NO_KEYS = frozenset({"sweepstack:sweep", "sweepstack:store"})
"""What a config may have under `sweepstack:` that the plugin has nothing to say of."""


def start() -> None:
    """Asks the plugin whether it is ready, and returns at once. Does nothing without an engine.

    Nor where the config has a key of a platform, which the plugin may refuse: what is wrong with the stack file is told
    before that. That the plugin can't be started is told first, in a new stack as in one that is up, whose refresh
    starts it before the program.
    """
    monitor = pulumi.runtime.settings.get_monitor()
    ours = {key for key in CONFIG.get() if key.startswith("sweepstack:")}
    if not isinstance(monitor, resource_pb2_grpc.ResourceMonitorStub) or ours - NO_KEYS:
        return

    def ask() -> None:
        with contextlib.suppress(grpc.RpcError):  # the engine has told it, or the program's own question will
            monitor.Invoke(resource_pb2.ResourceInvokeRequest(tok=READY))

    threading.Thread(target=ask, name="early-plugin").start()
