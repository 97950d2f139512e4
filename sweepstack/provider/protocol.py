"""The engine's generated gRPC stubs, without the Pulumi SDK around them.

`import pulumi` takes 0.46 s and the engine starts this plugin two to four times a command, while the stubs alone
need 0.15 s. So the SDK's two outer packages are entered as empty shells whose only use is their search path, and
the stubs are imported from below them. Nothing in this process may import the real SDK afterwards: `pulumi` here
is a shell.
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
