"""A rented box's disk as a folder of this machine: what SSH would show of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common.errors import Unreachable

DISKS = "SWEEPSTACK_CHAOS_DISKS"
DEAF = "deaf"
"""A file of this name beside the disks: no sshd answers."""


class DiskChannel(LocalChannel):
    """Takes what `SshChannel` takes. The disk is made by `prepare`, as the adapter does once the box answers."""

    def __init__(
        self,
        native_id: str,
        endpoint: Any,
        *,
        root: str = "",
        mounts: Mapping[str, str] | None = None,
        closed: Callable[[], str] | None = None,
        **_: Any,
    ) -> None:
        folder = Path(os.environ[DISKS])
        if (folder / DEAF).exists():
            raise Unreachable(f"{native_id} does not answer at {endpoint.host}:{endpoint.port}")
        self._disk = folder / native_id
        super().__init__(native_id, self._disk, {}, closed=closed)

    def prepare(self) -> None:
        for tier in ("data", "scratch", "mnt/durable"):
            (self._disk / tier).mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Nothing is open."""
