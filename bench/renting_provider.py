"""`python -m bench.renting_provider <engine address>`: the plugin, where an empty folder stands for each box's SSH.

One hundred machines would be measured otherwise. All that speaks to a platform is what users run.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sweepstack.channel.ssh.channel
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.provider.grpc_service import serve

FIRST_VARIABLE = "SWEEPSTACK_BENCH_FIRST"
"""Modules to import before the first call: a second of that would count as many, where time is scaled."""
FOLDER_VARIABLE = "SWEEPSTACK_BENCH_BOXES"


class EmptyBox(LocalChannel):
    """Stands where `SshChannel` would. Every box has a folder of its own."""

    def __init__(self, native_id: str, _endpoint: object, *, mounts: Mapping[str, str] | None = None, **_: Any) -> None:
        root = Path(os.environ[FOLDER_VARIABLE]) / native_id
        (root / "data").mkdir(parents=True, exist_ok=True)
        super().__init__(native_id, root, {})

    def prepare(self) -> None:
        """It is there."""

    def close(self) -> None:
        """Nothing is open."""


if __name__ == "__main__":
    for name in filter(None, os.environ[FIRST_VARIABLE].split(",")):
        importlib.import_module(name)
    sweepstack.channel.ssh.channel.SshChannel = EmptyBox  # type: ignore[assignment,misc]
    sys.exit(serve(sys.argv[1]))
