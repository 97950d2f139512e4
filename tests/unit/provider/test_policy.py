"""The policy in previews and creates: each rule refuses by name before anything is rented, and copies are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweepstack.config.policy import read
from sweepstack.core.policy_chain import PolicyChain, PolicyCopy, PolicyLink, PolicyText
from sweepstack.core.records import Action, Approval
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError, TeardownRefused
from sweepstack.onbox.host.platform import Phase
from sweepstack.provider.models import BoxState, QueueState, VolumeInputs
from sweepstack.provider.resources import stop, teardown
from sweepstack.provider.resources.policy import Bound, box_problems
from sweepstack.provider.resources.teardown import Judgement
from sweepstack.teardown.policy_copies import PROPOSED, RECORD, in_evidence, in_state
from sweepstack.teardown.policy_in_force import FROM, TO
from tests.unit.provider.support import BOX, GATE, IDENTITY, QUEUE, VOLUME, Sweep, abandonment, approval_for, approved

RULES: dict[str, tuple[str, dict[str, Any], str]] = {
    "max_price_per_hour": (
        "max_price_per_hour: 0.4",
        {},
        "allows $0.4/h at most (policy.yaml line 1), and the price is",
    ),
    "platforms": ("platforms: [other, another]", {}, "allows the platforms other, another (policy.yaml line 1), and"),
    "regions": ("regions: EU-1", {}, "allows the regions EU-1 (policy.yaml line 1), and resources.regions is missing"),
    "regions of others": ("regions: EU-1", {"resources": {"regions": ["US-1"]}}, "and resources.regions has US-1"),
    "budget": ("budget: required", {}, "asks for a budget (policy.yaml line 1), and the stack file has none"),
    "evidence": ("evidence: s3", {}, "allows evidence in s3 (policy.yaml line 1), and pull_to is a folder"),
}
ALLOWED: dict[str, tuple[str, dict[str, Any]]] = {
    "max_price_per_hour": ("max_price_per_hour: 0.5", {}),
    "platforms": ("platforms: local", {}),
    "regions": ("regions: [EU-1, EU-2]", {"resources": {"regions": ["EU-1"]}}),
    "budget": ("budget: required", {"budget": {"usd": 60}}),
    "evidence": ("evidence: [s3, folder]", {}),
}


def policy(sweep: Sweep, text: str | None) -> None:
    """The project's policy file."""
    path = sweep.project / "policy.yaml"
    path.unlink(missing_ok=True) if text is None else path.write_text(text)


def up(sweep: Sweep, box: BoxState) -> BoxState:
    """What an `up` leaves in the state of a box: its inputs checked, and updated."""
    old = sweep.box_inputs(box.name, policy=box.policy)
    checked = BOX.check(sweep.op(), old, sweep.box_inputs(box.name))
    assert checked.failures == []
    return BOX.update(sweep.op(), box.native_id, box, checked.inputs)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_refuses_in_the_preview_and_before_the_create(sweep: Sweep, rule: str) -> None:
    text, changes, words = RULES[rule]
    policy(sweep, text)
    inputs = sweep.box_inputs(**changes)
    failures = BOX.check(sweep.op(), None, inputs).failures
    assert [words in failure.reason for failure in failures] == [True]
    unknown = inputs.model_dump(mode="json", exclude={"evidence", "identity"} if rule != "evidence" else {"identity"})
    assert words in BOX.check_early(sweep.op(), {}, unknown)[0].reason
    with pytest.raises(SweepstackError) as caught:
        BOX.create(sweep.op(), inputs)
    assert words in str(caught.value)
    assert "box box-0 is not rented" in str(caught.value)
    assert (sweep.listed(), sweep.store.births()) == ([], [])


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        ({"price_per_hour": 0.01, "max_price": 50}, "max_price is $50/h"),
        ({"price_per_hour": 0.01}, "the stack file has no max_price"),
        ({"price_per_hour": 5, "max_price": 4}, "the price is $5/h"),
        ({"price_per_hour": 0.01, "max_price": 4}, ""),
    ],
)
def test_a_price_of_the_stack_file_hides_no_ceiling_where_a_market_says_the_price(
    prices: dict[str, float], words: str
) -> None:
    """`overrides: {PLATFORM: {price_per_hour: 0.01}}` changes nothing of what is rented: `max_price` does."""
    rules = Bound(rules=[read(PolicyText(text="max_price_per_hour: 4"))])
    found = [failure.reason for failure in box_problems(rules, prices, True)]
    assert [words in reason for reason in found] == ([True] if words else [])
    assert box_problems(rules, {"price_per_hour": 0.01, "max_price": 50}, False) == []


