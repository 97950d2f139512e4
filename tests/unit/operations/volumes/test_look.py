"""What is seen of a volume, of the boxes that mount it, and who is on record as its user."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sweepstack.core.observation import Existence
from sweepstack.onbox.common.box_layout import volume_tag
from sweepstack.onbox.common.errors import FolderLost, PlatformError, Unreachable, WrongAccount
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, Phase, VolumeRecord
from sweepstack.operations.volumes.end_check import VolumeContext, VolumeSeen, VolumeVerdict, observe_volume
from sweepstack.operations.volumes.mounting_sweeps import Mounting, User, mountings, survey, write_mounting
from sweepstack.operations.volumes.volumes_now import Holding, VolumeOfState
from sweepstack.status.engine.state import StackState
from tests.unit.entries import box_entry
from tests.unit.operations.volumes.conftest import KEEPER, NATIVE, Kept
from tests.unit.teardown.support import NOW

SURVEY = "sweepstack.operations.volumes.mounting_sweeps"
RECORD = VolumeRecord(NATIVE, volume_tag(KEEPER, "store"), "store", "here", account="here/1")


def looked(kept: Kept, monkeypatch: pytest.MonkeyPatch, answer: Any, *users: User) -> VolumeSeen:
    """What is seen where the platform answers this about the volume."""

    def get_volume(self: LocalPlatform, native_id: str) -> VolumeRecord | None:
        if isinstance(answer, PlatformError):
            raise answer
        found: VolumeRecord | None = answer
        return found

    monkeypatch.setattr(LocalPlatform, "get_volume", get_volume)
    return observe_volume(VolumeContext(kept.facts, "local"), users)[0]


@pytest.mark.parametrize(
    ("answer", "existence", "problem", "note"),
    [
        (RECORD, Existence.EXISTS, "", ""),
        (None, Existence.GONE, "", ""),
        (Unreachable("no answer"), Existence.UNKNOWN, "", "no answer"),
        (FolderLost("an empty folder"), Existence.UNKNOWN, "", "an empty folder"),
        (WrongAccount("it is there/1's"), Existence.UNKNOWN, "it is there/1's", ""),
        (replace(RECORD, account="there/1"), Existence.EXISTS, "the one at hand is there/1", ""),
        (replace(RECORD, tag="sweepstack-x-volume-y"), Existence.UNKNOWN, "", "carries the tag"),
    ],
)
def test_what_the_platform_says_and_what_it_leaves_open(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, answer: Any, existence: Existence, problem: str, note: str
) -> None:
    seen = looked(kept, monkeypatch, answer)
    assert seen.existence is existence
    assert (bool(problem), bool(note)) == (bool(seen.account_problem), bool(seen.note))
    assert problem in seen.account_problem
    assert note in seen.note


@pytest.mark.parametrize(
    ("phase", "mounts"), [(Phase.RUNNING, True), (Phase.STOPPED, True), (Phase.GONE, False), (None, False)]
)
def test_a_box_whose_answer_was_lost_may_mount_it(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, phase: Phase | None, mounts: bool
) -> None:
    def at_hand(native_id: str, phase: Phase | None) -> BoxRecord | None:
        return BoxRecord(native_id, "tag", "here/1", phase, 0.5, NOW, location="here") if phase is not None else None

    store = kept.sweep.store
    birth = store.birth("box-0", 1)
    assert birth is not None
    store.write_birth(birth.model_copy(update={"native_id": None, "ended_at": None}))
    monkeypatch.setattr(LocalPlatform, "find_by_tag", lambda self, tag, account: at_hand("local-found", phase))
    monkeypatch.setattr(LocalPlatform, "get", lambda self, native_id, account: at_hand(native_id, Phase.GONE))
    user = User("sweep-t", kept.sweep.facts.identity, kept.sweep.facts.evidence)
    alive = looked(kept, monkeypatch, RECORD, user).alive
    assert [line.endswith("mounts it: it was rented and the answer lost") for line in alive] == [True] * mounts


def test_a_use_is_on_record_once_and_follows_the_evidence(kept: Kept) -> None:
    first = Mounting(stack="s", identity="i", evidence="file://h/a", native_id=NATIVE, at=NOW)
    write_mounting(kept.store, first)
    write_mounting(kept.store, first.model_copy(update={"at": NOW + timedelta(days=1)}))
    assert mountings(kept.store, NATIVE) == [first]
    moved = first.model_copy(update={"evidence": "s3://lab/a"})
    write_mounting(kept.store, moved)
    assert mountings(kept.store, NATIVE) == [moved]


def test_a_stack_uses_what_its_state_mounts_also_where_no_record_says_so(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state alone: the birth records of its boxes are those of before they mounted it."""
    (kept.folder / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    store, other = kept.sweep.store, "volume-aaaaaaaaaa-cccccccccc"
    for birth in store.births():
        store.write_birth(birth.model_copy(update={"mounts": {}}))
    box = box_entry(mounts={"mnt/durable": NATIVE}, evidence=kept.sweep.facts.evidence)
    monkeypatch.setattr(f"{SURVEY}.list_stacks", lambda root: ["sweep-t"])
    monkeypatch.setattr(f"{SURVEY}.read_state", lambda name, root: StackState(name, boxes=(box,)))
    found = survey(kept.folder, None, [NATIVE, other])
    assert [user.identity for user in found.of(NATIVE)] == [kept.sweep.facts.identity]
    assert (found.of(other), found.problems) == ((), [])
    shutil.rmtree(kept.sweep.evidence)
    (problem,) = survey(kept.folder, None, [NATIVE]).problems
    assert problem.startswith("what sweep-t left on it is not known: ")
    monkeypatch.setattr(f"{SURVEY}.list_stacks", lambda root: [])
    (kept.folder / "Pulumi.sweep-t.yaml").write_text("config: {}\n")
    assert survey(kept.folder, None, [NATIVE]).problems == [], "a file with which nothing was ever brought up"


@pytest.mark.parametrize(
    ("existence", "price", "problems", "bills"),
    [
        (Existence.EXISTS, 5.0, [], "yes"),
        (Existence.EXISTS, None, [], "yes"),
        (Existence.EXISTS, 0.0, [], "nothing"),
        (Existence.GONE, 5.0, [], "nothing"),
        (Existence.GONE, 5.0, ["no answer"], "unknown"),
    ],
)
def test_whether_a_stack_of_volumes_bills(
    kept: Kept, existence: Existence, price: float | None, problems: list[str], bills: str
) -> None:
    facts = replace(kept.facts, price_per_month=price)
    one = VolumeOfState(facts, VolumeSeen(existence), VolumeVerdict(), ())
    assert Holding((one,), problems=problems).bills == bills
