"""Volumes that a stack keeps, handler by handler on the real local platform: made, mounted, refused, ended."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.core.policy_text import PolicyText, written
from sweepstack.core.records import Abandonment, Action
from sweepstack.core.resources import BoxState, IdentityInputs, VolumeInputs, VolumeState
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import Takeover, backend_name, take_over
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import (
    NotYetGone,
    PlatformError,
    SweepstackError,
    TeardownRefused,
    Unreachable,
    Unsupported,
)
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import VolumeRecord
from sweepstack.operations.volumes.end_check import find_kept, take_inventory
from sweepstack.operations.volumes.mounting_sweeps import VERB, mountings, survey, write_inventory
from sweepstack.provider import dispatch
from sweepstack.provider.resources.base import ReadAnswer
from sweepstack.provider.resources.volume import clearance_of, price, require_as_wanted, with_volumes
from sweepstack.provider.session import Operation, Session
from sweepstack.status.engine.state import StackState
from sweepstack.teardown.ownership import read_owner, sign
from tests.unit.entries import identity_entry
from tests.unit.provider.support import IDENTITY, STACK, VOLUME, Sweep, approval_for

URN = "urn:pulumi:keep::project::sweepstack:index:Volume::abl"
STORE_FILE = """\
config:
  sweepstack:store:
    platform: local
    volumes: {abl: {size: 2GB}}
    pull_to: keeper
