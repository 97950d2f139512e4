"""The agent on a login node: as the agent on a host, and with the jobs of the cluster.

It is sent over the connection with all that it imports (`extensions.slurm.api`): Python 3.8 and the standard library.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any, ClassVar, Mapping

from sweepstack.onbox.agent.agent import Wire
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host import agent
from sweepstack.onbox.host.box_folders import default_root
from sweepstack.onbox.host.platform import BoxRecord

from . import standing
from .platform import SlurmPlatform, keep_name, must_have_slurm

FRESH_SECONDS = 2.0
"""The queue is not asked again within so long: a command that waits asks often."""


class LoginNode(agent.Host):
    """Answers as `agent.Host`, and whether a box's jobs are at work."""

    own: ClassVar[tuple[str, ...]] = (*agent.OWN, "top_up", "end_workers", "workers", "refusals")
    _seen: tuple[float, str, bool] | None = None

    def __init__(self, wire: Wire, settings: Mapping[str, Any]) -> None:
        # Not the folder of the host's own boxes, which another adapter lists.
        root = settings["root"] or str(default_root().parent / "cluster")
        super().__init__(wire, {**settings, "root": root})

    @functools.cached_property
    def platform(self) -> SlurmPlatform:
        return SlurmPlatform(self.root, grace=self.grace)

    def create(self, request: dict[str, Any]) -> BoxRecord:
        """As `agent.Host.create`; checks first that this is a login node of a cluster."""
        must_have_slurm()
        keep_name(self.root, self.platform.cluster)
        return super().create(request)

    def do_lock_held(self, path: str) -> bool:
        """The runner's lock is held while a worker of the box may run, or will by itself (`standing`), and when that
        can't be known."""
        if path != box_layout.RUNNER_LOCK:
            return super().do_lock_held(path)
        box, now = self.channel.native_id, time.monotonic()
        if self._seen is None or self._seen[1] != box or now - self._seen[0] > FRESH_SECONDS:
            try:
                home = Path(self.channel.absolute(box_layout.HOME))
                held = standing.may_run(standing.tasks_now(box, home), home)
            except (Unreachable, OSError):
                held = True
            self._seen = now, box, held
        return self._seen[2]

    def top_up(self, **asked: Any) -> str:
        """See `SlurmPlatform.top_up`."""
        self._seen = None
        return self.platform.top_up(**asked)

    def end_workers(self, native_id: str, account: str) -> None:
        """See `SlurmPlatform.end_workers`."""
        self._seen = None
        self.platform.end_workers(native_id, account)

    def workers(self, native_id: str, account: str) -> dict[str, Any]:
        """See `SlurmPlatform.workers`."""
        return self.platform.workers(native_id, account)

    def refusals(self, scheduler: Mapping[str, Any]) -> list[str]:
        """See `SlurmPlatform.refusals`."""
        return self.platform.refusals(scheduler)


def main(settings: Mapping[str, Any]) -> None:
    """Serves on stdin and stdout until the other side has closed them."""
    agent.main(settings, LoginNode)
