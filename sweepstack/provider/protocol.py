"""The engine's generated gRPC stubs, imported without the Pulumi SDK around them.

`import pulumi` takes 0.46 s, the stubs alone 0.15 s, and the engine starts this plugin two to four times for each
command. So the SDK's two outer packages are replaced by empty stub packages, which have only a search path, and the
generated modules are imported from below them. Nothing in this process may import the real SDK afterwards: `pulumi` is
a stub package here.
"""

from __future__ import annotations

from sweepstack.platforms.common.stub_package import import_as_stub

for _package in ("pulumi", "pulumi.runtime"):
    import_as_stub(_package)

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
