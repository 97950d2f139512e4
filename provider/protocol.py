"""The engine's generated gRPC stubs, without the Pulumi SDK around them.

`import pulumi` takes 0.46 s and the engine starts this plugin two to four times a command, while the stubs alone
need 0.15 s. So the SDK's two outer packages are entered as empty shells whose only use is their search path, and
the stubs are imported from below them. Nothing in this process may import the real SDK afterwards: `pulumi` here
is a shell.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


def _enter_as_shell(name: str) -> None:
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{name} is not installed in {sys.prefix}; run `make up`")
    shell = ModuleType(name, "search path only; see provider/protocol.py")
    shell.__path__ = list(spec.submodule_search_locations)
    shell.__spec__ = spec
    sys.modules[name] = shell


for _package in ("pulumi", "pulumi.runtime"):
    _enter_as_shell(_package)

from pulumi.runtime.proto import (  # noqa: E402
    engine_pb2,
    engine_pb2_grpc,
    plugin_pb2,
    provider_pb2,
    provider_pb2_grpc,
    status_pb2,
)

__all__ = [
    "engine_pb2",
    "engine_pb2_grpc",
    "plugin_pb2",
    "provider_pb2",
    "provider_pb2_grpc",
    "status_pb2",
]
