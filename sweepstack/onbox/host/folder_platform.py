"""The local platform: a box is a folder on this machine, with real processes.

    <root>/boxes/local-<id>/box.json      facts, written once; renamed to ending.json when a destroy begins
                            power.json    whether it is stopped: {schema, state, at, ready_at}; not there: it never was
                            power.lock    flock: held by a stop, or a start, from its first step to its last
                            tag           the tag again, in case box.json is damaged
                            scratch/ data/ mnt/<name> -> a volume's content
    <root>/volumes/volume-<registry>-<id>/volume.json content/

A box appears by one rename and disappears by one: a kill -9 at any moment leaves none, or one that its tag finds. A
stop first writes `stopping` (from then on nothing is started), then ends the processes, wipes the tiers that a stop
kills, and writes `stopped` last. So after a kill -9 at any moment the next stop or start finishes it.

Drills: failures of the local platform, for practice and tests, set by environment variables.

`SWEEPSTACK_DRILL_BOOT_SECONDS=<n>` makes a box take n seconds to get ready, new or started again;
`SWEEPSTACK_DRILL_CREATE=lose-answer` makes the box and loses the answer, `=fail-after-create` makes it and then fails.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout, processes
from sweepstack.onbox.common.canonical import fsync_directory, write_atomically, write_json_atomically
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import (
    FolderLost,
    NotYetGone,
    NotYetStopped,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
    Unreachable,
)
from sweepstack.onbox.common.locks import take
from sweepstack.onbox.common.mount_points import clear_folder
from sweepstack.onbox.host import box_folders, peers
from sweepstack.onbox.host.box_folders import (
    TAG,
    LocalStore,
    Registry,
    answering,
    named,
    place,
    random_id,
    read_facts,
    unsafe,
)
from sweepstack.onbox.host.capabilities import CanStop, ReadsVolumes
from sweepstack.onbox.host.platform import RENTED_ON, BoxRecord, BoxRequest, Phase, Wait
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
                    box_folders.record_rented(self._box(record.native_id) / FACTS, self._store.root)
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
                box_folders.mark_ending(box, facts=FACTS, ending=ENDING)
        self._end(native_id, self._grace)
        if not os.path.lexists(box):
            return
        peers.free(box, native_id)
        box_folders.empty(box, keep=(FACTS, ENDING, TAG_FILE, box_layout.JOURNAL))
        self._end(native_id, 0)  # processes that were being started during the first look
        with self._store.locked(Wait(_LOCK_SECONDS)), answering(box):
            with contextlib.suppress(FileNotFoundError):  # another destroy was first
                box_folders.record_rented(box / ENDING, self._store.root)
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
                self._look(name, registry.account) for name in sorted(ids | box_folders.rented_ids(self._store.root))
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
        rented = box_folders.rented_record(native_id, self._store.root)
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


BOOT_DRILL = "SWEEPSTACK_DRILL_BOOT_SECONDS"
CREATE_DRILL = "SWEEPSTACK_DRILL_CREATE"
_CREATE_DRILLS = ("", "fail-after-create", "lose-answer")


def drills() -> tuple[float, str]:
    """(seconds until a box is ready, the drill for creates or ""). Raises PlatformError for unknown values."""
    boot, drill = os.environ.get(BOOT_DRILL, ""), os.environ.get(CREATE_DRILL, "")
    if drill not in _CREATE_DRILLS:
        raise PlatformError(f"{CREATE_DRILL}={drill!r} is no drill; there are: {', '.join(_CREATE_DRILLS[1:])}")
    try:
        return float(boot or 0), drill
    except ValueError as error:
        raise PlatformError(f"{BOOT_DRILL}={boot!r} is not a number of seconds") from error


FACTS, ENDING, TAG_FILE = "box.json", "ending.json", "tag"
SHOWN = "shown"
"""The field of a box's facts with its places (see `preflight.claim`), which outlive it. The runner reads it, too."""


def now() -> datetime:
    return datetime.now(timezone.utc)


def moment(text: str) -> datetime:
    read = datetime.fromisoformat(text)
    if read.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return read


def facts_in(path: Path) -> dict[str, Any] | None:
    try:
        return read_facts(path)
    except FileNotFoundError:
        return None


