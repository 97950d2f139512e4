"""Records in a volume stack's evidence: which sweeps mount a volume, and what a person was shown."""

from __future__ import annotations

from functools import cached_property
from typing import Literal
from urllib.parse import quote

from pydantic import AwareDatetime, ConfigDict, Field

from sweepstack.core.records import CellName, Digest, Record
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import digest_of, hex_of
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceDamaged, EvidenceMissing

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


class Use(Record):
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
    volumes: dict[str, tuple[Use, ...]]

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
