"""Volumes of the local platform: folders beside the boxes, which outlive the boxes.

<root>/volumes/<id>/volume.json  facts, written once
                    content/     what is on it
                    own-disk     there once `content` was seen on a disk of its own, with that disk's mount point (one
                                 below this folder by its path from here). While `content` does not lie on what is
                                 mounted there, or below it, what is on the volume is not known
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from shlex import quote

from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common.canonical import fsync_directory, write_json_atomically
from sweepstack.onbox.common.errors import Unreachable, WrongAccount
from sweepstack.onbox.common.mount_points import clear_folder, mount_point_of, refuse_mounted
from sweepstack.onbox.host.box_folders import (
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

BOX_ID = re.compile(r"(?!volume-)[a-z]+-[a-z2-7]{10}")
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
                    _note_own_disk(folder)
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
            at_hand = registry.account if registry else f"{self._store.host}, which has none at {self._store.root}"
            raise WrongAccount(
                f"{native_id} belongs to the registry {match[1]}, and the account at hand is {at_hand}. If it is this "
                f"machine's and the registry was lost: `{self._store.claim(f'{self._store.host}/{match[1]}')}`"
            )
        with answering(self._store.volumes):
            folder = self._store.volumes / native_id
            if not os.path.lexists(folder):
                self._store.require_volumes(registry, f"{self._store.host}/{match[1]}")
                return None
            self._require_disk(folder)
            _note_own_disk(folder)
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
            then = f" && rm {quote(str(volume / _OWN_DISK))}" if own else ""
            refuse_mounted(volume, "volume", then=then, where=self._store.where)
            self._store.found()  # an old registry is marked while a volume still proves which folder it is
            os.rename(volume, self._store.trash / f"{native_id}-{random_id()}")
            fsync_directory(self._store.volumes)
            clear_folder(self._store.trash)  # the next command removes what is left

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
            facts, away = read_facts(folder / _FACTS), self._away(folder)
            record = VolumeRecord(
                folder.name,
                str(facts["tag"]),
                str(facts["name"]),
                place(folder / "content"),
                account=registry.account if registry else "",
                price_per_month=0.0,
                lost=away or self._lost(folder),
                unknown=bool(away),
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
        noted = _noted(folder)
        if noted is None or _is_there(_own_disk(folder), noted, folder):
            return ""
        content = folder / "content"
        was = f"on the disk mounted at {noted}, and is not" if os.path.isabs(noted) else ""
        return (
            f"{content} was {was or 'the mount point of a disk, and is on none'} now: what is on it is not known. "
            f"Mount it; if it is lost, or lies in that folder now, say so with "
            f"`rm {quote(str(folder / _OWN_DISK))}`{self._store.where}"
        )

    def _lost(self, folder: Path) -> str:
        """Why the volume's content is lost; "" when it is there. A lost volume is still listed, so that a person sees
        it and can delete it."""
        content = folder / "content"
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # any other error: not known, so it is raised
            if stat.S_ISDIR(content.stat().st_mode):
                return ""
        return f"its content folder {place(content)} is not there: what was on it is lost, or elsewhere"


def _note_own_disk(volume: Path) -> None:
    """Records that the volume is on a disk of its own, if it is. Best effort: a look at a folder that can't be written
    to goes on. It makes no folder: another command may have ended the volume meanwhile."""
    found, noted = _own_disk(volume), _noted(volume)
    if found and found != noted and (noted is None or _is_there(found, noted, volume)):
        staged = volume / f".{_OWN_DISK}.{random_id()}"
        with contextlib.suppress(OSError):
            staged.write_bytes(os.fsencode(f"{found}\n"))
            os.replace(staged, volume / _OWN_DISK)
            fsync_directory(volume)


def _noted(volume: Path) -> str | None:
    """The mount point on record; None without a record. "": an older version wrote it, and it was not named."""
    try:
        return os.fsdecode((volume / _OWN_DISK).read_bytes()).rstrip("\n")
    except FileNotFoundError:
        return None


def _own_disk(volume: Path) -> str:
    """The mount point of the disk on which the content lies; "" when that is the disk of the volume's facts, or one
    below which that is mounted: then it is mounted as surely as the facts are read.

    The path tells disks apart: device numbers, and the ids of most file systems, change from one mount to the next.
    """
    content, real = volume / "content", Path(os.path.realpath(volume))
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.stat(os.path.join(content, ""))  # an automounter mounts it now
        point = mount_point_of(content)
        if point == real / "content":
            return "content"
        return "" if point in (real, *real.parents) else str(point)
    return ""


def _is_there(found: str, noted: str, volume: Path) -> bool:
    """Whether the disk on which the content was `found` is that on record, or mounted below it: then the folder that
    was noted was the mount point of a disk that came later."""
    point = volume / found
    return bool(found) and (not noted or volume / noted in (point, *point.parents))
