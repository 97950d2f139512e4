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
from sweepstack.extensions.by_hand.bucket import Bucket, is_bucket
from sweepstack.extensions.by_hand.channel import CLOSED, BucketChannel, HandChannel
from sweepstack.extensions.by_hand.returns import Returned, folder_of, take_in
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import ConfigError, RequestRefused, Unreachable
from sweepstack.onbox.host.box_folders import answering, default_root
from sweepstack.onbox.host.capabilities import IsHost
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait

CLOSED_BOXES = "closed"
"""Folder below the platform's root: one file for each box whose end we began, after the gate had allowed it."""
MIRRORS = "returned"
"""Folder below the platform's root: a mirror of what is small in each bucket that boxes come back to."""
NO_ADDRESS = "no machine of it has an address: only a person can see whether its session still runs"


def connect() -> HandPlatform:
    """The platform without a folder: it lists nothing, and makes no box."""
    return HandPlatform("")


def connect_to(address: str, moves: Moves | None = None) -> HandPlatform:
    """The platform whose boxes come back to `address`, a folder of this computer or s3://bucket/prefix. Looks at
    nothing yet. `moves` has no meaning here. Raises ConfigError."""
    return HandPlatform(spelled(address))


def spelled(address: str, known: str = "") -> str:
    """See `sweepstack.platforms.registry.spelled`. `~/` stays as it is written: it fits more than one machine."""
    if is_bucket(address):
        return Bucket(address, Path()).address.uri
    if not address.startswith(("/", "~/")):
        raise ConfigError(
            f"{address!r} is no folder that results come back to: write /folder, ~/folder or s3://bucket/prefix"
        )
    return address


def prove_same(address: str, former: str, native_id: str, account: str, host_keys: Sequence[str] | None) -> None:
    """See `sweepstack.platforms.registry.prove_same`: the box itself lies here, whatever folder it comes back to."""
    record = connect_to(address).get(native_id, account)
    if record.phase in (Phase.GONE, Phase.UNKNOWN):
        raise RequestRefused(f"{native_id} can't be found on this machine, so its returns stay {former}: {record.note}")


class HandPlatform(LocalPlatform, IsHost):
    """See `sweepstack.onbox.host.platform.Platform`."""

    by_hand = True

    def __init__(self, returns: str) -> None:
        super().__init__(default_root().parent / "manual", prefix="manual", own=(box_layout.DURABLE,), remote=True)
        self.returns = returns
        self.name = f"manual:{returns}" if returns else "manual"
        self.bucket = Bucket(returns, self._store.root / MIRRORS) if is_bucket(returns) else None

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        if not self.returns:
            raise ConfigError("a box that is run by hand names the folder that it comes back to: boxes.<name>.returns")
        if self.bucket is not None:
            self.bucket.look()
        else:
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
            note = self._taken_in(self._box(native_id), native_id).note
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
        returned = self._taken_in(box, native_id)
        if self.bucket is not None:
            return BucketChannel(native_id, box, mounts, self.bucket, returned)
        return HandChannel(native_id, box, mounts, self.returns, returned)

    def _taken_in(self, box: Path, native_id: str) -> Returned:
        """See `returns.take_in`; of a bucket, by what is there now."""
        if self.bucket is None:
            return take_in(self.returns, box, native_id)
        self.bucket.look()
        mirror, uri = str(self.bucket.mirror), self.returns
        try:
            returned = take_in(mirror, box, native_id)
        except Unreachable as error:
            raise Unreachable(str(error).replace(mirror, uri)) from error
        return replace(returned, note=returned.note.replace(mirror, uri))

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
        """GONE only where we ended the box ourselves; a folder that was removed in another way proves nothing."""
        record = super()._without_folder(native_id, account, box)
        if record.phase is not Phase.GONE or self._closed(native_id).exists():
            return record
        note = (
            f"its folder {box} is gone, and not by sweepstack, so its session may still run. See that it has ended; "
            'then sweepctl give-up data/BOX --reason "…", and sweepctl confirm gone BOX --saw "…"'
        )
        return replace(record, phase=Phase.UNKNOWN, note=note)
