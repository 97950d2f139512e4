"""Records in a volume stack's evidence: which sweeps mount a volume, and what a person was shown.

Who uses a volume is asked of every stack of this backend, and of the store's own records. A sweep that was destroyed
has nothing in its state any more. Its evidence is found by its stack file, and by what it wrote into the store's
evidence when it first mounted the volume. One that can't be asked is a problem, never "no user".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pydantic import AwareDatetime, ConfigDict, Field

from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.records import Birth, CellName, Digest, Record
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import digest_of, hex_of
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import (
    EvidenceChanged,
    EvidenceDamaged,
    EvidenceError,
    EvidenceMissing,
    SweepstackError,
)
from sweepstack.status.engine.state import StackMissing, StackState, list_stacks, read_state

VERB = "delete-volume"
"""What an approval calls the end of a volume."""
USES = "uses"
INVENTORIES = "inventories"


class Mounting(Record):
    """A sweep says that it mounts a volume, before its first box does. Never taken away: what it wrote stays there."""

    stack: str
    identity: str
    evidence: str
    native_id: str
    at: AwareDatetime


class SweepOnVolume(Record):
    """One sweep on one volume, as a person was shown it. `receipt`: the one by which its cells are safe elsewhere, None
    for none; `waived`: cell → the reason for which a person said that it need not be."""

    stack: str
    identity: str
    evidence: str
    receipt: Digest | None = None
    verified: int = Field(default=0, ge=0)
    total: int = Field(default=0, ge=0)
    waived: dict[CellName, str] = Field(default_factory=dict)


class Inventory(Record):
    """What is on volumes by the records: native id → its sweeps. Content-addressed; an approval names its digest."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    schema_: Literal[1] = Field(alias="schema", default=1)
    identity: str
    volumes: dict[str, tuple[SweepOnVolume, ...]]

    @cached_property
    def digest(self) -> str:
        """The name that its content gives it."""
        return digest_of(self.model_dump(mode="json", by_alias=True))


def write_mounting(store: EvidenceStore, mounting: Mounting) -> None:
    """Keeps that a sweep mounts a volume. Idempotent."""
    name = f"{USES}/{quote(mounting.native_id, safe='')}--{mounting.identity}.json"
    before = store.record(name, Mounting)
    if before is not None and (before.evidence, before.native_id) == (mounting.evidence, mounting.native_id):
        return
    try:
        store.write_record(name, mounting)
    except EvidenceChanged:
        if store.record(name, Mounting) is None:
            raise


def mountings(store: EvidenceStore, native_id: str) -> list[Mounting]:
    """The sweeps that said so. Raises EvidenceError."""
    return [mounting for mounting in store.records(USES, Mounting) if mounting.native_id == native_id]


def write_inventory(store: EvidenceStore, inventory: Inventory) -> str:
    """Keeps it under its digest, which is returned. Idempotent."""
    name = _inventory(inventory.digest)
    if store.record(name, Inventory) is None:
        store.write_record(name, inventory)
    return inventory.digest


def read_inventory(store: EvidenceStore, digest: str) -> Inventory:
    """The inventory of that digest, which is recomputed. Raises EvidenceMissing, EvidenceDamaged."""
    found = store.record(_inventory(digest), Inventory)
    if found is None:
        raise EvidenceMissing(f"what was approved ({digest}) is not in {store.shown}")
    if found.digest != digest:
        raise EvidenceDamaged(f"what was approved ({digest}) was edited or damaged in {store.shown}")
    return found


def _inventory(digest: str) -> str:
    return f"{INVENTORIES}/{hex_of(digest)}.json"


@dataclass(frozen=True)
class User:
    """A sweep that uses a volume, or did."""

    stack: str
    identity: str
    evidence: str

    @cached_property
    def at(self) -> Evidence:
        """Its evidence, which the first one who asks opens for all."""
        return Evidence(self.evidence)


