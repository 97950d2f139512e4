"""Volumes of the local platform: folders beside the boxes, which outlive the boxes.

<root>/volumes/<id>/volume.json  facts, written once
                    content/     what is on it
                    own-disk     there once `content` was seen on a file system of its own: while it is on none,
                                 that disk is not mounted, and what is on the volume is not known
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from sweepstack.onbox.agent.channel import host_identity
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common.canonical import fsync_directory, write_json_atomically
from sweepstack.onbox.common.errors import Unreachable, WrongAccount
from sweepstack.onbox.common.mount_points import refuse_mounted, sweep
from sweepstack.onbox.host.box_folders import (
    CLAIM,
    TAG,
    LocalStore,
    answering,
    named,
    place,
    random_id,
    read_facts,
    unsafe,
)
from sweepstack.onbox.host.platform import VolumeRecord, Wait

BOX_ID = re.compile(r"(?:local|host)-[a-z2-7]{10}")
VOLUME_ID = re.compile(r"volume-([a-z2-7]{10})-[a-z2-7]{10}")
_FACTS = "volume.json"
_OWN_DISK = "own-disk"
_LOCK_SECONDS = 60.0


class LocalVolumes:
    """The part of `LocalPlatform` for volumes. See `sweepstack.onbox.host.capabilities.ReadsVolumes`."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def ensure_volume(self, tag: str, name: str, *, size_gb: int | None = None, region: str = "") -> VolumeRecord:
        """`size_gb` and `region` are ignored: a volume is as large as the disk, on this one machine."""
        if not TAG.fullmatch(tag):
            raise unsafe(f"the tag {tag!r}")
        with self._store.locked(Wait(_LOCK_SECONDS)), answering(self._store.root):
            registry = self._store.found()
            for folder in named(self._store.volumes, VOLUME_ID):
                record = self._volume(folder)
                if record.tag == tag:
                    self._require_content(record)
                    note_own_disk(folder)
                    return record
            self._store.require_volumes(registry)
            native_id = f"volume-{registry.id}-{random_id()}"
            staged = self._store.staging / native_id
            (staged / "content").mkdir(parents=True)
            facts = {
                "schema": 1,
                "native_id": native_id,
                "tag": tag,
                "name": name,
                "created_at": datetime.now(timezone.utc).isoformat(),
            }
            write_json_atomically(staged / _FACTS, facts)
            self._store.admit(staged, self._store.volumes / native_id)
            return VolumeRecord(
                native_id,
                tag,
                name,
                place(self._content(native_id)),
                created=True,
                account=registry.account,
                price_per_month=0.0,
            )

    def quote_volume(self, size_gb: int, region: str) -> float | None:
        """None: there is no price for a disk of this machine."""
        return None

    def get_volume(self, native_id: str) -> VolumeRecord | None:
        match = VOLUME_ID.fullmatch(native_id)
        if not match:
            raise unsafe(f"the volume id {native_id!r}")
        registry = self._store.registry()
        owners = {account.rpartition("/")[2] for account in (registry.also_known_as if registry else ())}
        if registry is None or match[1] not in {registry.id, *owners}:
            at_hand = registry.account if registry else f"{host_identity()}, which has none at {self._store.root}"
            raise WrongAccount(
                f"{native_id} belongs to the registry {match[1]}, and the account at hand is {at_hand}. If it is this "
                f"machine's and the registry was lost: `{CLAIM} {host_identity()}/{match[1]}`"
            )
        with answering(self._store.volumes):
            folder = self._store.volumes / native_id
            if not os.path.lexists(folder):
                self._store.require_volumes(registry, f"{host_identity()}/{match[1]}")
                return None
            self._require_disk(folder)
            return replace(self._volume(folder), mounted_by=self._mounted_by(native_id))

    def _mounted_by(self, native_id: str) -> tuple[str, ...]:
        """The ids of the boxes that have a link to the volume."""
        content, found = Path(os.path.normpath(self._content(native_id))), []
        for box in named(self._store.boxes, BOX_ID):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                links = [link for link in (box / "mnt").iterdir() if link.is_symlink()]
                if any(Path(os.path.normpath(link.parent / os.readlink(link))) == content for link in links):
                    found.append(box.name)
        return tuple(found)

    def list_volumes(self, prefix: str) -> list[VolumeRecord]:
        registry = self._store.registry()
        if registry is None:
            return []
        if registry.volumes_marked:  # in a registry older than the mark an empty folder proves nothing, and is listed
            self._store.require_volumes(registry)
        with answering(self._store.volumes):
            records = [self._volume(folder) for folder in named(self._store.volumes, VOLUME_ID)]
        return [record for record in records if record.tag.startswith(prefix)]

    def delete_volume(self, native_id: str, account: str) -> None:
        self._store.require(account)
        if self.get_volume(native_id) is None:
            return
        volume = self._store.volumes / native_id
        with self._store.locked(Wait(_LOCK_SECONDS)), answering(volume):
            if not os.path.lexists(volume):  # another delete was first
                return
            own = os.path.lexists(volume / _OWN_DISK) and not (volume / "content").is_symlink()
            refuse_mounted(volume, "volume", then=f" && rm {volume / _OWN_DISK}" if own else "")
            self._store.found()  # an old registry is marked while a volume still proves which folder it is
            os.rename(volume, self._store.trash / f"{native_id}-{random_id()}")
            fsync_directory(self._store.volumes)
            sweep(self._store.trash)  # the next command removes what is left

    def where_volume(self, native_id: str) -> Path:
        """The folder of the volume's content. Raises Unreachable when it is not there (any more), WrongAccount."""
        record = self.get_volume(native_id)
        if record is None:
            raise Unreachable(f"the volume {native_id} is not there any more")
        self._require_content(record)
        return self._content(native_id)

    def _require_content(self, record: VolumeRecord) -> None:
        """Raises Unreachable when the volume's content is lost: it can neither be read nor mounted."""
        if record.lost:
            raise Unreachable(f"the volume {record.native_id}: {record.lost}")

    def volume_channel(self, native_id: str, mount: str = "") -> LocalChannel:
        content = self.where_volume(native_id)
        if mount:
            return LocalChannel(native_id, None, {mount: content}, runs=False)
        return LocalChannel(native_id, content, {}, runs=False)

    def _content(self, volume: str) -> Path:
        return self._store.volumes / volume / "content"

    def _volume(self, folder: Path) -> VolumeRecord:
        registry = self._store.registry()
        try:
            facts = read_facts(folder / _FACTS)
            record = VolumeRecord(
                folder.name,
                str(facts["tag"]),
                str(facts["name"]),
                place(folder / "content"),
                account=registry.account if registry else "",
                price_per_month=0.0,
                lost=self._away(folder) or self._lost(folder),
            )
        except (OSError, ValueError, KeyError) as error:
            raise Unreachable(f"the volume at {folder} can't be read ({error}): it is not known whose it is") from error
        return record

    def _require_disk(self, folder: Path) -> None:
        """Raises Unreachable when the volume's own disk is not mounted."""
        if why := self._away(folder):
            raise Unreachable(f"the volume {folder.name}: {why}")

    def _away(self, folder: Path) -> str:
        """Why the volume's content is not known, since its own disk is not mounted; "" when it is known."""
        if not os.path.lexists(folder / _OWN_DISK) or _on_own_disk(folder):
            return ""
        content, where = folder / "content", " on that host" if self._store.remote else ""
        return (
            f"{content} was the mount point of a disk, and is on none now: what is on it is not known. Mount it; if it "
            f"is lost, or lies in that folder now, say so with `rm {folder / _OWN_DISK}`{where}"
        )

    def _lost(self, folder: Path) -> str:
        """Why the volume's content is lost; "" when it is there. A lost volume is still listed, so that a person sees
        it and can delete it."""
        content = folder / "content"
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # any other error: not known, so it is raised
            if stat.S_ISDIR(content.stat().st_mode):
                return ""
        return f"its content folder {place(content)} is not there: what was on it is lost, or elsewhere"


def note_own_disk(volume: Path) -> None:
    """Records that the volume is on a disk of its own, if it is. Call it while holding the lock, before each use."""
    if not os.path.lexists(volume / _OWN_DISK) and _on_own_disk(volume):
        (volume / _OWN_DISK).touch()
        fsync_directory(volume)


def _on_own_disk(volume: Path) -> bool:
    """Whether the content is a folder on another file system than the volume's facts."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return _device(volume / "content") != _device(volume)
    return False


def _device(path: Path) -> int:
    return path.stat().st_dev
