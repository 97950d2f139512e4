"""The agent on a user's own host: runs the local platform there, one call for each request.

A host that is reached over SSH is a machine like this one. So its boxes are folders, as the platform `local` makes
them, with the same locks, records and proofs; this module serves them. It is sent over the connection with all that it
imports (`platforms.ssh.api`): Python 3.8 and the standard library.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from sweepstack.onbox.agent.agent import Agent, Cut, Wire, greet, hello
from sweepstack.onbox.common import box_layout, processes
from sweepstack.onbox.common.errors import PlatformError, RequestRefused, StillCreating, SweepstackError
from sweepstack.onbox.host.box_folders import default_root
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait

PREFIX = "host"
"""The ids of a host's boxes begin with this."""
LOCK_SECONDS = 60.0
VERBS = (
    *("account", "answer_for", "count_as_lost", "find_by_tag", "list_tagged"),
    *("get", "destroy", "stop", "turn_on", "where"),
    *("ensure_volume", "list_volumes", "get_volume", "delete_volume"),
)
"""Requests that are methods of the local platform; those in `OWN` are methods of `Host`."""
OWN = ("create", "power_off", "forget_peer", "where_volume")
OFF_SECONDS = 2.0
"""The host runs the power-off command so long after the answer: the command may end the connection."""
OFF_LOG = "power-off.log"


class Host(Agent):
    """Answers one request after the other, as the agent on a box does. An error of a verb is sent as class and text."""

    own: ClassVar[tuple[str, ...]] = OWN
    """Requests that are methods of this class."""

    def __init__(self, wire: Wire, settings: Mapping[str, Any]) -> None:
        self.wire = wire
        self.root = Path(settings["root"]) if settings["root"] else default_root()
        self.grace = settings["grace"]

    @functools.cached_property
    def platform(self) -> LocalPlatform:
        """The platform of this host. A box without a durable tier seals its cells, too: into a folder of its own, which
        is made with the box."""
        return LocalPlatform(self.root, grace=self.grace, prefix=PREFIX, own=(box_layout.DURABLE,), addressed=True)

    def serve_box(self, box: Mapping[str, Any]) -> None:
        """Serves this box from now on. A box named with its account only is looked up: the caller does not know its
        folder yet."""
        if "account" in box:
            root, mounts = self.platform.where(box["native_id"], box["account"])
            named = {mount: str(content) for mount, content in mounts.items()}
            box = {"native_id": box["native_id"], "root": str(root), "mounts": named}
        super().serve_box(box)

    def do_verb(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """One verb of the platform: {"is": its answer}, or {"raised": class, "text": …}."""
        try:
            if name not in (*VERBS, *self.own):
                raise PlatformError(f"{name!r} is no request that a host answers")
            verb = getattr(self if name in self.own else self.platform, name)
            said = verb(**args)
            return {"is": _plain(said), **(self._place(said) if name == "get" else {})}
        except StillCreating as error:
            known = {"identifier": error.identifier, "outputs": error.outputs, "reasons": error.reasons}
            return {"raised": "StillCreating", "text": str(error), "known": known}
        except SweepstackError as error:
            return {"raised": type(error).__name__, "text": str(error)}

    def _place(self, record: BoxRecord) -> dict[str, Any]:
        """The box's folder and mounts, if it is there: sent along, since the caller will read from the box next."""
        try:
            root, mounts = self.platform.where(record.native_id, record.account)
        except SweepstackError:
            return {}
        return {"where": _plain([record.native_id, record.account, root, mounts])}

    def create(self, request: dict[str, Any]) -> BoxRecord:
        """Makes the box, unless it is there already; checks the host first. Does not wait until the box is ready: the
        caller does that, where the user can cancel it. Raises what `LocalPlatform.make` raises; RequestRefused."""
        from sweepstack.onbox.host.preflight import claim, preflight

        asked = BoxRequest(**request)
        shown = None
        if self.platform.find_by_tag(asked.tag) is None:
            preflight(self.root, asked)
            shown = claim(self.root, asked.name, asked.places)
        return self.platform.make(asked, wait=Wait(LOCK_SECONDS), shown=shown)

    def power_off(self, native_id: str, account: str, command: str) -> None:
        """Ends the box's processes, and starts `command`, which runs `OFF_SECONDS` after the answer.

        Raises RequestRefused while another box of this host has processes: the command would end them, too."""
        # Raises for another account. The box's folder may be gone, while the host still bills.
        self.platform.get(native_id, account)
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

    def forget_peer(self, native_id: str, account: str, peer: str, words: str) -> None:
        """See `HasPeers.forget_peer`."""
        from sweepstack.onbox.host import peers

        self.platform.get(native_id, account)  # raises for another account
        peers.forget(self.root, native_id, peer, words)

    def where_volume(self, native_id: str) -> Path:
        """The folder of a volume's content, or of a place (see `preflight.claim`)."""
        from sweepstack.onbox.host.preflight import PREFIX, where

        if native_id.startswith(PREFIX):
            return where(self.root, native_id)
        return self.platform.where_volume(native_id)


def _plain(answer: Any) -> Any:
    """A verb's result as JSON values."""
    if hasattr(answer, "_asdict"):
        return _plain(answer._asdict())
    if isinstance(answer, (list, tuple)):
        return [_plain(one) for one in answer]
    if isinstance(answer, dict):
        return {key: _plain(value) for key, value in answer.items()}
    if dataclasses.is_dataclass(answer):
        return _plain({field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)})
    if isinstance(answer, datetime):
        return answer.isoformat()
    return str(answer) if isinstance(answer, (Path, Phase)) else answer


def main(settings: Mapping[str, Any], kind: type[Host] = Host) -> None:
    """Serves on stdin and stdout until the other side has closed them, as `sweepstack.onbox.agent.agent.main` does."""
    sink = greet(settings)
    wire = Wire(0, sink)
    with contextlib.suppress(Cut, BrokenPipeError, ConnectionResetError):
        hello(wire)
        kind(wire, settings).serve()
    os._exit(0)