@pytest.mark.parametrize(
    ("adapter", "named", "allowed"),
    [("dear", "cheap", False), ("dear:lab", "cheap", True), ("cheap", "dear", True), ("dear", None, False)],
)
def test_a_program_can_t_name_another_platform_than_the_adapter(adapter: str, named: str | None, allowed: bool) -> None:
    rules = Bound(rules=[read(PolicyText(text="platforms: cheap"))])
    assert (box_problems(rules, {"adapter": adapter, "platform": named}, False) == []) is allowed


@pytest.mark.parametrize("rule", ALLOWED)
def test_what_a_rule_allows_is_rented(sweep: Sweep, rule: str) -> None:
    text, changes = ALLOWED[rule]
    policy(sweep, text)
    inputs = sweep.box_inputs(**changes)
    assert BOX.check(sweep.op(), None, inputs).failures == []
    assert BOX.check_early(sweep.op(), {}, inputs.model_dump(mode="json")) == []
    assert BOX.create(sweep.op(), inputs)[0] == sweep.listed()[0]


def test_without_a_policy_nothing_is_written_anywhere(sweep: Sweep) -> None:
    box = sweep.box()
    assert (box.policy, sweep.identity.policy, in_evidence(sweep.store).copy) == (None, None, None)
    assert not (sweep.root(box) / box_layout.POLICY).exists()
    assert BOX.check(sweep.op(), None, sweep.box_inputs()).inputs.policy is None


def test_a_file_with_a_mistake_stops_everything_with_its_line(sweep: Sweep) -> None:
    policy(sweep, "max_boxes: 3\n")
    failures = IDENTITY.check(sweep.op("Identity", "identity"), None, sweep.identity_inputs()).failures
    assert "line 1  max_boxes" in failures[0].reason
    with pytest.raises(SweepstackError, match="max_boxes"):
        sweep.box()
    assert sweep.listed() == []


def test_the_evidence_kind_and_the_budget_are_asked_of_the_sweep_itself(sweep: Sweep) -> None:
    policy(sweep, "evidence: s3\nbudget: required\n")
    op = sweep.op("Identity", "identity")
    failures = IDENTITY.check(op, None, sweep.identity_inputs()).failures
    assert [failure.property for failure in failures] == ["pull_to"]
    old = sweep.identity_inputs(budget={"usd": 60})
    assert [failure.property for failure in IDENTITY.check(op, old, sweep.identity_inputs()).failures] == ["budget"]
    unchanged = sweep.identity_inputs()
    assert IDENTITY.check(op, unchanged, unchanged).failures == []  # a teardown must get through


def test_a_box_that_is_there_stays_and_only_a_bid_above_the_limit_is_refused(sweep: Sweep) -> None:
    box = sweep.box()
    policy(sweep, "max_price_per_hour: 0.2\nplatforms: other\n")
    old = sweep.box_inputs()
    assert BOX.check(sweep.op(), old, sweep.box_inputs()).failures == []
    failures = BOX.check(sweep.op(), old, sweep.box_inputs(bid=0.3)).failures
    assert "the bid is $0.3/h" in failures[0].reason
    assert sweep.listed() == [box.native_id]


def test_copies_are_in_state_evidence_and_box(sweep: Sweep) -> None:
    policy(sweep, "waivers: refused\n")
    box = sweep.box()
    held = in_state(box.policy).copy
    assert held is not None
    assert [link.policy.text for link in held.chains[0].links] == ["waivers: refused\n"]
    assert in_evidence(sweep.store).copy == held
    assert (sweep.root(box) / box_layout.POLICY).read_text() == held.written()


