"""What answers on a host of the user's: the platform of this machine, run over there, one verb a call.

A host that is reached by SSH is a machine like this one. So its boxes are the folder trees that `local` makes, with the
same locks, records and proofs, below a folder of its own; here is the door to them. Sent over the connection with all
that it imports (`platforms.ssh.api`): Python 3.8 and the standard library.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sweepstack.onbox.agent.agent import Agent, Cut, Wire, greet, hello
from sweepstack.onbox.common import box_layout, processes
from sweepstack.onbox.common.errors import PlatformError, RequestRefused, StillCreating, SweepstackError
from sweepstack.onbox.host.box_folders import default_root
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait

PREFIX = "host"
"""Of the ids of its boxes."""
LOCK_SECONDS = 60.0
VERBS = (
    *("account", "answer_for", "find_by_tag", "get", "destroy", "stop", "turn_on", "list_tagged", "where"),
    *("ensure_volume", "list_volumes", "get_volume", "delete_volume"),
)
"""Of the local platform, with its own arguments; and `OWN`, which are ours: `create` looks at the host first."""
OWN = ("create", "power_off", "where_volume")
OFF_SECONDS = 2.0
"""From the answer that the command was taken to the command: it may take the connection along."""
OFF_LOG = "power-off.log"


class Host(Agent):
    """Answers one request after the other, as the agent on a box does. What a verb raises is told by class and text."""

    def __init__(self, wire: Wire, settings: Mapping[str, Any]) -> None:
        self.wire = wire
        self.root = Path(settings["root"]) if settings["root"] else default_root()
        self.grace = settings["grace"]
        # Where nothing outlives a box its queue seals all the same. The folder is made with it: no cut comes between.
        self.platform = LocalPlatform(
            self.root, grace=self.grace, prefix=PREFIX, own=(box_layout.DURABLE,), remote=True
        )

    def turn_to(self, box: Mapping[str, Any]) -> None:
        """Also for a box that is named by its account only, by whoever does not know yet where it lies."""
        if "account" in box:
            root, mounts = self.platform.where(box["native_id"], box["account"])
            named = {mount: str(content) for mount, content in mounts.items()}
            box = {"native_id": box["native_id"], "root": str(root), "mounts": named}
        super().turn_to(box)

    def do_verb(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """One verb of the platform: {"is": its answer}, or {"raised": class, "text": …}."""
        try:
            if name not in (*VERBS, *OWN):
                raise PlatformError(f"{name!r} is nothing that a host is asked for")
            verb = getattr(self if name in OWN else self.platform, name)
            said = verb(**args)
            return {"is": _plain(said), **(self._place(said) if name == "get" else {})}
        except StillCreating as error:
            known = {"identifier": error.identifier, "outputs": error.outputs, "reasons": error.reasons}
            return {"raised": "StillCreating", "text": str(error), "known": known}
        except SweepstackError as error:
            return {"raised": type(error).__name__, "text": str(error)}

    def _place(self, record: BoxRecord) -> dict[str, Any]:
        """Where a box that is there lies: whoever looked at it is about to read it."""
        try:
            root, mounts = self.platform.where(record.native_id, record.account)
        except SweepstackError:
            return {}
        return {"where": _plain([record.native_id, record.account, root, mounts])}

    def create(self, request: dict[str, Any]) -> BoxRecord:
        """Looks at the host before anything is made, unless the box is there already. Does not wait until it is
        ready: whoever asks does, and can be cut."""
        from sweepstack.onbox.host import mounts as places
        from sweepstack.onbox.host.preflight import preflight

        asked = BoxRequest(**request)
        shown = None
        if self.platform.find_by_tag(asked.tag) is None:
            preflight(self.root, asked)
            shown = places.claim(self.root, asked.name, asked.places)
        return self.platform.make(asked, wait=Wait(LOCK_SECONDS), shown=shown)

    def power_off(self, native_id: str, account: str, command: str) -> None:
        """Ends what runs of the box, and lets `command` run a moment after this was answered.

        Refuses while another box of this host is at work: the command would end its cells, too."""
        self.platform.get(native_id, account)  # raises for another account; its folder may be gone, and the host bills
        others = [
            record.native_id
            for record in self.platform.list_tagged("")
            if record.native_id != native_id and processes.of_box(record.native_id)
        ]
        if others:
            raise RequestRefused(
                f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} at work on the same host, and {command!r} "
                "would end that, too: nothing was issued"
            )
        program = shlex.split(command)[0]
        if shutil.which(program) is None:
            raise RequestRefused(f"there is no {program} on this host: nothing was issued")
        processes.end_box(native_id, grace=self.grace)
        with open(self.root / OFF_LOG, "ab") as log:
            subprocess.Popen(
                ["/bin/sh", "-c", f"sleep {OFF_SECONDS:g}; exec {command}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def where_volume(self, native_id: str) -> Path:
        """The folder of a volume's content, or of a place that boxes here showed."""
        from sweepstack.onbox.host import mounts as places

        if native_id.startswith(places.PREFIX):
            return places.where(self.root, native_id)
        return self.platform.where_volume(native_id)


def _plain(answer: Any) -> Any:
    """What a verb returns, as JSON."""
    if isinstance(answer, (list, tuple)):
        return [_plain(one) for one in answer]
    if isinstance(answer, dict):
        return {key: _plain(value) for key, value in answer.items()}
    if dataclasses.is_dataclass(answer):
        return _plain({field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)})
    if isinstance(answer, datetime):
        return answer.isoformat()
    return str(answer) if isinstance(answer, (Path, Phase)) else answer


def main(settings: Mapping[str, Any]) -> None:
    """Serves on stdin and stdout until the other side has closed them, as `sweepstack.onbox.agent.agent.main` does."""
    sink = greet(settings)
    wire = Wire(0, sink)
    with contextlib.suppress(Cut, BrokenPipeError, ConnectionResetError):
        hello(wire)
        Host(wire, settings).serve()
    os._exit(0)