@dataclass
class Survey:
    """What was found: native id → its users. `problems`: who could not be asked, each named; then nothing is known."""

    users: dict[str, dict[str, User]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def of(self, native_id: str) -> tuple[User, ...]:
        """The users of one volume, by stack."""
        found = self.users.get(native_id, {}).values()
        return tuple(sorted(found, key=lambda user: (user.stack, user.identity)))

    def add(self, native_id: str, user: User) -> None:
        """Takes in one more user; a sweep counts once."""
        self.users.setdefault(native_id, {}).setdefault(user.identity, user)


def recorded(store: EvidenceStore, native_ids: Iterable[str]) -> Survey:
    """The users that the store's own evidence knows. Reads only."""
    found = Survey()
    for native_id in native_ids:
        try:
            for said in mountings(store, native_id):
                found.add(native_id, User(said.stack, said.identity, said.evidence))
        except EvidenceError as error:
            found.problems.append(f"the records of the volumes can't be read: {error}")
    return found


def survey(project_root: Path, store: EvidenceStore | None, native_ids: Iterable[str], *, but: str = "") -> Survey:
    """The users of these volumes in all stacks of the project in this backend, and those that the store has on record.

    `but`: the stack that keeps the volumes. Reads only; half a second a stack. Never raises SweepstackError.
    """
    from sweepstack.config.edit.stack_file import StackFile  # with pydantic's shapes of it

    wanted = tuple(native_ids)
    found = Survey()
    try:
        known = list_stacks(project_root)
    except SweepstackError as error:
        found.problems.append(f"which stacks there are is not known: {error}")
        known = []
    there = {name.rsplit("/", 1)[-1] for name in known}
    files = [name for name in StackFile.stacks(project_root) if name not in there]
    for name in (*known, *files):
        if name.rsplit("/", 1)[-1] != but.rsplit("/", 1)[-1]:
            _ask(project_root, name, name in known, wanted, found)
    earlier = recorded(store, wanted) if store is not None else Survey()
    found.problems += earlier.problems
    for native_id in wanted:  # after the stacks, which know where evidence went that was published
        for user in earlier.of(native_id):
            found.add(native_id, user)
    return found


def _ask(root: Path, stack: str, known: bool, wanted: tuple[str, ...], found: Survey) -> None:
    from sweepstack.config.edit.stack_file import StackFile

    state = StackState(stack)
    if known:
        try:
            state = read_state(stack, root)
        except StackMissing:
            pass
        except SweepstackError as error:
            found.problems.append(f"whether {stack} uses it is not known: {error}")
            return
        found.problems += [f"whether {stack} uses it is not known: {problem}" for problem in state.problems]
    mounted = {mounted for box in state.boxes for mounted in box.mounts.values()}
    named = {volume.native_id for volume in state.volumes if not volume.guarded} | mounted
    surely = {box.evidence for box in state.boxes} | ({state.identity.evidence} if state.identity else set())
    likely = evidence_uri(root, StackFile.locate(root, stack).pull_to() or "")
    places = surely | ({likely} if likely is not None else set())
    if named & set(wanted) and not surely:
        found.problems.append(f"{stack} uses it, and its state does not say where its evidence is")
    for place in sorted(places):
        try:
            store = Evidence(place).store
            births = store.births()
        except EvidenceMissing as error:
            if place in surely:
                found.problems.append(f"what {stack} left on it is not known: {error}")
            continue  # nothing was ever brought up with this file, or the store has it on record
        except EvidenceError as error:
            found.problems.append(f"what {stack} left on it is not known: {error}")
            continue
        user = User(store.marker.stack, store.marker.identity, place)
        for native_id in wanted:
            if (place in surely and native_id in named) or any(native_id in b.mounts.values() for b in births):
                found.add(native_id, user)


def births_on(user: User, native_id: str) -> list[Birth]:
    """Every box of a sweep that mounted the volume, by its records. Raises EvidenceError."""
    store = user.at.store
    if store.marker.identity != user.identity:
        raise EvidenceMissing(f"{store.shown} holds the evidence of another sweep ({store.marker.identity})")
    return [birth for birth in store.births() if native_id in birth.mounts.values()]