def test_a_deleted_and_a_weaker_file_change_nothing_and_a_stricter_one_counts(sweep: Sweep) -> None:
    policy(sweep, "waivers: refused\n")
    box = sweep.box()
    for text in (None, "", "max_expiry: 1d\n"):
        policy(sweep, text)
        assert up(sweep, box).policy == box.policy
        IDENTITY.check(sweep.op("Identity", "identity"), None, sweep.identity_inputs())
        assert "waivers: refused is left out" in sweep.said.warnings
    assert "policy.yaml is missing" in sweep.said.warnings
    assert "policy.yaml is weaker than the policy in force" in sweep.said.warnings
    policy(sweep, "waivers: refused\nmax_expiry: 1d\n")
    after = up(sweep, box)
    held = in_state(after.policy).copy
    assert held is not None
    assert len(held.chains[0].links) == 2
    assert (sweep.root(box) / box_layout.POLICY).read_text() == after.policy


def test_a_box_of_before_gets_the_policy_with_the_next_up(sweep: Sweep) -> None:
    box = sweep.box()
    policy(sweep, "max_expiry: 1h\n")
    after = up(sweep, box)
    given = approved(after, approval_for(after, abandon=(abandonment(after),)))
    with pytest.raises(TeardownRefused, match="may hold for 1h at most"):
        BOX.delete(sweep.op(), after.native_id, given)
    assert sweep.listed() == [box.native_id]


@pytest.mark.parametrize("left", ["state", "evidence"])
def test_one_copy_that_is_left_still_binds_the_delete(sweep: Sweep, left: str) -> None:
    """The file is gone, and two of the three copies are. Gate and box ask the same. What only the box has: below."""
    policy(sweep, "max_expiry: 1h\n")
    box = sweep.box()
    policy(sweep, None)
    given = approved(box, approval_for(box, abandon=(abandonment(box),)))
    if left != "state":
        given = given.model_copy(update={"policy": None})
    if left != "evidence":
        (sweep.store.root / "records" / RECORD).unlink()
    (sweep.root(box) / box_layout.POLICY).unlink()
    with pytest.raises(TeardownRefused, match="may hold for 1h at most"):
        BOX.delete(sweep.op(), box.native_id, given)
    gate = sweep.gate(given, policy=given.policy)
    with pytest.raises(TeardownRefused, match="may hold for 1h at most"):
        GATE.delete(sweep.op("Gate"), "g", gate)
    queue = QueueState(**sweep.queue_inputs(given, policy=given.policy).model_dump(), launched_at=box.created_at)
    with pytest.raises(TeardownRefused, match="may hold for 1h at most"):
        QUEUE.delete(sweep.op("Queue"), "q", queue)
    assert sweep.listed() == [box.native_id]


def test_an_abandonment_without_any_readable_copy_goes_on_and_is_recorded(sweep: Sweep) -> None:
    policy(sweep, "max_expiry: 1h\n")
    box = sweep.box()
    (sweep.store.root / "records" / RECORD).write_text("{")
    (sweep.root(box) / box_layout.POLICY).write_text("{")
    given = approved(box, approval_for(box, abandon=(abandonment(box),))).model_copy(update={"policy": "{"})
    BOX.delete(sweep.op(), box.native_id, given)
    assert sweep.listed() == []
    assert "and its policy was set aside: the policy's copy in the engine's state" in sweep.said.warnings
    folder = Path(sweep.store.root / "records" / "policy" / "set-aside")
    assert [path.name for path in folder.iterdir()] == [f"{box.native_id}.json"]


def test_the_next_up_writes_a_copy_again_that_the_evidence_lost(sweep: Sweep) -> None:
    policy(sweep, "max_expiry: 1h\n")
    op = sweep.op("Identity", "identity")
    checked = IDENTITY.check(op, sweep.identity_inputs(), sweep.identity_inputs()).inputs
    state = IDENTITY.update(op, "i", sweep.identity, checked)
    path = sweep.store.root / "records" / RECORD
    path.unlink()
    seen = IDENTITY.read(op, "i", state)
    assert "the policy's copy in the evidence" in seen.unhealthy[0]  # type: ignore[union-attr]
    IDENTITY.update(op, "i", state, checked)
    assert path.exists()
    assert IDENTITY.read(op, "i", state).unhealthy == ()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        ("platforms: other", {}, "allows the platforms other (policy.yaml line 1), and this is local"),
        ("regions: EU-1", {"region": "US-1"}, "allows the regions EU-1 (policy.yaml line 1), and region is US-1"),
        ("evidence: s3", {}, "allows evidence in s3 (policy.yaml line 1), and pull_to is a folder"),
    ],
)
def test_a_volume_keeps_to_the_policy_too(sweep: Sweep, text: str, changes: dict[str, Any], words: str) -> None:
    policy(sweep, text)
    before = set((sweep.platform_root / "volumes").iterdir())
    known = {"identity": sweep.identity.identity, "evidence": sweep.identity.evidence, "adapter": "local"}
    inputs = VolumeInputs.model_validate({**known, "name": "other", **changes})
    op = sweep.op("Volume", "other")
    assert words in VOLUME.check(op, None, inputs).failures[0].reason
    assert VOLUME.check(op, inputs, inputs).failures == []
    with pytest.raises(SweepstackError, match="volume other is not made"):
        VOLUME.create(op, inputs)
    assert set((sweep.platform_root / "volumes").iterdir()) == before


