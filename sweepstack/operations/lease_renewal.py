"""The lease of a box, as the box is told of it, and the look that renews it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from sweepstack.core.lease_terms import LeaseFacts
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.capabilities import CanStopItself
from sweepstack.onbox.host.platform import Platform


def on_box(lease: LeaseFacts | None, platform: Platform, native_id: str) -> dict[str, Any]:
    """The lease as spec.json has it (`sweepstack.onbox.runner.lease`); empty without one."""
    if lease is None:
        return {}
    how: dict[str, Any] = {}
    if lease.by == "ssh":
        how = {"by": "ssh", "native": lease.native, "command": lease.command}
    elif lease.by == "key" and isinstance(platform, CanStopItself):
        requests = [
            {"method": asked.method, "url": asked.url, "body": dict(asked.body)}
            for asked in platform.own_stop(native_id)
        ]
        how = {"by": "key", "native": lease.native, "key": lease.key, "proved": lease.proved, "requests": requests}
    return {"seconds": lease.seconds, "kills": list(lease.kills), "how": how}


def renew_lease(channel: Callable[[], Channel]) -> None:
    """Renews the lease of a box. Blocks for a round trip; never raises: what the caller does goes on without it."""
    with contextlib.suppress(SweepstackError, OSError):
        channel().touch(box_layout.LOOKED)
