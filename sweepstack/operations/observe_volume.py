"""Looks at a volume, and gives the check of its end what it needs. Never raises for an outage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sweepstack.core.observation import Existence
from sweepstack.core.paths import docs_page
from sweepstack.core.records import Birth
from sweepstack.evidence.whereabouts import evidence_on
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import (
    EvidenceError,
    FolderLost,
    PlatformError,
    SweepstackError,
    Unsupported,
    WrongAccount,
)
from sweepstack.onbox.host.capabilities import HasVolumes
from sweepstack.onbox.host.platform import Phase, Platform, VolumeRecord
from sweepstack.operations.observe import made_by, stays_ended
from sweepstack.operations.volumes.end_check import VolumeContext, VolumeSeen
from sweepstack.operations.volumes.records import User, births_on
from sweepstack.platforms.registry import need, volume_channel
from sweepstack.teardown.box_context import BoxAt


def find_kept(platform: Platform, name: str) -> VolumeRecord:
    """The volume of this name that a stack of volumes keeps in the account. Raises SweepstackError when there is none,
    or several."""
    if not isinstance(platform, HasVolumes):
        raise Unsupported(f"{platform.name} has no volumes: leave mounts out of the stack file")
    found = [
        record
        for record in platform.list_volumes(box_layout.TAGS)
        if (ours := box_layout.volume_of(record.tag)) is not None and ours[1] == name
    ]
    if not found:
        raise SweepstackError(
            f"there is no volume {name} on {platform.name}. Next: make it with the stack that keeps it "
            f"({docs_page('stack-config.md#volumes')}), or correct mounts"
        )
    if len(found) > 1:
        listed = ", ".join(f"{record.native_id} ({record.tag})" for record in found)
        raise SweepstackError(f"several volumes of {platform.name} are called {name}: {listed}. Give one another name")
    return found[0]


def observe_volume(volume: VolumeContext, users: Iterable[User]) -> tuple[VolumeSeen, VolumeRecord | None]:
    """Asks the platform for the volume, and for every box that mounted it by the records of a user; and whether the
    copies of a user lie on it. Reads only."""
    facts = volume.facts
    try:
        platform = need(volume.platform, HasVolumes)
        record = platform.get_volume(facts.native_id)
    except FolderLost as error:
        return VolumeSeen(Existence.UNKNOWN, note=str(error)), None
    except WrongAccount as error:
        return VolumeSeen(Existence.UNKNOWN, account_problem=str(error)), None
    except PlatformError as error:
        return VolumeSeen(Existence.UNKNOWN, note=str(error)), None
    if record is None:
        return VolumeSeen(Existence.GONE), None
    if facts.account and record.account and record.account != facts.account:
        problem = (
            f"{facts.native_id} was made with the account {facts.account}, and the one at hand is {record.account}"
        )
        return VolumeSeen(Existence.EXISTS, account_problem=problem), record
    tag = box_layout.volume_tag(facts.identity, facts.name)
    if record.tag != tag:
        note = f"{facts.native_id} carries the tag {record.tag!r}, and this stack's volume {facts.name} is {tag}"
        return VolumeSeen(Existence.UNKNOWN, note=note), record
    alive: list[str] = []
    unread: list[str] = []
    named: set[str | None] = set()
    copies: list[str] = []
    for user in users:
        copies += [] if record.lost else _copies_on_it(platform, facts.native_id, user)
        try:
            births = births_on(user, facts.native_id)
        except EvidenceError as error:
            unread.append(f"which boxes of {user.stack} mount it is not known: {error}")
            continue
        for birth in births:
            if lines := list(_alive(user, birth)):
                alive += lines
                named.add(birth.native_id)
    alive += [f"the box {native_id} mounts it" for native_id in record.mounted_by or () if native_id not in named]
    holds = _holds(platform, facts.native_id)
    seen = VolumeSeen(Existence.EXISTS, alive=tuple(alive), unread=tuple(unread), holds=holds, copies=tuple(copies))
    return seen, record


def _alive(user: User, birth: Birth) -> Iterator[str]:
    """A line if the box is not proved gone. A box whose record says "ended" is asked about, too: the record may be
    wrong."""
    what = f"box {birth.box} of {user.stack} ({birth.native_id or birth.tag}) mounts it"
    try:
        if birth.native_id is None:
            found, _ = made_by(birth)
            if found is not None and found.phase is not Phase.GONE:
                yield f"{what}: it was rented and the answer lost"
            return
        record = BoxAt.of(birth).platform.get(birth.native_id, birth.account)
    except PlatformError as error:
        if not stays_ended(birth, error):
            yield f"{what}, and is not proved gone: {error}"
        return
    if record.phase is not Phase.GONE:
        yield f"{what}, and is {record.phase.value}"


def _copies_on_it(platform: Platform, native_id: str, user: User) -> Iterator[str]:
    """A line if the copies of a sweep lie on the volume itself, or may: they would die with it. If its folder is lost,
    none can."""
    if user.at.usable is None:
        return  # it can't be opened, which keeps the volume by itself
    try:
        found = evidence_on(
            volume_channel(platform, native_id, box_layout.DURABLE), user.evidence, (box_layout.DURABLE,)
        )
    except Unsupported:
        return  # readable only from a box, so it holds no folder of this computer
    except (PlatformError, OSError) as error:
        yield f"whether the copies of {user.stack} lie on the volume itself is not known: {error}"
        return
    if found is not None:
        yield f"the copies of {user.stack} lie on the volume itself ({found[1]}): publish them elsewhere"


def _holds(platform: Platform, native_id: str) -> tuple[str, ...] | None:
    """The names at the top of the volume, if it can be read without a box."""
    try:
        channel = volume_channel(platform, native_id, box_layout.DURABLE)
        return tuple(sorted(entry.name for entry in channel.listdir(box_layout.DURABLE)))
    except (PlatformError, OSError):
        return None