def test_a_weaker_file_that_was_approved_is_taken_by_all_resources_in_one_up(sweep: Sweep) -> None:
    """And its approval is used up: the same change back and forth needs another one."""
    policy(sweep, "waivers: refused\n")
    box = sweep.box()
    old, new = PolicyText(text="waivers: refused\n"), PolicyText(text="max_expiry: 1d\n")
    policy(sweep, new.text)
    identity = sweep.identity.identity
    actions = (
        Action(verb=FROM, box=identity, native_id=old.digest),
        Action(verb=TO, box=identity, native_id=new.digest),
    )
    sweep.store.write_record(PROPOSED, approval_for(box).model_copy(update={"actions": actions}))
    op = sweep.op("Identity", "identity")
    known = sweep.identity_inputs(policy=box.policy)
    checked = IDENTITY.check(op, known, sweep.identity_inputs()).inputs
    assert heads(checked.policy) == [new.text]
    IDENTITY.update(op, "i", sweep.identity.model_copy(update={"policy": box.policy}), checked)
    assert sweep.store.record(PROPOSED, Approval) is None
    of_box = replace(sweep.op(), session=op.session)
    after = BOX.check(of_box, sweep.box_inputs(policy=box.policy), sweep.box_inputs()).inputs
    assert heads(after.policy) == [new.text]
    gate = GATE.check(of_box, sweep.gate_inputs(box, policy=box.policy), sweep.gate_inputs(box)).inputs
    assert heads(gate.policy) == [new.text]
    queue = sweep.queue_inputs(box, policy=box.policy)
    queue = QUEUE.check(replace(sweep.op("Queue"), session=op.session), queue, sweep.queue_inputs(box)).inputs
    assert heads(queue.policy) == [new.text]


def heads(text: str | None) -> list[str]:
    """The policies that a copy ends in."""
    copy = in_state(text).copy
    assert copy is not None
    return [chain.head.text for chain in copy.chains]


def test_a_box_whose_records_can_t_be_read_is_not_refused_as_a_new_one(sweep: Sweep) -> None:
    """It may be there, and its end has to get through."""
    sweep.box()
    policy(sweep, "platforms: other\n")
    (sweep.store.root / "sweep.json").write_bytes(b"\0" * 80)
    assert BOX.check(sweep.op(), sweep.box_inputs(), sweep.box_inputs()).failures == []


def test_a_chain_begun_anew_in_the_evidence_is_named_and_does_not_come_into_the_state(sweep: Sweep) -> None:
    """It binds beside the state's until a person deletes it; the state would carry it for good."""
    policy(sweep, "max_expiry: 7d\n")
    box = sweep.box()
    path = sweep.store.root / "records" / RECORD
    path.unlink()
    forged = PolicyLink(policy=PolicyText(text="platforms: nowhere\n"))
    sweep.store.write_record(RECORD, PolicyCopy(chains=(PolicyChain(links=(forged,)),)))
    op = sweep.op("Identity", "identity")
    checked = IDENTITY.check(op, sweep.identity_inputs(policy=box.policy), sweep.identity_inputs()).inputs
    assert heads(checked.policy) == ["max_expiry: 7d\n"]
    assert "was begun anew" in sweep.said.warnings
    assert str(path) in sweep.said.warnings
    assert BOX.check(sweep.op(), None, sweep.box_inputs("another")).failures
    given = approved(box, approval_for(box, abandon=(abandonment(box),)))
    BOX.delete(sweep.op(), box.native_id, given)
    assert sweep.listed() == []
    assert "POLICY SET ASIDE" in sweep.said.warnings


