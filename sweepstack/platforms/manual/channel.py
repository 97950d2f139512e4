"""The way to a box that only a person can reach: what was packed for it, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.platforms.manual import bundle
from sweepstack.platforms.manual.returns import Returned, folder_of

CLOSED = "is on a machine that only a person can reach: nothing can be started there from here"


class HandChannel(LocalChannel):
    """See `sweepstack.onbox.agent.channel.Channel` and `ByHand`. Its durable tier is the one that came back."""

    def __init__(self, native_id: str, box: Path, mounts: Mapping[str, Path], returns: str, returned: Returned) -> None:
        durable = returned.folder / box_layout.DURABLE if returned.folder is not None else None
        back = {box_layout.DURABLE: durable} if durable is not None and durable.is_dir() else {}
        super().__init__(native_id, box, {**mounts, **back}, closed=lambda: CLOSED)
        self.python = "python3"
        self.returned = returned
        self._box, self._returns = box, returns

    @property
    def note(self) -> str:
        if self.returned.folder is not None or self.returned.note:
            return self.returned.note
        bundle_here = next(folder_of(self._returns).glob(f"*.{self.native_id}.zip"), None)
        return f"nothing has come back yet; its bundle is {bundle_here}" if bundle_here is not None else ""

    def lock_held(self, path: str) -> bool:
        """For the runner's lock: whether a session said so within `returns.ALIVE_SECONDS`."""
        return self.returned.alive if path == box_layout.RUNNER_LOCK else super().lock_held(path)

    def pack(self, runner: str, facts: Mapping[str, Any]) -> str:
        folder = folder_of(self._returns)
        try:
            path, notebook = bundle.write(self._box, runner, facts, folder)
        except OSError as error:
            raise Unreachable(f"no bundle can be written into {folder}: {error}") from error
        step = str(facts.get("step") or "python3 {bundle}").replace("{bundle}", path.name)
        beside = f" (its cell: {notebook.name})" if notebook is not None else ""
        return f"to run it by hand: {path}{beside}. {step}"
