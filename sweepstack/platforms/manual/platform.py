"""Machines that only a person can reach: a notebook in a browser, a computer behind a gateway.

Nothing is rented, and nothing is asked over a network. A box is a folder on this machine, from which a bundle is
packed; a person runs that bundle, and brings a folder back (`boxes.<name>.returns`). Inputs and state name the adapter
with that folder, `manual:~/Drive/sweeps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweepstack.core.box_end import Moves
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import ConfigError, RequestRefused, Unreachable
from sweepstack.onbox.host.box_folders import answering, default_root
from sweepstack.onbox.host.capabilities import IsHost
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.manual.channel import CLOSED, HandChannel
from sweepstack.platforms.manual.returns import folder_of, take_in

CLOSED_BOXES = "closed"
"""Folder below the platform's root: one file for each box whose end we began, after the gate had allowed it."""
NO_ADDRESS = "no machine of it has an address: only a person can see whether its session still runs"


def connect() -> HandPlatform:
    """The platform without a folder: it lists nothing, and makes no box."""
    return HandPlatform("")


def connect_to(address: str, moves: Moves | None = None) -> HandPlatform:
    """The platform whose boxes come back to the folder `address`, which does not move. Looks at nothing yet. Raises
    ConfigError."""
    return HandPlatform(spelled(address))


def spelled(address: str, known: str = "") -> str:
    """See `sweepstack.platforms.registry.spelled`. `~/` stays as it is written: it fits more than one machine."""
    if not address.startswith(("/", "~/")):
        raise ConfigError(f"{address!r} is no folder that results come back to: write /folder or ~/folder")
    return address


def prove_same(address: str, former: str, native_id: str, account: str, host_keys: Sequence[str] | None) -> None:
    """See `sweepstack.platforms.registry.prove_same`: the box itself lies here, whatever folder it comes back to."""
    record = connect_to(address).get(native_id, account)
    if record.phase in (Phase.GONE, Phase.UNKNOWN):
        raise RequestRefused(f"{native_id} can't be found on this machine, so its returns stay {former}: {record.note}")


class HandPlatform(LocalPlatform, IsHost):
    """See `sweepstack.onbox.host.platform.Platform`."""

    def __init__(self, returns: str) -> None:
        super().__init__(default_root().parent / "manual", prefix="manual", own=(box_layout.DURABLE,), remote=True)
        self.returns = returns
        self.name = f"manual:{returns}" if returns else "manual"

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        if not self.returns:
            raise ConfigError("a box that is run by hand names the folder that it comes back to: boxes.<name>.returns")
        folder = Path(self.returns).expanduser()
        if folder.parent.is_dir() and not folder.exists():
            folder.mkdir()
        folder_of(self.returns)
        return super().create(request, wait=wait)

    def get(self, native_id: str, account: str) -> BoxRecord:
        record = super().get(native_id, account)
        if record.phase is not Phase.RUNNING or record.note or not self.returns:
            return record
        try:
            note = take_in(self.returns, self._box(native_id), native_id).note
        except Unreachable as error:
            note = str(error)
        return replace(record, note=note)

    def destroy(self, native_id: str, account: str) -> None:
        """Removes the box's folder here, and keeps on record that we ended it. A folder that is not there any more
        leaves no such record: a person took it away, and its session may still run."""
        self._store.require(account)
        box = self._box(native_id)
        with answering(box):
            if box.is_dir() and not box.is_symlink():
                closed = self._closed(native_id)
                closed.parent.mkdir(exist_ok=True)
                write_json_atomically(closed, {"schema": 1, "native_id": native_id})
        super().destroy(native_id, account)

    def channel(self, native_id: str, account: str) -> HandChannel:
        box, mounts = self.where(native_id, account)
        if not self.returns:
            raise Unreachable(f"{native_id} names no folder that it comes back to")
        return HandChannel(native_id, box, mounts, self.returns, take_in(self.returns, box, native_id))

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        return super().list_tagged(prefix) if self.returns else []

    def power_off(self, native_id: str, account: str, command: str) -> None:
        raise RequestRefused(f"{native_id} {CLOSED}")

    def who_answers(self) -> list[str]:
        raise Unreachable(NO_ADDRESS)

    def pinned(self) -> list[str]:
        return []

    def _closed(self, native_id: str) -> Path:
        return self._store.root / CLOSED_BOXES / f"{native_id}.json"

    def _without_folder(self, native_id: str, account: str, box: Path) -> BoxRecord:
        record = super()._without_folder(native_id, account, box)
        if record.phase is not Phase.GONE or self._closed(native_id).exists():
            return record
        note = (
            f"its folder {box} is gone, and not by sweepstack, so its session may still run. See that it has ended; "
            'then sweepctl approve --abandon BOX --reason "…", and sweepctl confirm-gone BOX --saw "…"'
        )
        return replace(record, phase=Phase.UNKNOWN, note=note)