FORGED = PolicyCopy(chains=(PolicyChain(links=(PolicyLink(policy=PolicyText(text="max_expiry: 1m\n")),)),))


def test_what_a_job_writes_on_its_box_keeps_the_box_from_no_abandonment(sweep: Sweep) -> None:
    box = sweep.box()
    (sweep.root(box) / box_layout.POLICY).write_text(FORGED.written())
    with pytest.raises(TeardownRefused, match="may hold for 1m at most"):
        BOX.delete(sweep.op(), box.native_id, approved(box, approval_for(box)))
    BOX.delete(sweep.op(), box.native_id, approved(box, approval_for(box, abandon=(abandonment(box),))))
    assert sweep.listed() == []
    assert "POLICY SET ASIDE" in sweep.said.warnings


def test_a_policy_that_only_the_evidence_has_comes_into_no_state_and_no_box(sweep: Sweep) -> None:
    """Of a sweep that has none in its state: else who writes the evidence would bind it for good. It binds until a
    person deletes it, and the warning says where."""
    box = sweep.box()
    path = sweep.store.root / "records" / RECORD
    sweep.store.write_record(RECORD, FORGED)
    op = sweep.op("Identity", "identity")
    assert IDENTITY.check(op, sweep.identity_inputs(), sweep.identity_inputs()).inputs.policy is None
    assert f"if it is not yours, delete {path}" in sweep.said.warnings
    again = replace(sweep.op(), session=op.session)
    assert BOX.check(again, sweep.box_inputs(box.name), sweep.box_inputs(box.name)).inputs.policy is None
    assert BOX.check(again, None, sweep.box_inputs("another")).inputs.policy is None
    given = approved(box, approval_for(box, abandon=(abandonment(box),)))
    with pytest.raises(TeardownRefused, match="may hold for 1m at most"):
        BOX.delete(sweep.op(), box.native_id, given)
    path.unlink()
    BOX.delete(sweep.op(), box.native_id, given)
    assert sweep.listed() == []


def test_a_state_that_lost_the_policy_gets_it_again_by_the_file_or_where_it_is_new(sweep: Sweep) -> None:
    policy(sweep, "max_expiry: 1h\n")
    box = sweep.box()
    op = sweep.op("Identity", "identity")
    assert IDENTITY.check(op, sweep.identity_inputs(), sweep.identity_inputs()).inputs.policy == box.policy
    again = replace(sweep.op(), session=op.session)
    assert BOX.check(again, sweep.box_inputs(box.name), sweep.box_inputs(box.name)).inputs.policy == box.policy
    policy(sweep, None)
    op = sweep.op("Identity", "identity")
    assert IDENTITY.check(op, None, sweep.identity_inputs()).inputs.policy == box.policy
    again = replace(sweep.op(), session=op.session)
    assert BOX.check(again, None, sweep.box_inputs("another")).inputs.policy == box.policy


@pytest.mark.parametrize("rule", ["max_price_per_hour", "platforms", "regions"])
def test_a_stopped_box_is_not_started_again_against_a_stricter_policy(
    sweep: Sweep, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running one goes on, and one that stays stopped is asked nothing."""
    box = sweep.box()
    text, _, words = RULES[rule]
    policy(sweep, text)
    old = sweep.box_inputs(policy=box.policy)
    assert BOX.check(sweep.op(), old, sweep.box_inputs()).failures == [], "it runs, and goes on"
    judge = teardown.judge

    def at_rest(*about: Any, **more: Any) -> Judgement:
        """The platform says that it is stopped: the local one can't stop a box."""
        found = judge(*about, **more)
        assert found.record is not None
        return replace(found, record=replace(found.record, phase=Phase.STOPPED))

    monkeypatch.setattr(teardown, "judge", at_rest)
    monkeypatch.setattr(stop, "check", lambda *about: [])
    stays = sweep.box_inputs(want="stopped", policy=box.policy)
    assert BOX.check(sweep.op(), stays, sweep.box_inputs(want="stopped")).failures == []
    (refused,) = BOX.check(sweep.op(), stays, sweep.box_inputs()).failures
    assert words in refused.reason
    assert "Box box-0 stays stopped. Next: keep it stopped" in refused.reason
    assert "sweepctl finish" in refused.reason
    assert "Nothing is rented" not in refused.reason