"""


class Keeper:
    """A stack that keeps the volume `abl`; the engine's answers about stacks are those of `states`."""

    def __init__(self, sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sweep = sweep
        self.states: dict[str, StackState] = {}
        monkeypatch.setattr(
            "sweepstack.operations.volumes.mounting_sweeps.list_stacks", lambda root: sorted(self.states)
        )
        for place in (
            "sweepstack.operations.volumes.mounting_sweeps.read_state",
            "sweepstack.provider.resources.volume.read_state",
            "sweepstack.provider.resources.teardown.read_state",
        ):
            monkeypatch.setattr(place, lambda name, root: self.states[name])
        (sweep.project / "Pulumi.yaml").write_text("name: project\nstackConfigDir: stacks\n")
        (sweep.project / "stacks").mkdir()
        (sweep.project / "stacks" / "Pulumi.keep.yaml").write_text(STORE_FILE)
        inputs = IdentityInputs(project="project", stack="keep", pull_to="keeper")
        self.identity = IDENTITY.create(self.op(), inputs)[1]
        entry = identity_entry(**self.identity.model_dump())
        self.states["keep"] = StackState("keep", identity=entry)
        self.volume = VOLUME.create(self.op(), self.inputs(clearance="locked"))[1]

    def op(self, *, timeout: float = 0) -> Operation:
        return Operation(Session(self.sweep.project, self.sweep.said.emit, self.sweep.cancelled), URN, timeout)

    def inputs(self, **changes: Any) -> VolumeInputs:
        known = {
            "identity": self.identity.identity,
            "evidence": self.identity.evidence,
            "adapter": "local",
            "name": "abl",
            "guarded": True,
            "size_gb": 2,
            "keep_until": "2031-01-31",
        }
        return VolumeInputs.model_validate(known | changes)

    @property
    def store(self) -> EvidenceStore:
        return EvidenceStore.open(self.identity.evidence)

    @property
    def there(self) -> bool:
        return self.sweep.platform.get_volume(self.volume.native_id) is not None

    def mount(self) -> None:
        """The sweep mounts it: its boxes from now on have it at the durable tier."""
        inputs = VolumeInputs(
            identity=self.sweep.identity.identity,
            evidence=self.sweep.identity.evidence,
            adapter="local",
            name="abl",
            kept=True,
        )
        self.sweep.volume = VOLUME.create(self.sweep.op("Volume", "abl"), inputs)[1]

    def approve(self, **changes: Any) -> VolumeState:
        """The state after an approve and an `up`."""

        from sweepstack.provider.resources.volume import context_of

        facts = context_of(self.volume).facts
        found = survey(self.sweep.project, self.store, [facts.native_id], but="keep")
        digest = write_inventory(self.store, take_inventory(self.identity.identity, [facts], found, {}))
        abandon: tuple[Abandonment, ...] = changes.pop("abandon", ())
        actions = (Action(verb=VERB, box="abl", native_id=facts.native_id),)
        approval = approval_for(receipt=digest, actions=actions, abandon=abandon, **changes)
        return self.volume.model_copy(update={"approval": approval})

    def delete(self, state: VolumeState | None = None, **how: Any) -> None:
        state = state or self.volume
        VOLUME.delete(self.op(**how), state.native_id, state)


def held_elsewhere(sweep: Sweep, box: BoxState) -> None:
    """Evidence was copied: the state in another backend holds this box of the sweep."""
    channel = sweep.channel(box)
    owner = read_owner(channel)
    assert owner is not None
    sign(channel, owner.model_copy(update={"person": "ann@lab", "backend": "s3://team-state"}))


@pytest.fixture
def keeper(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setattr("sweepstack.provider.resources.volume.POLL_SECONDS", 0.02)
    return Keeper(sweep, monkeypatch)


@pytest.mark.parametrize("known", ["on record", "not on record"])
def test_a_volume_of_a_sweep_that_another_backend_holds_is_not_taken_over(sweep: Sweep, known: str) -> None:
    """As with boxes: the box was refused, and by then the state had the other's volume."""
    box = sweep.box()
    held_elsewhere(sweep, box)
    if known != "on record":
        (sweep.store.root / "records" / "births" / "box-0-g1.json").unlink()
    with pytest.raises(SweepstackError, match=r"ann@lab holds it .* The volume store was not taken over\.") as refused:
        sweep.made_volume()
    assert f'sweepctl adopt --stack {STACK} --from s3://team-state --reason "…" && pulumi up --stack {STACK}' in str(
        refused.value
    )
    lost = Takeover(held_by="s3://team-state", taken_to=backend_name(), by="me", at=datetime.now(UTC), reason="lost")
    take_over(sweep.store, lost)
    assert sweep.made_volume().native_id == sweep.volume.native_id


def test_a_volume_is_not_taken_over_while_an_unknown_box_of_its_sweep_can_t_be_asked(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any) -> None:
        raise Unreachable("no answer")

    sweep.box()
    monkeypatch.setattr("sweepstack.provider.resources.held_by_another.read_owner", silent)
    assert sweep.made_volume().native_id == sweep.volume.native_id, "this evidence has it on record"
    (sweep.store.root / "records" / "births" / "box-0-g1.json").unlink()
    with pytest.raises(SweepstackError, match=r"The volume store was not taken over\. .* sweepctl audit"):
        sweep.made_volume()


def test_a_mount_is_not_put_on_record_for_a_sweep_that_another_backend_holds(keeper: Keeper) -> None:
    """The record would name the copied evidence, and by it the volume's end would be judged."""
    held_elsewhere(keeper.sweep, keeper.sweep.box())
    with pytest.raises(SweepstackError, match=r"The volume abl was not taken over"):
        keeper.mount()
    assert mountings(keeper.store, keeper.volume.native_id) == []


def test_it_is_made_once_and_found_again(keeper: Keeper) -> None:
    again = VOLUME.create(keeper.op(), keeper.inputs())[1]
    assert again.native_id == keeper.volume.native_id
    assert "adopted with what is on it" in keeper.sweep.said.text()


def test_a_sweep_finds_it_and_tells_its_keeper(keeper: Keeper) -> None:
    keeper.mount()
    assert keeper.sweep.volume.native_id == keeper.volume.native_id
    (said,) = mountings(keeper.store, keeper.volume.native_id)
    assert (said.identity, said.evidence) == (keeper.sweep.identity.identity, keeper.sweep.identity.evidence)


def test_a_sweep_whose_keeper_is_elsewhere_is_told_what_that_means(keeper: Keeper) -> None:
    (keeper.sweep.project / "stacks" / "Pulumi.keep.yaml").unlink()
    keeper.mount()
    assert "could not be told that sweep-t mounts it" in keeper.sweep.said.warnings


def test_the_whole_way(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused while a box mounts it, refused while nothing is verified, ended by the approval of what was shown."""
    sweep = keeper.sweep
    keeper.mount()
    box = sweep.trained()
    with pytest.raises(TeardownRefused, match="not approved"):
        keeper.delete()
    with pytest.raises(TeardownRefused, match="mounts it, and is running"):
        keeper.delete(keeper.approve())
    sweep.verified(box)
    with pytest.raises(TeardownRefused, match=rf"box box-0 of sweep-t \({box.native_id}\) mounts it, and is running"):
        keeper.delete(keeper.approve())
    sweep.platform.destroy(box.native_id, box.account)
    approved = keeper.approve()
    real = LocalPlatform.get_volume
    with monkeypatch.context() as patch:  # a platform lets go of a volume some time after its box is gone

        def lagging(self: LocalPlatform, native_id: str) -> VolumeRecord | None:
            found = real(self, native_id)
            return replace(found, mounted_by=(box.native_id,)) if found else None

        patch.setattr(LocalPlatform, "get_volume", lagging)
        with pytest.raises(TeardownRefused, match=f"the box {box.native_id} mounts it"):
            keeper.delete(approved)
    keeper.delete(approved)
    assert not keeper.there
    keeper.delete(approved)  # once more: already gone is success


def test_a_sweep_without_a_verified_copy_keeps_it(keeper: Keeper) -> None:
    keeper.mount()
    box = keeper.sweep.trained()
    keeper.sweep.platform.destroy(box.native_id, box.account)
    with pytest.raises(TeardownRefused) as caught:
        keeper.delete(keeper.approve())
    for words in (
        "no receipt says that they are safe",
        "used by         sweep-t",
        "sweepctl give-up --stack keep data/abl",
    ):
        assert words in str(caught.value)
    assert keeper.there
    given_up = Abandonment(box="abl", native_id=keeper.volume.native_id, reason="old", verb=VERB)
    keeper.delete(keeper.approve(abandon=(given_up,)))
    assert not keeper.there


def test_copies_that_lie_on_the_volume_itself_prove_nothing(keeper: Keeper) -> None:
    keeper.mount()
    box = keeper.sweep.trained()
    keeper.sweep.verified(box)
    keeper.sweep.platform.destroy(box.native_id, box.account)
    evidence = Path(keeper.sweep.store.root)
    content = keeper.sweep.platform_root / "volumes" / keeper.volume.native_id / "content"
    moved = content / keeper.sweep.identity.identity / "copies"
    shutil.move(evidence, moved)
    evidence.symlink_to(moved)
    with pytest.raises(TeardownRefused, match=rf"the copies of sweep-t lie on the volume itself \({evidence}\)"):
        keeper.delete(keeper.approve())
    assert keeper.there
    evidence.unlink()
    shutil.move(moved, evidence)
    keeper.delete(keeper.approve())
    assert not keeper.there


def test_an_entry_without_its_policy_ends_by_that_of_the_other_entries(keeper: Keeper) -> None:
    """An export was edited, and the file is not here."""
    there = keeper.states["keep"].identity
    assert there is not None
    held = written(PolicyText(text="max_expiry: 1s\n"))
    keeper.states["keep"] = StackState("keep", there, (there,), policies=(held,))
    given_up = Abandonment(box="abl", native_id=keeper.volume.native_id, reason="not needed", verb="destroy")
    with pytest.raises(TeardownRefused, match="may hold for 1s at most"):
        keeper.delete(keeper.approve(abandon=(given_up,)))
    assert keeper.there


def test_a_state_edited_to_another_volume_ends_nothing(keeper: Keeper) -> None:
    """The id of another stack's volume, and an approval for it: its tag is not this stack's."""
    other = keeper.sweep.platform.ensure_volume("sweepstack-otheridxxx-volume-abl", "abl")
    edited = keeper.approve().model_copy(update={"native_id": other.native_id})
    assert edited.approval is not None
    actions = (Action(verb=VERB, box="abl", native_id=other.native_id),)
    word = edited.approval.model_copy(update={"actions": actions})
    with pytest.raises(TeardownRefused, match="carries the tag"):
        keeper.delete(edited.model_copy(update={"approval": word}))
    assert keeper.sweep.platform.get_volume(other.native_id) is not None


def test_a_state_edited_to_cleared_ends_nothing(keeper: Keeper) -> None:
    with pytest.raises(TeardownRefused):
        keeper.delete(keeper.volume.model_copy(update={"clearance": "cleared: whatever"}))
    assert keeper.there


def test_a_state_whose_guard_was_edited_out_leaves_it(keeper: Keeper) -> None:
    keeper.delete(keeper.volume.model_copy(update={"guarded": None}))
    assert keeper.there
    assert "survives with all that is on it" in keeper.sweep.said.text()
    assert "survives" not in keeper.sweep.said.warnings


def test_another_account_s_volume_is_not_called_gone(keeper: Keeper) -> None:
    foreign = keeper.volume.model_copy(update={"native_id": "volume-zzzzzzzzzz-aaaaaaaaaa"})
    with pytest.raises(TeardownRefused, match="belongs to the registry"):
        keeper.delete(foreign)


def test_a_stack_that_can_t_be_asked_keeps_it_and_is_named(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    approved = keeper.approve()

    def fail(name: str, root: Path) -> StackState:
        raise SweepstackError("pulumi said: no")

    keeper.states["b"] = StackState("b")
    monkeypatch.setattr("sweepstack.operations.volumes.mounting_sweeps.read_state", fail)
    with pytest.raises(TeardownRefused, match="whether b uses it is not known: pulumi said: no"):
        keeper.delete(approved)
    assert keeper.there


def test_a_stack_whose_evidence_is_unreadable_keeps_it(keeper: Keeper) -> None:
    keeper.mount()
    approved = keeper.approve()
    marker = keeper.sweep.project / "results" / "sweep.json"
    marker.write_text("{")
    with pytest.raises(TeardownRefused, match="sweep-t"):
        keeper.delete(approved)


def test_not_proved_gone_stays_and_says_what_it_may_bill(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    approved = keeper.approve()
    monkeypatch.setattr(LocalPlatform, "delete_volume", lambda *_: None)
    with pytest.raises(NotYetGone, match=r"still lists it\. May still bill .*Next: pulumi destroy --stack keep"):
        keeper.delete(approved, timeout=0.2)

    def refuse(*_: object) -> None:
        raise PlatformError("out of order")

    monkeypatch.setattr(LocalPlatform, "delete_volume", refuse)
    with pytest.raises(NotYetGone, match="out of order"):
        keeper.delete(approved)


def test_a_word_for_a_volume_that_leaves_is_found_by_its_delete(keeper: Keeper) -> None:
    approval = keeper.approve().approval
    inputs = IdentityInputs(project="project", stack="keep", pull_to="keeper", leaving=approval)
    IDENTITY.update(keeper.op(), "identity", keeper.identity, inputs)
    keeper.delete()
    assert not keeper.there


def test_a_word_on_record_that_does_not_count_hides_no_reason_of_the_state_s(keeper: Keeper) -> None:
    """As for a box: tests/unit/provider/test_box_end.py."""
    known = keeper.approve().approval
    assert known is not None
    given_up = Abandonment(box="abl", native_id=keeper.volume.native_id, reason="old", verb=VERB)
    keeper.store.write_clearance(keeper.volume.native_id, known.model_copy(update={"abandon": (given_up,)}))
    expired = keeper.approve(expires=datetime.now(UTC))
    with pytest.raises(TeardownRefused) as caught:
        keeper.delete(expired)
    assert "the approval expired at" in str(caught.value)
    assert "were edited" not in str(caught.value)
    with pytest.raises(TeardownRefused, match="were edited"):  # it has none: what is on record says why
        keeper.delete()
    assert keeper.there


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size_gb": 1}, "it holds 2 GB, and no volume can be made smaller"),
        ({"region": "elsewhere"}, "a volume stays where it was made"),
        ({"adapter": "other"}, "a volume stays on its platform"),
        ({"name": "abl2"}, "another name is another volume"),
        ({"guarded": None}, "is ended by its check"),
        ({"kept": True}, "it would be another volume"),
    ],
)
def test_changes_that_are_refused_say_why(keeper: Keeper, changes: dict[str, Any], said: str) -> None:
    old = dispatch.to_properties(keeper.inputs(clearance="locked"))
    news = {k: v for k, v in ({**dispatch.to_properties(keeper.inputs()), **changes}).items() if v is not None}
    _, failures = dispatch.check(keeper.op(), old, news)
    (failure,) = failures
    assert failure.property == next(iter(changes))
    assert said in failure.reason


def test_more_is_an_update_in_place(keeper: Keeper) -> None:
    old = dispatch.to_properties(keeper.inputs(clearance="locked"))
    news, failures = dispatch.check(keeper.op(), old, dispatch.to_properties(keeper.inputs(size_gb=3)))
    assert not failures
    assert dispatch.diff(keeper.op(), old, {}, news).changed == ("size_gb",)
    grown = VOLUME.update(keeper.op(), keeper.volume.native_id, keeper.volume, keeper.inputs(size_gb=3))
    assert (grown.native_id, grown.size_gb) == (keeper.volume.native_id, 3)


def test_one_that_its_tag_does_not_lead_to_is_not_grown(keeper: Keeper) -> None:
    other = keeper.volume.model_copy(update={"native_id": "volume-aaaaaaaaaa-bbbbbbbbbb"})
    with pytest.raises(SweepstackError, match=f"its tag leads to {keeper.volume.native_id}, and the state has"):
        VOLUME.update(keeper.op(), other.native_id, other, keeper.inputs(size_gb=9))


def test_its_clearance_is_that_of_an_approval_of_this_very_volume(keeper: Keeper) -> None:
    approval = keeper.approve().approval
    before, after = keeper.inputs(clearance="locked"), keeper.inputs(approval=approval)
    cleared = clearance_of(keeper.op(), before, after)
    assert cleared == "cleared: what 0 sweeps left on it is verified elsewhere"
    assert "volume abl: " in keeper.sweep.said.text()
    assert clearance_of(keeper.op(), None, after) == "locked"
    assert clearance_of(keeper.op(), before, keeper.inputs()) == "locked"
    assert clearance_of(keeper.op(), before, keeper.inputs(name="abl2", approval=approval)) == "locked"
    said = keeper.sweep.said.text()
    assert clearance_of(keeper.op(), keeper.inputs(clearance=cleared), after) == cleared
    assert keeper.sweep.said.text() == said, "nothing became anything"
    shutil.rmtree(keeper.store.objects.root)
    assert clearance_of(keeper.op(), before, after).startswith("locked (")


def test_a_delete_is_asked_for_again_until_it_is_proved_or_cancelled(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = LocalPlatform.delete_volume, []

    def late(self: LocalPlatform, native_id: str, account: str) -> None:
        asked.append(native_id)
        if len(asked) % 2:
            raise NotYetGone("it is being emptied")
        real(self, native_id, account)

    monkeypatch.setattr(LocalPlatform, "delete_volume", late)
    approved = keeper.approve()
    keeper.sweep.cancelled.set()
    with pytest.raises(NotYetGone, match="it is being emptied; the wait was cancelled"):
        keeper.delete(approved, timeout=30)
    keeper.sweep.cancelled.clear()
    asked.clear()
    keeper.delete(approved, timeout=30)
    assert len(asked) == 2


WANTED = {"size_gb": 20, "region": "EU-1"}


@pytest.mark.parametrize(
    ("wanted", "there", "said"),
    [
        (WANTED, {"size_gb": 20, "region": "eu-1"}, ""),
        (WANTED, {"size_gb": 40}, ""),
        (WANTED, {"size_gb": 10}, "holds 10 GB and can't grow there"),
        (WANTED, {"size_gb": 20, "region": "US-1"}, "is in US-1, and not in EU-1"),
        ({"size_gb": None}, {"size_gb": 10, "region": "US-1"}, ""),
        (WANTED | {"guarded": False}, {"size_gb": 10, "region": "US-1"}, ""),
    ],
)
def test_one_that_is_not_as_wanted_is_refused(wanted: dict[str, Any], there: dict[str, Any], said: str) -> None:
    known = {"identity": "abcdefghjk", "evidence": "file://h/e", "adapter": "local", "name": "abl", "guarded": True}
    inputs = VolumeInputs.model_validate(known | wanted)
    record = VolumeRecord("volume-a", "tag", "abl", "here", **there)
    with pytest.raises(SweepstackError, match=said) if said else nullcontext():
        require_as_wanted(inputs, record)


def test_its_price_is_what_was_told_and_else_that_of_its_gigabytes() -> None:
    known = {"identity": "abcdefghjk", "evidence": "file://h/e", "adapter": "local", "name": "abl", "size_gb": 20}
    for per_gb, told, there, price_now in ((0.5, None, None, 10.0), (0.5, None, 40, 20.0), (0.5, 3.0, 40, 3.0)):
        inputs = VolumeInputs.model_validate(known | {"price_per_gb_month": per_gb})
        seen = {"native_id": "volume-a", "location": "here", "actual_size_gb": there, "price_per_month": told}
        assert price(inputs, VolumeState.model_validate(inputs.model_dump() | seen)) == price_now


def test_a_platform_without_volumes_is_told_so() -> None:
    none: Any = SimpleNamespace(name="bare")
    for ask in (with_volumes, lambda platform: find_kept(platform, "abl")):
        with pytest.raises(Unsupported, match="bare has no volumes"):
            ask(none)


def test_a_preview_says_what_it_costs_and_warns_once_its_day_is_over(keeper: Keeper) -> None:
    VOLUME.check(keeper.op(), None, keeper.inputs(size_gb=100, region="US-KS-2", price_per_gb_month=0.07))
    assert "volume abl: 100 GB in US-KS-2, $7.00/month, kept until 2031-01-31" in keeper.sweep.said.text()
    VOLUME.check_early(
        keeper.op(), {}, {"name": "abl", "adapter": "local", "guarded": True, "keep_until": "2020-01-01"}
    )
    assert "was to be kept until 2020-01-01, which is over" in keeper.sweep.said.warnings


def test_a_new_mount_of_nothing_is_refused_in_the_preview(keeper: Keeper) -> None:
    news = {"name": "nothing", "adapter": "local", "kept": True}
    (failure,) = VOLUME.check_early(keeper.op(), {}, news)
    assert "there is no volume nothing on local" in failure.reason
    assert VOLUME.check_early(keeper.op(), {"name": "nothing"}, news) == []


def test_what_read_saw_is_no_reason_for_an_update(keeper: Keeper) -> None:
    keeper.mount()
    seen = VOLUME.read(keeper.op(), keeper.volume.native_id, keeper.volume)
    assert isinstance(seen, ReadAnswer)
    assert seen.inputs.live is not None
    assert seen.inputs.live.used_by == ("sweep-t",)
    old = dispatch.to_properties(seen.inputs)
    news, _ = dispatch.check(keeper.op(), old, dispatch.to_properties(keeper.inputs()))
    assert dispatch.diff(keeper.op(), old, {}, news).changed == ()


def test_a_box_on_the_volume_is_seen_by_the_platform(keeper: Keeper) -> None:
    keeper.mount()
    box = keeper.sweep.box(mounts={box_layout.DURABLE: keeper.volume.native_id})
    record = keeper.sweep.platform.get_volume(keeper.volume.native_id)
    assert record is not None
    assert record.mounted_by == (box.native_id,)
    keeper.sweep.vanish(box)
    record = keeper.sweep.platform.get_volume(keeper.volume.native_id)
    assert record is not None
    assert record.mounted_by == ()


def test_a_survey_finds_a_sweep_by_its_stack_file_alone(keeper: Keeper) -> None:
    """Destroyed, and its note in the keeper's evidence lost: the file still says where the records are."""
    keeper.mount()
    keeper.sweep.box()
    for note in (keeper.sweep.project / "keeper" / "records" / "uses").iterdir():
        note.unlink()
    native_id = keeper.volume.native_id
    assert survey(keeper.sweep.project, keeper.store, [native_id], but="keep").of(native_id) == ()
    file = keeper.sweep.project / "stacks" / "Pulumi.sweep-t.yaml"
    file.write_text("config:\n  sweepstack:sweep: {pull_to: results}\n")
    (user,) = survey(keeper.sweep.project, keeper.store, [native_id], but="keep").of(native_id)
    assert user.identity == keeper.sweep.identity.identity
