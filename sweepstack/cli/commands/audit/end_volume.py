"""Checks for `sweepctl audit --end` whether a volume that no state has may end.

It may end only if its data is safe elsewhere: the evidence of every sweep that mounted it is known, all boxes of these
sweeps have ended, and the latest receipt verifies every cell that ran with this volume, by every byte of a copy that
does not lie on the volume itself. Or a person gives it up, with a reason. While another backend's state answers and has
its sweep, or one that mounted it, no person ends it here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweepstack.billing.outlived_volume import takes_words
from sweepstack.cli.commands.audit.known_boxes import Known
from sweepstack.cli.commands.audit.other_backend import other_backends
from sweepstack.cli.held_by import Answer
from sweepstack.cli.outlived_volumes import used_bytes
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.operations.observe_volume import observe_volume
from sweepstack.operations.volumes.end_check import (
    VolumeContext,
    VolumeFacts,
    VolumeSeen,
    orphan_policy,
    take_inventory,
    use_problems,
)
from sweepstack.operations.volumes.users import Survey, User, recorded

SHOWN = 12
COUNT_SECONDS = 5.0
"""The most seconds for counting its files."""


@dataclass(frozen=True)
class VolumeAssessed:
    """The result. `mounted`: a line for each box that mounts it, or may; such a volume never ends. `reasons`: why its
    data is not safe elsewhere; empty: it may end. `stores`: the evidence of its sweeps. `words`: its content as text.
    `others`: the other backends that hold its sweeps, with their answers; `owners`: those that hold the one that made
    it. `policy`: why the policy does not let it end."""

    mounted: tuple[str, ...]
    reasons: tuple[str, ...]
    stores: tuple[EvidenceStore, ...]
    words: str
    others: tuple[Answer, ...] = ()
    owners: tuple[Answer, ...] = ()
    policy: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether it may end without an abandonment."""
        return not self.mounted and not self.reasons


def assess_volume(
    platform: str, native_id: str, account: str, tag: str, root: Path, known: Known, *, given_up: bool
) -> VolumeAssessed:
    """Asks the platform and the other backends, and hashes the copies of its data again. Blocks; reads only; an outage
    never raises. `given_up`: a person asks for its end although what is on it may be lost."""
    identity, name = box_layout.volume_of(tag) or ("", "")
    survey = _users(native_id, identity, known)
    users = survey.of(native_id)
    facts = VolumeFacts(identity, "", name, native_id, account)
    open_ones = [
        f"the box {birth.box} of {stack} mounts it, and has not ended by its records"
        for stack, births in known.births.items()
        for birth in births
        if birth.ended_at is None and native_id in birth.mounts.values()
    ]
    volume = VolumeContext(facts, platform)
    seen, record = observe_volume(volume, ())
    mounted = tuple(dict.fromkeys([*seen.alive, *open_ones]))
    # One that can't be opened is a reason of `_not_over`.
    stores = tuple(store for user in users if (store := user.at.usable) is not None)
    lost = record.lost if record is not None else ""
    reasons = [] if mounted else [*survey.problems, *_not_over(volume, users)]
    if not mounted:
        reasons += _reasons(facts, seen, survey, users)
        reasons += [f"{user.stack}: its state has boxes, or its records are open" for user in _live(users, known)]
    used, more = used_bytes(volume.platform, native_id, COUNT_SECONDS)
    price, size = (record.price_per_month, record.size_gb) if record is not None else (None, None)
    holds = "what is on it could not be looked at" if seen.holds is None else f"it holds {', '.join(seen.holds)}"
    holds = lost or ("it is empty" if seen.holds == () else holds)
    words = f"{holds}; {takes_words(price, size, used, more=more)}"
    owners = other_backends(known.stores_of(identity), root, known)
    others = tuple(dict.fromkeys([*owners, *other_backends(stores, root, known)]))
    policy = orphan_policy(known.stores_of(identity), stores, identity, native_id, given_up=given_up)
    return VolumeAssessed(mounted, tuple(dict.fromkeys(reasons)), stores, words, others, owners, policy)


def _users(native_id: str, identity: str, known: Known) -> Survey:
    """Every sweep with a box that mounted the volume, by its evidence, or by the notes of a stack of volumes."""
    found = Survey()
    for store in known.stores.values():
        user = User(store.marker.stack, store.marker.identity, store.objects.uri)
        try:
            if any(native_id in birth.mounts.values() for birth in store.births()):
                found.add(native_id, user)
        except EvidenceError as error:
            found.problems.append(f"what {user.stack} left on it is not known: {error}")
    for store in known.stores_of(identity):
        noted = recorded(store, [native_id])
        found.problems += noted.problems
        for user in noted.of(native_id):
            found.add(native_id, user)
    return found


def _live(users: tuple[User, ...], known: Known) -> Iterator[User]:
    yield from (user for user in users if known.stores_of(user.identity) and not known.is_over(user.identity))


def _not_over(volume: VolumeContext, users: tuple[User, ...]) -> list[str]:
    """The boxes that have ended by the records but are not proved gone; and the copies that lie on the volume."""
    seen, _ = observe_volume(volume, users)
    return [*seen.alive, *seen.unread, *seen.copies]


def _reasons(facts: VolumeFacts, seen: VolumeSeen, survey: Survey, users: tuple[User, ...]) -> Iterator[str]:
    """Why its data is not safe elsewhere."""
    if seen.account_problem or seen.note:
        yield seen.account_problem or seen.note
    if not users:
        yield "its owner is not known: no evidence that was found here names it"
    known = {user.identity for user in users}
    for name in seen.holds or ():
        if name not in known:
            yield f"{name} is on it, and no sweep that was found here left it there"
    for use in take_inventory(facts.identity, [facts], survey, {}).volumes.get(facts.native_id, ()):
        for problem in use_problems(use, facts.native_id, full=True):
            yield f"{use.stack}: {problem}"


def refusal(platform: str, native_id: str, found: VolumeAssessed) -> str:
    """The refusal: why it may not end, and the command that gives it up."""
    rows = [("locked because" if index == 0 else "", text) for index, text in enumerate(found.reasons[:SHOWN])]
    if len(found.reasons) > SHOWN:
        rows.append(("", f"… and {len(found.reasons) - SHOWN} more"))
    rows.append(("holds", found.words))
    given_up = f'sweepctl audit --end {platform}:{native_id} --abandon --reason "…"'
    rows.append(("give up", f"{given_up}    (only once you know its owner)"))
    lines = [f"REFUSED. Nothing was ended: volume {native_id} on {platform}."]
    return "\n".join([*lines, *(f"  {label:<14}  {text}" for label, text in rows)])
