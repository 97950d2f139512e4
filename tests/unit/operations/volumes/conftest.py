"""A sweep whose boxes mounted a volume and have ended, and the evidence of the stack that keeps the volume."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.observation import Existence
from sweepstack.core.records import Abandonment, Action, Approval
from sweepstack.evidence.store import EvidenceStore
from sweepstack.operations.volumes.end_check import (
    VolumeContext,
    VolumeEnding,
    VolumeFacts,
    VolumeSeen,
    VolumeVerdict,
    take_inventory,
)
from sweepstack.operations.volumes.mounting_sweeps import VERB, Survey, User, write_inventory
from sweepstack.teardown.check import may_end
from tests.unit.teardown.support import NOW, Situation, build

NATIVE = "volume-aaaaaaaaaa-bbbbbbbbbb"
KEEPER = "keeperxxxx"


@pytest.fixture(scope="session", autouse=True)
def nothing_is_flushed() -> Iterator[None]:
    """No power is cut in these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of two boxes that mounted the volume. Nobody writes here."""
    folder = tmp_path_factory.mktemp("template")
    build(folder)
    store = EvidenceStore.open(f"file://{socket.gethostname()}{folder / 'evidence'}")
    for birth in store.births():
        ended = NOW - timedelta(hours=2)
        store.write_birth(birth.model_copy(update={"mounts": {"mnt/durable": NATIVE}, "ended_at": ended}))
    return folder


@dataclass
class Kept:
    """What the check is asked about the volume. Changed in place by tests; `ask` asks."""

    sweep: Situation
    folder: Path
    facts: VolumeFacts
    survey: Survey
    seen: VolumeSeen = field(default_factory=lambda: VolumeSeen(Existence.EXISTS))
    approval: Approval | None = None
    now: Any = NOW

    @property
    def store(self) -> EvidenceStore:
        return EvidenceStore.open(self.facts.evidence)

    def approve(self, **changes: Any) -> None:
        """A person's approval of what the records show now."""
        digest = write_inventory(self.store, take_inventory(KEEPER, [self.facts], self.survey, {}))
        abandon = changes.pop("abandon", ())
        known = {
            "receipt": digest,
            "actions": (Action(verb=VERB, box="store", native_id=NATIVE),),
            "abandon": abandon,
            "waivers_digest": Approval.digest_waivers((), abandon),
            "by": "ada",
            "at": NOW - timedelta(hours=1),
            "expires": NOW + timedelta(hours=71),
        }
        self.approval = Approval.model_validate(known | changes)

    def give_up(self, **changes: str) -> Abandonment:
        known = {"box": "store", "native_id": NATIVE, "reason": "old", "verb": VERB}
        return Abandonment.model_validate(known | changes)

    def edit(self, **changes: Any) -> None:
        assert self.approval is not None
        self.approval = self.approval.model_copy(update=changes)

    def see(self, **changes: Any) -> None:
        self.seen = replace(self.seen, **changes)

    def ask(self, *, full: bool = True) -> VolumeVerdict:
        return may_end(
            VolumeEnding(VolumeContext(self.facts, "local"), self.approval, self.seen, self.survey),
            full=full,
            now=self.now,
        )


@pytest.fixture
def kept(template: Path, tmp_path: Path) -> Kept:
    """It may end: everything on it is verified elsewhere, and approved."""
    shutil.copytree(template, tmp_path / "sweep", symlinks=True)
    sweep = Situation.of(tmp_path / "sweep")
    uri = f"file://{socket.gethostname()}{tmp_path / 'keeper'}"
    EvidenceStore.found(uri, KEEPER, "sweepstack", "keep")
    facts = VolumeFacts(identity=KEEPER, evidence=uri, name="store", native_id=NATIVE, account="here/1")
    survey = Survey()
    survey.add(NATIVE, User("sweep-t", sweep.facts.identity, sweep.facts.evidence))
    made = Kept(sweep, tmp_path, facts, survey)
    made.approve()
    return made
