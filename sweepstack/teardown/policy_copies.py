"""Reads and writes the copies of a policy: in state, evidence and box (docs/adr/018)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import quote

from sweepstack.core.policy_chain import PolicyCopy, read_copy, united
from sweepstack.core.records import Approval, Record
from sweepstack.core.timestamps import Moment
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceError, PlatformError

RECORD = "policy/in-force.json"
"""The copy in the evidence, below its records."""
PROPOSED = "policy/proposed.json"
"""A weaker policy that a person approved, and that the next `pulumi up` brings into force."""
SET_ASIDE = "policy/set-aside"
"""One record for each box or volume that was given up although its policy was set aside."""
MOST = 1 << 20
"""Bytes of a box's copy that are read."""


class SetAside(Record):
    """A box, or a volume, was given up although not every copy of its policy let that pass. `box`: its name. `why`:
    what was wrong with the copies."""

    what: Literal["box", "volume"] = "box"
    box: str
    native_id: str
    by: str
    at: Moment
    why: str

    @property
    def words(self) -> str:
        """It in one line."""
        return (
            f"{self.what} {self.box} ({self.native_id}) was given up by {self.by} at {self.at:%Y-%m-%d %H:%M} UTC, and "
            f"its policy was set aside: {self.why}"
        )


@dataclass(frozen=True)
class Found:
    """One place where a copy may be. `copy`: None if there is none, or if it can't be read; then `problem` says why.
    `kind`: "" for a place that is none of the three. `path`: where a person finds it there."""

    where: str
    copy: PolicyCopy | None = None
    problem: str = ""
    kind: Literal["state", "evidence", "box", ""] = ""
    path: str = ""


def in_state(text: str | None) -> Found:
    """The copy that the engine's state has."""
    return _read(Found("the engine's state", kind="state"), text)


def in_evidence(store: EvidenceStore) -> Found:
    """The copy in the evidence. Raises nothing."""
    place = Found(f"the evidence ({store.shown})", kind="evidence", path=f"{store.shown}/records/{RECORD}")
    try:
        return replace(place, copy=store.record(RECORD, PolicyCopy))
    except EvidenceError as error:
        return replace(place, problem=str(error))


def on_box(channel: Channel, box: str) -> Found:
    """The copy in the box's own folder; none if the box can't be asked. Raises nothing."""
    place = Found(f"box {box}", kind="box", path=box_layout.POLICY)
    try:
        return _read(place, channel.read(box_layout.POLICY, limit=MOST))
    except (FileNotFoundError, PlatformError):
        return place
    except OSError as error:
        return replace(place, problem=str(error))


def _read(place: Found, text: str | bytes | None) -> Found:
    if text is None:
        return place
    try:
        return replace(place, copy=read_copy(text))
    except ValueError as error:
        return replace(place, problem=str(error))


def roots_of_state(places: Iterable[Found]) -> frozenset[str]:
    """Where the chains begin that the engine's state has; empty if it has none."""
    return frozenset(r for place in places if place.kind == "state" and place.copy for r in place.copy.roots)


def begun_anew(places: Sequence[Found]) -> list[str]:
    """For people: each copy with a chain that begins elsewhere than those of the state, and what to do about it. The
    chains themselves are not checked."""
    ours = roots_of_state(places)
    found = []
    for place in places:
        for chain in place.copy.chains if ours and place.copy is not None else ():
            if chain.root not in ours:
                found.append(
                    f"the policy's copy in {place.where} was begun anew ({chain.head.short}): it does not go on "
                    "from the one in the engine's state. Both bind; but where a second place has the state's, an "
                    f"abandonment keeps to that alone. Next: if the new one is not yours, delete {place.path or 'it'}; "
                    "`pulumi up` writes the other one again"
                )
    return found


def only_on_boxes(places: Sequence[Found]) -> list[str]:
    """For people: each box that has a policy which neither the engine's state nor the evidence has; empty where one of
    them has any, or can't be read. A job wrote it, which can write all of its box; or two copies were taken away."""
    others = [place for place in places if place.kind != "box"]
    if not {"state", "evidence"} <= {place.kind for place in others}:
        return []
    if any(place.problem or (place.copy is not None and place.copy.chains) for place in others):
        return []
    return [
        f"only {place.where} has a policy ({place.copy.chains[0].head.short}): the engine's state and the evidence "
        f"have none. It binds, but no abandonment. Next: if it is not yours, delete {place.path or 'it'} there"
        for place in places
        if place.copy is not None and place.copy.chains
    ]


def keep(store: EvidenceStore, copy: PolicyCopy) -> None:
    """Writes the copy into the evidence, with what is there already. Idempotent. Raises EvidenceError.

    What there does not read is replaced: the chains of `copy` are those that hold, by all other places. A chain that
    begins elsewhere than what is there stays out: else one `pulumi up` would make a state that was edited by hand its
    own witness.
    """
    if not copy.chains:
        return
    try:
        store.update_record(RECORD, PolicyCopy, lambda before: _joined(copy, before))
    except EvidenceDamaged:
        store.write_record(RECORD, copy)


def _joined(copy: PolicyCopy, before: PolicyCopy | None) -> PolicyCopy:
    return united([copy.within(before), *([before] if before is not None else [])])


def forget_proposed(store: EvidenceStore, copy: PolicyCopy) -> None:
    """Takes the approval of a change away that this copy has used, also if it was signed again since then. One that
    does not read counts for nothing, and stays. Raises EvidenceError."""
    used = [link.approval.unsigned for chain in copy.chains for link in chain.links if link.approval is not None]
    if used:
        with contextlib.suppress(EvidenceDamaged):
            store.update_record(
                PROPOSED, Approval, lambda before: None if before is not None and before.unsigned in used else before
            )


def record_set_aside(store: EvidenceStore, found: SetAside) -> None:
    """Puts on record that a policy was set aside for an abandonment. Raises EvidenceError."""
    store.write_record(f"{SET_ASIDE}/{quote(found.native_id, safe='')}.json", found)


def set_aside(store: EvidenceStore) -> list[SetAside]:
    """All of these records that can be read. Raises EvidenceError."""
    return store.readable(SET_ASIDE, SetAside)[0]


def keep_on_box(channel: Channel, text: str | None, box: str) -> None:
    """Writes the copy that the state has on the box, with what is there already. Idempotent. Raises nothing: the other
    copies bind without it."""
    ours = in_state(text).copy
    if ours is None or not ours.chains:
        return
    there = on_box(channel, box).copy
    merged = _joined(ours, there)
    if merged != there:
        with contextlib.suppress(PlatformError, OSError):
            channel.write(box_layout.POLICY, merged.written().encode())
