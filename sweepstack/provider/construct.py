"""Answers Construct: a program in any language declares a component, and its parts are declared here.

By a process of its own: `pulumi` is a stub package in this one (`grpc_stubs`), and the components need the SDK.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from sweepstack.core.printable import MESSAGE_SHOWN, visible
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.provider.grpc_stubs import provider_pb2
from sweepstack.provider.session import Session


def construct(session: Session, request: Any) -> Any:
    """Declares the component and returns its URN and outputs. Blocks until each part is there, which may rent boxes, or
    until the engine cancels. Raises SweepstackError with what the person must read."""
    argv = [sys.executable, "-P", "-m", "components.construct", session.engine, str(session.project_root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        session.helpers.add(process)
        try:
            if session.cancelled.is_set():  # it came while the process was started
                process.kill()
            answer, _ = process.communicate(request.SerializeToString())
        finally:
            session.helpers.discard(process)
    if process.returncode == MESSAGE_SHOWN:  # the text of an error
        raise SweepstackError(visible(answer.decode("utf-8", "replace"), keep="\n\t"))
    if process.returncode:
        raise SweepstackError(
            f"the parts of {request.type} {request.name} were not all declared: what failed is told above. What was "
            f"rented is in the state. Next: the same command again, or sweepctl status --stack {request.stack}"
        )
    return provider_pb2.ConstructResponse.FromString(answer)
