"""The local platform: a box is a folder on this machine, with real processes.

    <root>/boxes/local-<id>/box.json      facts, written once; renamed to ending.json when a destroy begins
                            power.json    whether it is stopped (`power`)
                            tag           the tag again, in case box.json is damaged
                            scratch/ data/ mnt/<name> -> a volume's content
    <root>/volumes/volume-<registry>-<id>/volume.json content/

A box appears by one rename and disappears by one: a kill -9 at any moment leaves none, or one that its tag finds.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout, processes
from sweepstack.onbox.common.canonical import fsync_directory, write_atomically, write_json_atomically
from sweepstack.onbox.common.errors import (
    FolderLost,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
    Unreachable,
)
from sweepstack.onbox.common.mount_points import clear_folder
from sweepstack.onbox.host import peers, removal
from sweepstack.onbox.host.box_facts import ENDING, FACTS, SHOWN, TAG_FILE, facts_in, moment, now, shown_by, spare_tag
from sweepstack.onbox.host.box_folders import (
    TAG,
    LocalStore,
    Registry,
    answering,
    named,
    place,
    random_id,
    unsafe,
)
from sweepstack.onbox.host.capabilities import CanStop, ReadsVolumes
from sweepstack.onbox.host.drills import drills
from sweepstack.onbox.host.platform import RENTED_ON, BoxRecord, BoxRequest, Phase, Wait
from sweepstack.onbox.host.power import Switch, being_made, closed, phase_of
from sweepstack.onbox.host.preflight import memory_lack
from sweepstack.onbox.host.volumes import BOX_ID, VOLUME_ID, LocalVolumes

_MOUNT = re.compile(r"mnt/[A-Za-z0-9][A-Za-z0-9._-]*")
_LOCK_SECONDS = 60.0


class LocalPlatform(LocalVolumes, CanStop, ReadsVolumes):
    """See `onbox.host.platform.Platform`. `grace`: seconds from SIGTERM to SIGKILL at a destroy or stop. `prefix`: the
    beginning of new boxes' ids."""

    name = "local"
    sees_all = True

    def __init__(
        self,
        root: Path,
        *,
        grace: float = 5.0,
        prefix: str = "local",
        own: tuple[str, ...] = (),
        remote: bool = False,
        addressed: bool = False,
        machine: str = "",
    ) -> None:
        """`own`: folders that a box has itself if no volume or place is mounted there; they end with the box. `remote`,
        `addressed`, `machine`: as in `LocalStore`."""
        super().__init__(LocalStore(root, remote=remote, addressed=addressed, machine=machine))
        self._grace, self._prefix, self._own = grace, prefix, own

    def account(self) -> str:
        registry = self._store.registry()
        if registry is None:
            with self._store.locked(Wait(_LOCK_SECONDS)), answering(self._store.root):
                registry = self._store.found()
        return registry.account

    def answer_for(self, account: str) -> str:
        """Records that this machine was renamed, as a person says: it answers for `account`, too. Returns its account
        now. Idempotent. Raises WrongAccount when `account` is not that of this folder."""
        return self._store.renamed(account).account

    def count_as_lost(self, account: str) -> str:
        """Records that what `account` had in this folder is lost, as a person says: what is not here then counts as
        gone. Returns the account now. Idempotent. Raises PlatformError when it is here."""
        try:
            self._store.require(account)
        except FolderLost:
            new = not self._store.registry_file.exists()
            return self._store.answer_for(account, boxes=new, volumes=new).account
        raise PlatformError(f"{self._store.root} is the folder of {account}: nothing of it counts as lost")

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        if account:
            self._store.require(account)
        registry = self._store.registry()
        if registry is None:
            return None
        found = [record for record in self._all(registry) if record.tag in (tag, "")]
        unreadable = [record.location for record in found if not record.tag]
        if unreadable:
            raise Unreachable(
                f"whether there is a box {tag} is not known: {', '.join(unreadable)} can't be read. "
                f"Destroy that box, or take the folder away if it is none of yours"
            )
        if len(found) > 1:
            raise Unreachable(f"several boxes carry the tag {tag}: {', '.join(record.location for record in found)}")
        return found[0] if found else None

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        if (lacks := list(memory_lack(request.constraints))) and self.find_by_tag(request.tag) is None:
            raise RequestRefused(f"this machine won't do for {request.name}; nothing was made: {'; '.join(lacks)}")
        request.asked(True)
        record = self.make(request, wait=wait)
        if record.phase.at_rest:
            return record
        return self._wait_until_ready(request.name, record, wait)

    def make(self, request: BoxRequest, *, wait: Wait, shown: Mapping[str, tuple[str, str]] | None = None) -> BoxRecord:
        """`create` without waiting until the box is ready; `wait` is for the lock. Raises what `create` raises.

        `shown`: path on the box → (folder, id) of a place that outlives it."""
        boot_seconds, drill = drills()
        if not TAG.fullmatch(request.tag):
            raise unsafe(f"the tag {request.tag!r}")
        with self._store.locked(wait):
            with answering(self._store.root):
                account = self._store.found().account
            record = self.find_by_tag(request.tag)
            made = record is None
            if record is None:
                if wait.cancelled.is_set():
                    raise PlatformError(f"cancelled before {request.name} was made: nothing exists, nothing bills")
                record = self._build(request, account, boot_seconds, shown or {})
            else:
                self._must_fit(record, request, shown)
            if request.rented:
                with answering(self._store.root):
                    removal.record_rented(self._box(record.native_id) / FACTS, self._store.root)
        wait.progress(f"{request.name}: {'made' if made else 'adopted'} {record.native_id} at {record.location}")
        if made and drill == "lose-answer":
            raise OutcomeUnknown(f"drill: the answer to the request for {request.tag} was lost")
        if made and drill == "fail-after-create":
            raise StillCreating(record.native_id, record.outputs(), [f"drill: {request.name} failed after it was made"])
        return record

    def get(self, native_id: str, account: str) -> BoxRecord:
        self._store.require(account)
        return self._look(native_id, account)

    def destroy(self, native_id: str, account: str) -> None:
        self._store.require(account)
        box = self._box(native_id)
        with self._store.locked(Wait(_LOCK_SECONDS)), answering(box):
            if os.path.lexists(box):
                self._store.found()  # an old registry is marked while a box still proves which folder it is
                removal.mark_ending(box, facts=FACTS, ending=ENDING)
        self._end(native_id, self._grace)
        if not os.path.lexists(box):
            return
        peers.free(box, native_id)
        removal.empty(box, keep=(FACTS, ENDING, TAG_FILE, box_layout.JOURNAL))
        self._end(native_id, 0)  # processes that were being started during the first look
        with self._store.locked(Wait(_LOCK_SECONDS)), answering(box):
            with contextlib.suppress(FileNotFoundError):  # another destroy was first
                removal.record_rented(box / ENDING, self._store.root)
                os.rename(box, self._store.trash / f"{native_id}-{random_id()}")
            fsync_directory(self._store.boxes)
            clear_folder(self._store.trash)

    def stop(self, native_id: str, account: str) -> None:
        self._store.require(account)
        self._switch(native_id).stop()

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        record = self.turn_on(native_id, account)
        wait.progress(f"{native_id} is started again")
        return self._wait_until_ready(native_id, record, wait)

    def turn_on(self, native_id: str, account: str) -> BoxRecord:
        """`start` without waiting until the box is ready."""
        self._store.require(account)
        boot_seconds, _ = drills()
        self._switch(native_id).start(now() + timedelta(seconds=boot_seconds))
        return self._look(native_id, account)

    def _switch(self, native_id: str) -> Switch:
        return Switch(
            self._store,
            self._box(native_id),
            native_id,
            ENDING,
            self._grace,
            lambda grace: self._end(native_id, grace),
            lambda: self._at_work(native_id),
        )

    def _end(self, native_id: str, grace: float) -> None:
        """Ends all that runs of the box. Raises NotYetGone when its end is not proved."""
        processes.end_box(native_id, grace=grace)

    def _at_work(self, native_id: str) -> list[str]:
        """What runs of the box, in words. Raises Unreachable when that can't be known."""
        return [str(process.pid) for process in processes.of_box(native_id)]

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        registry = self._store.registry()
        if registry is None:
            return []
        return [record for record in self._all(registry) if not record.tag or record.tag.startswith(prefix)]

    def where(self, native_id: str, account: str) -> tuple[Path, dict[str, Path]]:
        """A box's folder and its mounts: box-relative path → folder of the volume's content. Raises Unreachable when
        the box's folder is not there, or a volume's own disk is not mounted; WrongAccount."""
        self._store.require(account)
        box = self._box(native_id)
        with answering(box):
            if not box.is_dir():
                raise Unreachable(f"{native_id} can't be reached: its folder {box} is not there")
            mounts = dict(self._mounts(box))
            for content in mounts.values():
                if VOLUME_ID.fullmatch(content.parent.name):  # a place is no volume of ours
                    self._require_disk(content.parent)
            return box, mounts

    def channel(self, native_id: str, account: str) -> LocalChannel:
        box, mounts = self.where(native_id, account)
        return LocalChannel(native_id, box, mounts, closed=lambda: closed(box, ENDING))

    def _box(self, native_id: str) -> Path:
        if not BOX_ID.fullmatch(native_id):
            raise unsafe(f"the box id {native_id!r}")
        return self._store.boxes / native_id

    def _all(self, registry: Registry) -> list[BoxRecord]:
        self._store.require_boxes(registry)
        with answering(self._store.boxes):
            ids = {folder.name for folder in named(self._store.boxes, BOX_ID) if not peers.is_peers(folder)}
            records = [
                self._look(name, registry.account) for name in sorted(ids | removal.rented_ids(self._store.root))
            ]
        return [record for record in records if record.phase is not Phase.GONE]

    def _look(self, native_id: str, account: str) -> BoxRecord:
        """The record in the box's folder; without a folder, what its processes show."""
        box = self._box(native_id)
        with answering(box):
            if not os.path.lexists(box):
                return self._without_folder(native_id, account, box)
            try:
                if box.is_symlink():
                    raise ValueError("it is a link, and a box is a folder")
                # In this order: a destroy that begins between the two reads renames the first file to the second.
                facts, phase = facts_in(box / FACTS), Phase.RUNNING
                if facts is None:
                    facts, phase = facts_in(box / ENDING), Phase.ENDING
                if facts is None:
                    if not os.path.lexists(box):
                        return self._without_folder(native_id, account, box)
                    raise ValueError(f"{FACTS} is not there")
                if phase is Phase.RUNNING:
                    starts = being_made(moment(facts["created_at"]), moment(facts["ready_at"]), now())
                    phase = Phase.CREATING if starts else phase_of(box, now())
                price = facts["price_per_hour"]
                return BoxRecord(
                    native_id,
                    str(facts["tag"]),
                    account,
                    phase,
                    None if price is None else float(price),
                    moment(facts["created_at"]),
                    place(box),
                    mounts={mount: str(shown[1]) for mount, shown in facts.get(SHOWN, {}).items()},
                )
            except (ValueError, KeyError, TypeError) as error:
                ending = os.path.lexists(box / ENDING)
                note = f"its folder {box} is there, and what it says of itself can't be read: {error}"
                phase = Phase.ENDING if ending else Phase.UNKNOWN
                return BoxRecord(native_id, spare_tag(box), account, phase, None, None, place(box), note)

    def _without_folder(self, native_id: str, account: str, box: Path) -> BoxRecord:
        alive = self._at_work(native_id)
        rented = removal.rented_record(native_id, self._store.root)
        if rented is not None and not alive:
            return self._rented_on(native_id, account, box, rented)
        note = ""
        if alive:
            pids = ", ".join(alive)
            note = f"its folder {box} is gone, and {len(alive)} of its processes still run ({pids}): destroy ends them"
        phase = Phase.UNKNOWN if alive else Phase.GONE
        return BoxRecord(native_id, "", account, phase, None, None, place(box), note)

    def _rented_on(self, native_id: str, account: str, box: Path, facts: dict[str, Any]) -> BoxRecord:
        """The record of a box whose folder is gone from a rented machine, which still bills."""
        try:
            price, tag, at = facts["price_per_hour"], str(facts["tag"]), moment(facts["created_at"])
        except (KeyError, TypeError, ValueError):
            price, tag, at = None, "", None
        return BoxRecord(native_id, tag, account, Phase.ENDING, price, at, place(box), RENTED_ON)

    def _build(
        self, request: BoxRequest, account: str, boot_seconds: float, shown: Mapping[str, tuple[str, str]]
    ) -> BoxRecord:
        native_id, begun = f"{self._prefix}-{random_id()}", now()
        staged = self._store.staging / native_id
        facts = {
            "schema": 1,
            "native_id": native_id,
            "tag": request.tag,
            "name": request.name,
            "price_per_hour": request.price_per_hour,
            "created_at": begun.isoformat(),
            "ready_at": (begun + timedelta(seconds=boot_seconds)).isoformat(),
            "mounts": dict(request.mounts),
            "resources": dict(request.resources),
            **({SHOWN: {mount: list(place) for mount, place in shown.items()}} if shown else {}),
        }
        if request.rented:
            facts["rented"] = True
        for mount in (*request.mounts, *shown):
            if not _MOUNT.fullmatch(mount):
                raise unsafe(f"the mount {mount!r} (mnt/<name> is what a box has)")
        for volume in request.mounts.values():
            record = self.get_volume(volume)
            if why := "it is not there any more" if record is None else record.lost:
                raise PlatformError(f"{request.name} was not made: its volume {volume} can't be mounted: {why}")
        with answering(staged):
            for tier in ("scratch", "data", "mnt"):
                (staged / tier).mkdir(parents=True)
            for mount, volume in request.mounts.items():
                os.symlink(f"../../../volumes/{volume}/content", staged / mount)
            for mount, (folder, _) in shown.items():
                os.symlink(folder, staged / mount)
            for name in {*self._own} - {*request.mounts, *shown}:
                (staged / name).mkdir()
            write_atomically(staged / TAG_FILE, request.tag.encode())
            write_json_atomically(staged / FACTS, facts)
            self._store.admit(staged, self._box(native_id))
        return self._look(native_id, account)

    def _must_fit(self, record: BoxRecord, request: BoxRequest, shown: Mapping[str, tuple[str, str]] | None) -> None:
        """Returns when the box has the mounts that the request asks for, so that it may be adopted; else raises."""
        if record.phase is Phase.ENDING:
            raise NotYetGone(
                f"{record.native_id} carries the tag {request.tag} and is being destroyed: finish that first"
            )
        if record.phase is not Phase.UNKNOWN:
            box = self._box(record.native_id)
            places = shown_by(box)
            mounts = {m: content.parent.name for m, content in self._mounts(box) if m not in places}
            if mounts != dict(request.mounts) or (shown is not None and places != dict(shown)):
                raise PlatformError(
                    f"{record.location} was made for {request.tag} with the mounts {mounts}, and now they are to be "
                    f"{dict(request.mounts)}: it is not adopted, and no second box is made. Ask for the same mounts"
                )

    def _wait_until_ready(self, name: str, record: BoxRecord, wait: Wait) -> BoxRecord:
        seen = record

        def settled() -> bool:
            nonlocal seen
            seen = self._look(record.native_id, record.account)
            return seen.phase is not Phase.CREATING

        try:
            why = wait.until(settled, f"{name} ({record.native_id}) to be ready")
        except PlatformError as error:  # the error carries the id, so that it is not lost
            raise StillCreating(record.native_id, record.outputs(), [str(error)]) from error
        if seen.phase is Phase.GONE:
            raise PlatformError(
                f"{record.native_id} was removed, not by this command, while it was being made: nothing bills"
            )
        if why or seen.phase is not Phase.RUNNING:
            reason = why or f"{name} is {seen.phase}, not running: {seen.note or 'another command ends or stops it'}"
            raise StillCreating(record.native_id, seen.outputs(), [reason])
        return seen

    def _mounts(self, box: Path) -> Iterator[tuple[str, Path]]:
        """The links below `mnt/` to a volume of ours, or to a place that the box was made with: (path, folder)."""
        shown = shown_by(box)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for link in sorted((box / "mnt").iterdir()):
                folder, _ = shown.get(f"mnt/{link.name}", ("", ""))
                if folder and link.is_symlink() and os.readlink(link) == folder:
                    yield f"mnt/{link.name}", Path(folder)
                elif link.is_symlink():
                    content = Path(os.path.normpath(link.parent / os.readlink(link)))
                    volume = content.parent.name
                    if VOLUME_ID.fullmatch(volume) and content == Path(os.path.normpath(self._content(volume))):
                        yield f"mnt/{link.name}", content