def shown_by(box: Path) -> dict[str, tuple[str, str]]:
    """The places that a box was made with: path on the box → (folder, id). Empty when its facts can't be read."""
    try:
        facts = facts_in(box / FACTS) or facts_in(box / ENDING) or {}
        return {str(mount): (str(folder), str(native_id)) for mount, (folder, native_id) in facts[SHOWN].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def spare_tag(box: Path) -> str:
    try:
        tag = (box / TAG_FILE).read_bytes().decode("ascii")
    except (OSError, ValueError):
        return ""
    return tag if TAG.fullmatch(tag) else ""


POWER, LOCK = "power.json", "power.lock"
KILLED_BY_STOP = ("scratch",)
"""Tiers that a stop wipes; profiles/local.md says the same, and a test compares them."""
STORE_LOCK_SECONDS = 60.0
STOP_LOCK_SECONDS = 120.0
State = Literal["running", "stopping", "stopped"]
_PHASES: dict[str, Phase] = {"running": Phase.RUNNING, "stopping": Phase.STOPPING, "stopped": Phase.STOPPED}


@dataclass(frozen=True)
class Power:
    """The file's content. `at`: when it was written; `ready_at`: when a start is finished; None without a start."""

    phase: Phase = Phase.RUNNING
    ready_at: datetime | None = None
    at: datetime | None = None


def read_power(box: Path) -> Power:
    """The box's power state. Raises ValueError when the file can't be read: then the state is not known."""
    try:
        facts = read_facts(box / POWER)
    except FileNotFoundError:
        return Power()
    try:
        ready, at = (datetime.fromisoformat(facts[name]) if facts.get(name) else None for name in ("ready_at", "at"))
        return Power(_PHASES[facts["state"]], ready, at)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{POWER} does not read: {error!r}") from error


def closed(box: Path, ending: str) -> str:
    """Why nothing may be started on the box now, as the end of a sentence; "" when it may."""
    if (box / ending).exists():
        return "is being destroyed: nothing is started on it any more"
    try:
        phase = read_power(box).phase
    except ValueError as error:
        return f"may be stopped ({error}): nothing is started on it"
    return "" if phase is Phase.RUNNING else f"is {phase}: nothing runs on it until it is started again"


@dataclass(frozen=True)
class Switch:
    """Stops and starts one box. `ending`: the name of the file that marks a box which is being destroyed."""

    store: LocalStore
    box: Path
    native_id: str
    ending: str
    grace: float
    end: Callable[[float], None]
    """Ends all that runs of the box, with so many seconds of grace. Raises NotYetGone."""
    at_work: Callable[[], list[str]]
    """What runs of the box, in words."""

    def stop(self) -> None:
        """See `CanStop.stop`."""
        with self._locked():
            if self._state() is not Phase.STOPPED or self.at_work():
                self._finish_stop()

    def start(self, ready_at: datetime | None) -> None:
        """See `CanStop.start`; does not wait until the box is ready."""
        with self._locked():
            phase = self._state()
            if phase is Phase.STOPPING:  # its scratch may be half wiped: finish the stop first
                self._finish_stop()
            if phase is not Phase.RUNNING:
                self._write_state("running", ready_at)

    def _finish_stop(self) -> None:
        self._write_state("stopping")
        try:
            self.end(self.grace)
            peers.free(self.box, self.native_id)
            for tier in KILLED_BY_STOP:
                box_folders.wipe(self.box / tier)
            self.end(0)  # processes that were being started during the first look
        except NotYetGone as error:
            raise NotYetStopped(f"{self.native_id} is not at rest yet: {error}") from error
        self._write_state("stopped")

    def _state(self) -> Phase:
        """The phase. Raises PlatformError when the box is gone or is being destroyed. A file that can't be read counts
        as an interrupted stop."""
        with answering(self.box):
            if not os.path.lexists(self.box):
                raise PlatformError(f"{self.native_id} is gone: there is nothing to stop or start")
            if self.box.is_symlink() or os.path.lexists(self.box / self.ending):
                raise PlatformError(f"{self.native_id} is being destroyed: it is not stopped or started any more")
            try:
                return read_power(self.box).phase
            except ValueError:
                return Phase.STOPPING

    def _write_state(self, state: State, ready_at: datetime | None = None) -> None:
        facts = {"schema": 1, "state": state, "at": datetime.now(timezone.utc).isoformat()}
        if ready_at is not None:
            facts["ready_at"] = ready_at.isoformat()
        # Under the lock that a destroy takes, too: writing makes folders, and must not make the one just removed.
        with self.store.locked(Wait(STORE_LOCK_SECONDS)), answering(self.box):
            self._state()
            write_json_atomically(self.box / POWER, facts)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the box's power lock: a start must not begin while a stop still wipes."""
        self._state()
        with answering(self.box):
            try:
                holder = open(self.box / LOCK, "ab")  # noqa: SIM115 - closed below, after the caller's work
            except FileNotFoundError:
                self._state()
                raise
        with holder:
            wait = Wait(STOP_LOCK_SECONDS)
            why = wait.until(lambda: take(holder.fileno()), f"{self.native_id} to be free of another stop or start")
            if why:
                raise Unreachable(f"{why}; nothing was changed")
            yield


def phase_of(box: Path, now: datetime) -> Phase:
    """The phase of a box that is not being destroyed. Raises ValueError when the file can't be read."""
    power = read_power(box)
    if power.phase is Phase.RUNNING and power.ready_at is not None:
        return Phase.CREATING if being_made(power.at or now, power.ready_at, now) else Phase.RUNNING
    return power.phase


def being_made(begun: datetime, ready_at: datetime, now: datetime) -> bool:
    """Whether a start that began at `begun` is not finished. Before `begun` it is: the clock was set back since, and
    by it the box would not be ready for as long as that."""
    return begun <= now < ready_at
