"""The engine's generated gRPC stubs, imported without the Pulumi SDK around them.

`import pulumi` takes 0.46 s, the stubs alone 0.15 s, and the engine starts this plugin two to four times for each
command. So the SDK's two outer packages are replaced by empty stub packages, which have only a search path, and the
generated modules are imported from below them. Nothing in this process may import the real SDK afterwards: `pulumi` is
a stub package here.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from sweepstack.core.paths import package_fix


def _import_as_stub(name: str) -> None:
    """Registers an empty package under `name` in `sys.modules`: its submodules can be imported, its `__init__` is not
    run.

    Does nothing when the package was imported before. From then on no code of this process may need the whole package.
    Raises ImportError when it is not installed.
    """
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{name} is not installed in {sys.prefix}; run `{package_fix()}`", name=name)
    shell = ModuleType(name, "search path only; see sweepstack/provider/grpc_stubs.py")
    shell.__path__ = list(spec.submodule_search_locations)
    shell.__spec__ = spec
    sys.modules[name] = shell


for _package in ("pulumi", "pulumi.runtime"):
    _import_as_stub(_package)

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
