"""`python -m components.construct ENGINE ROOT`: declares a component for a program in any language.

The provider starts it (`sweepstack.provider.construct`), since the SDK can't be imported beside the provider's own host
(docs/adr/001, docs/adr/027). The engine's ConstructRequest comes on standard input, as the protocol's bytes, and its
ConstructResponse goes to standard output. With exit code `MESSAGE_SHOWN` that is the text of our own error instead.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pulumi
from google.protobuf.json_format import MessageToDict
from pulumi.provider import ConstructResult, Provider
from pulumi.provider.server import ProviderServicer
from pulumi.runtime import rpc
from pulumi.runtime.proto import provider_pb2

from sweepstack.core.importing import fast_imports
from sweepstack.core.printable import MESSAGE_SHOWN
from sweepstack.onbox.common.errors import SweepstackError

with fast_imports():
    from components.from_config import declare, load_config
    from components.store import Store
    from components.sweep import Sweep
    from sweepstack.core.spelling import camel

KINDS: dict[str, type[Sweep | Store]] = {f"sweepstack:index:{kind.__name__}": kind for kind in (Sweep, Store)}


class Components(Provider):
    """What the SDK asks for a component, once it has made the request's settings its own."""

    def __init__(self, project_root: Path, given: dict[str, Any]) -> None:
        """`given`: the inputs, as the program gave them."""
        super().__init__("")
        self.project_root, self.given = project_root, given

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Declares it with all that lies below. Raises SweepstackError."""
        if resource_type not in KINDS:
            raise SweepstackError(f"sweepstack has no component {resource_type}; it has {', '.join(KINDS)}")
        config = load_config(self.project_root, KINDS[resource_type].key, self.given)
        found = declare(config, KINDS[resource_type], self.project_root, name, options)
        return ConstructResult(found.urn, {camel(key): value for key, value in found.outputs.items()})


def plain(value: Any, where: str) -> Any:
    """An input as plain data: it is written into a file that people read, before anything is there.

    Raises SweepstackError for a secret, and for what is not known until another resource is there.
    """
    if isinstance(value, dict) and rpc._special_sig_key in value:
        kind = value[rpc._special_sig_key]
        if kind == rpc._special_secret_sig or value.get("secret"):
            raise SweepstackError(
                f"{where} is a secret, and what a program declares of a sweep stands in a file and in the state. List "
                "the name of a variable in job.secrets, and export it; the keys of platforms are the provider's"
            )
        if kind == rpc._special_output_value_sig and "value" in value:
            return plain(value["value"], where)
        value = rpc.UNKNOWN
    if value == rpc.UNKNOWN:
        raise SweepstackError(
            f"{where} is not known before another resource is there, and a sweep is reviewed before it is brought up. "
            "Write the value itself, or bring that resource up in a stack of its own"
        )
    if isinstance(value, float) and value.is_integer():  # the protocol knows no whole numbers
        return int(value)
    if isinstance(value, dict):
        return {key: plain(one, f"{where}.{key}") for key, one in value.items()}
    return [plain(one, f"{where}[{index}]") for index, one in enumerate(value)] if isinstance(value, list) else value


def main(engine: str, project_root: str) -> int:
    """Blocks until all parts are there: what they cost, and for how long that takes, the engine's own output says."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    request = provider_pb2.ConstructRequest.FromString(sys.stdin.buffer.read())
    with answer:
        try:
            given = {key: plain(value, key) for key, value in MessageToDict(request.inputs).items()}
            servicer = ProviderServicer(Components(Path(project_root), given), [], engine)
            answer.write(asyncio.run(servicer._construct(request, None)).SerializeToString())
        except SweepstackError as error:
            answer.write(str(error).encode())
            return MESSAGE_SHOWN
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
