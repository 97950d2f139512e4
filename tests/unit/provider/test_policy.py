"""The policy in previews and creates: each rule refuses by name before anything is rented; and what binds an end."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweepstack.config.policy import parse_policy
from sweepstack.core.policy_text import PolicyText, written
from sweepstack.core.records import Action
from sweepstack.core.resources import BoxState, QueueState, VolumeInputs
from sweepstack.onbox.common.errors import SweepstackError, TeardownRefused
from sweepstack.onbox.host.platform import Phase
from sweepstack.provider.resources import run_or_stop, teardown
from sweepstack.provider.resources.policy_limits import IDENTITY_SEEN, Bound, box_problems
from sweepstack.provider.resources.teardown import Judgement
from sweepstack.status.engine.state import StackState
from sweepstack.teardown.policy_in_force import FROM, PROPOSED, TO, in_state
from tests.unit.provider.support import (
    BOX,
    GATE,
    IDENTITY,
    QUEUE,
    STACK,
    VOLUME,
    Sweep,
    abandonment,
    approval_for,
    approved,
)

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


@pytest.fixture(autouse=True)
def _in_the_project(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine starts the provider there."""
    monkeypatch.chdir(sweep.project)


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
    rules = Bound(rules=[parse_policy(PolicyText(text="max_price_per_hour: 4"))])
    found = [failure.reason for failure in box_problems(rules, prices, True)]
    assert [words in reason for reason in found] == ([True] if words else [])
    assert box_problems(rules, {"price_per_hour": 0.01, "max_price": 50}, False) == []


@pytest.mark.parametrize(
    ("adapter", "named", "allowed"),
    [("dear", "cheap", False), ("dear:lab", "cheap", True), ("cheap", "dear", True), ("dear", None, False)],
)
def test_a_program_can_t_name_another_platform_than_the_adapter(adapter: str, named: str | None, allowed: bool) -> None:
    rules = Bound(rules=[parse_policy(PolicyText(text="platforms: cheap"))])
    assert (box_problems(rules, {"adapter": adapter, "platform": named}, False) == []) is allowed


@pytest.mark.parametrize("rule", ALLOWED)
def test_what_a_rule_allows_is_rented(sweep: Sweep, rule: str) -> None:
    text, changes = ALLOWED[rule]
    policy(sweep, text)
    inputs = sweep.box_inputs(**changes)
    assert BOX.check(sweep.op(), None, inputs).failures == []
    assert BOX.check_early(sweep.op(), {}, inputs.model_dump(mode="json")) == []
    assert BOX.create(sweep.op(), inputs)[0] == sweep.listed()[0]


def test_without_a_policy_nothing_names_one(sweep: Sweep) -> None:
    box = sweep.box()
    assert (box.policy, sweep.identity.policy, [birth.policy for birth in sweep.store.births()]) == (None, None, [""])
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


def test_the_state_has_the_text_and_the_birth_record_its_digest(sweep: Sweep) -> None:
    policy(sweep, "waivers: refused\n")
    box = sweep.box()
    assert box.policy == written(PolicyText(text="waivers: refused\n"))
    assert [birth.policy for birth in sweep.store.births()] == [PolicyText(text="waivers: refused\n").digest]
    assert not list(sweep.root(box).rglob("policy.json")), "no copy on the box"
    assert not list((sweep.store.root / "records").glob("policy/*")), "nor in the evidence"


def test_a_deleted_and_a_weaker_file_change_nothing_and_a_stricter_one_counts(sweep: Sweep) -> None:
    policy(sweep, "waivers: refused\n")
    box = sweep.box()
    for text in (None, "", "max_expiry: 1d\n"):
        policy(sweep, text)
        assert up(sweep, box).policy == box.policy
        IDENTITY.check(
            sweep.op("Identity", "identity"), sweep.identity_inputs(policy=box.policy), sweep.identity_inputs()
        )
        assert "waivers: refused is left out" in sweep.said.warnings
    assert "policy.yaml is missing" in sweep.said.warnings
    assert "policy.yaml is weaker than the policy in force" in sweep.said.warnings
    stricter = PolicyText(text="waivers: refused\nmax_expiry: 1d\n")
    policy(sweep, stricter.text)
    after = up(sweep, box)
    assert after.policy == written(stricter)
    assert [birth.policy for birth in sweep.store.births()] == [stricter.digest]


def test_a_box_of_before_gets_the_policy_with_the_next_up(sweep: Sweep) -> None:
    box = sweep.box()
    policy(sweep, "max_expiry: 1h\n")
    after = up(sweep, box)
    given = approved(after, approval_for(after, abandon=(abandonment(after),)))
    with pytest.raises(TeardownRefused, match="may hold for 1h at most"):
        BOX.delete(sweep.op(), after.native_id, given)
    assert sweep.listed() == [box.native_id]


@pytest.mark.parametrize("left", ["its-entry", "the-file", "another-entry", "the-identity-alone"])
def test_one_place_that_is_left_still_binds_the_delete(
    sweep: Sweep, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export was edited, or the file is gone. Gate, queue and box ask the same."""
    policy(sweep, "max_expiry: 1h\n")
    box = sweep.box()
    held = box.policy
    if left != "the-file":
        policy(sweep, None)
    there = StackState("s", policies=(held,) if left in ("another-entry", "the-identity-alone") and held else ())
    if left == "the-identity-alone":  # the birth record was edited, too
        sweep.store.write_birth(sweep.store.births()[0].model_copy(update={"policy": ""}))
        file = (
            Path(os.environ["PULUMI_BACKEND_URL"].removeprefix("file://")) / ".pulumi/stacks/project" / f"{STACK}.json"
        )
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"checkpoint": {"latest": {"resources": [{"outputs": {"policy": held}}]}}}))
    monkeypatch.setattr(teardown, "read_state", lambda *about: there)
    given = approved(box, approval_for(box, abandon=(abandonment(box),)))
    if left != "its-entry":
        given = given.model_copy(update={"policy": None})
    with pytest.raises(TeardownRefused, match="may hold for 1h at most"):
        BOX.delete(sweep.op(), box.native_id, given)
    gate = sweep.gate(given, policy=given.policy)
    with pytest.raises(TeardownRefused, match="may hold for 1h at most"):
        GATE.delete(sweep.op("Gate"), "g", gate)
    queue = QueueState(**sweep.queue_inputs(given, policy=given.policy).model_dump(), launched_at=box.created_at)
    with pytest.raises(TeardownRefused, match="may hold for 1h at most"):
        QUEUE.delete(sweep.op("Queue"), "q", queue)
    assert sweep.listed() == [box.native_id]


def test_where_the_state_does_not_read_only_what_is_gone_ends(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = sweep.box()
    given = approved(box, approval_for(box, abandon=(abandonment(box),)))
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://out-of-reach")

    def away(*_: object) -> StackState:
        raise SweepstackError("the state could not be read; pulumi said: no route")

    monkeypatch.setattr(teardown, "read_state", away)
    with pytest.raises(SweepstackError, match="no route"):
        BOX.delete(sweep.op(), box.native_id, given)
    with pytest.raises(TeardownRefused, match="not approved"):
        BOX.delete(sweep.op(), box.native_id, approved(box, None))
    assert sweep.listed() == [box.native_id]
    sweep.vanish(box)
    BOX.delete(sweep.op(), box.native_id, box)
    assert sweep.store.births()[0].ended_how == "gone"


def test_a_queue_that_keeps_an_earlier_policy_ends_by_the_state_s(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry is not updated with a change of the policy alone: a weaker one that was approved counts for it, too."""
    policy(sweep, "max_expiry: 1h\n")
    box = sweep.box()
    policy(sweep, None)
    sweep.store.write_birth(sweep.born().model_copy(update={"policy": ""}))
    monkeypatch.setattr(teardown, "read_state", lambda *about: StackState("s"))
    given = approved(box, approval_for(box, abandon=(abandonment(box),)))
    queue = QueueState(**sweep.queue_inputs(given, policy=box.policy).model_dump(), launched_at=box.created_at)
    QUEUE.delete(sweep.op("Queue"), "q", queue)


def test_with_no_place_left_the_birth_record_keeps_the_box(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    policy(sweep, "max_expiry: 1h\n")
    box = sweep.box()
    policy(sweep, None)
    monkeypatch.setattr(teardown, "read_state", lambda *about: StackState("s"))
    given = approved(box, approval_for(box, abandon=(abandonment(box),))).model_copy(update={"policy": None})
    with pytest.raises(TeardownRefused, match="no text of it is here"):
        BOX.delete(sweep.op(), box.native_id, given)
    policy(sweep, "max_expiry: 30d\n")
    with pytest.raises(TeardownRefused, match="no text of it is here"):
        BOX.delete(sweep.op(), box.native_id, given)
    assert sweep.listed() == [box.native_id]


def test_a_policy_that_was_written_into_the_birth_record_locks_no_box_for_good(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes the evidence could write it there. An `up` takes it out, unless an entry of the state has it."""
    box = sweep.box()
    birth = sweep.born()
    planted = PolicyText(text="max_expiry: 1s\n")
    sweep.store.write_birth(birth.model_copy(update={"policy": planted.digest}))
    monkeypatch.setattr(teardown, "read_state", lambda *about: StackState("s", policies=(written(planted),)))
    up(sweep, box)
    assert sweep.store.births()[0].policy == planted.digest, "it is no stray one"
    monkeypatch.setattr(teardown, "read_state", lambda *about: StackState("s"))
    given = approved(box, approval_for(box, abandon=(abandonment(box),)))
    with pytest.raises(TeardownRefused, match="where no commit ever had it, pulumi up"):
        BOX.delete(sweep.op(), box.native_id, given)
    seen = sweep.seen(box)
    assert "`pulumi up` mends that" in seen.unhealthy[0], "so that the engine asks for an update"
    up(sweep, box)
    assert sweep.store.births()[0].policy == ""
    BOX.delete(sweep.op(), box.native_id, given)
    assert sweep.listed() == []


def test_a_new_state_takes_nothing_over_without_the_policy_that_the_records_name(sweep: Sweep) -> None:
    """`stack rm --force`, and `up` from a checkout without the file, or with a weaker one."""
    policy(sweep, "max_expiry: 1h\n")
    box = sweep.box()
    for text in (None, "max_expiry: 30d\n"):
        policy(sweep, text)
        (refused,) = IDENTITY.check(sweep.op("Identity", "identity"), None, sweep.identity_inputs()).failures
        assert "no text of it is here" in refused.reason
    policy(sweep, "max_expiry: 1h\n")
    checked = IDENTITY.check(sweep.op("Identity", "identity"), None, sweep.identity_inputs())
    assert (checked.failures, checked.inputs.policy) == ([], box.policy)
    again = BOX.create(sweep.op(), sweep.box_inputs())[1]
    assert again.native_id == box.native_id
    assert [birth.policy for birth in sweep.store.births()] == [PolicyText(text="max_expiry: 1h\n").digest]


def test_a_policy_that_was_planted_stops_a_new_state_until_its_record_is_put_back(sweep: Sweep) -> None:
    """Who writes the evidence could write any digest there. No command takes one out: that would lose a policy, too.
    The file is named, which a backup has, and the console, after which the record is closed."""
    box = sweep.box()
    (birth,) = sweep.store.births()
    sweep.store.write_birth(birth.model_copy(update={"policy": PolicyText(text="max_expiry: 1s\n").digest}))
    (refused,) = IDENTITY.check(sweep.op("Identity", "identity"), None, sweep.identity_inputs()).failures
    assert "records/births/box-0-g1.json of the evidence names the policy" in refused.reason
    assert "put that record back from a backup of the evidence" in refused.reason
    assert "end the box in its platform's console, then sweepctl confirm gone BOX" in refused.reason
    sweep.store.write_birth(birth)
    assert IDENTITY.check(sweep.op("Identity", "identity"), None, sweep.identity_inputs()).failures == []
    assert BOX.create(sweep.op(), sweep.box_inputs())[1].native_id == box.native_id


def test_a_box_that_is_adopted_keeps_the_policy_that_it_was_made_under(sweep: Sweep) -> None:
    """`--target` leaves the Identity out, and with it the question above."""
    policy(sweep, "max_expiry: 1h\n")
    box = sweep.box()
    policy(sweep, None)
    again = BOX.create(sweep.op(), sweep.box_inputs())[1]
    assert (again.native_id, again.policy) == (box.native_id, None)
    assert [birth.policy for birth in sweep.store.births()] == [PolicyText(text="max_expiry: 1h\n").digest]


def test_a_new_box_beside_others_keeps_to_the_policy_of_the_state(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the file: by the Identity, which is checked first; and by the engine's state where it is left out."""
    held = written(PolicyText(text="platforms: other\n"))
    op = sweep.op("Identity", "identity")
    IDENTITY.check(op, sweep.identity_inputs(policy=held), sweep.identity_inputs())
    new = replace(sweep.op(), session=op.session)
    assert "allows the platforms other" in BOX.check(new, None, sweep.box_inputs()).failures[0].reason
    alone = sweep.op()
    del alone.session.shared[IDENTITY_SEEN]
    monkeypatch.setattr(teardown, "read_state", lambda *about: StackState("s", policies=(held,)))
    with pytest.raises(SweepstackError, match="allows the platforms other"):
        BOX.create(alone, sweep.box_inputs())
    assert sweep.listed() == []


def test_what_evidence_and_box_have_comes_into_no_state_and_locks_no_box(sweep: Sweep) -> None:
    """A job writes all of its own box; and more people write the evidence than may say who ends a box."""
    box = sweep.box()
    forged = written(PolicyText(text="max_expiry: 1m\napprovers: evil\n", signers="evil ssh-ed25519 AAAA\n"))
    for place in (sweep.root(box) / "data/sweep/policy.json", sweep.store.root / "records/policy/in-force.json"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(forged)
    op = sweep.op("Identity", "identity")
    assert IDENTITY.check(op, sweep.identity_inputs(), sweep.identity_inputs()).inputs.policy is None
    assert up(sweep, box).policy is None
    BOX.delete(sweep.op(), box.native_id, approved(box, approval_for(box, abandon=(abandonment(box),))))
    assert sweep.listed() == []


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


def test_a_weaker_file_that_was_approved_is_taken_by_all_resources(sweep: Sweep) -> None:
    """Also by those that an interrupted `up` left out: the approval holds until it expires."""
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
    assert IDENTITY.check(op, known, sweep.identity_inputs()).inputs.policy == written(new)
    for session in (op.session, sweep.op().session):
        of_box = replace(sweep.op(), session=session)
        inputs = BOX.check(of_box, sweep.box_inputs(policy=box.policy), sweep.box_inputs()).inputs
        assert inputs.policy == written(new)
        gate = GATE.check(of_box, sweep.gate_inputs(box, policy=box.policy), sweep.gate_inputs(box)).inputs
        assert gate.policy == written(new)
        queue = sweep.queue_inputs(box, policy=box.policy)
        queue = QUEUE.check(replace(sweep.op("Queue"), session=session), queue, sweep.queue_inputs(box)).inputs
        assert queue.policy == written(new)
    assert in_state([queue.policy]).policies == (new,)


def test_a_box_whose_records_can_t_be_read_is_not_refused_as_a_new_one(sweep: Sweep) -> None:
    """It may be there, and its end has to get through."""
    sweep.box()
    policy(sweep, "platforms: other\n")
    (sweep.store.root / "sweep.json").write_bytes(b"\0" * 80)
    assert BOX.check(sweep.op(), sweep.box_inputs(), sweep.box_inputs()).failures == []


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
    judge = teardown.judge_end

    def at_rest(*about: Any, **more: Any) -> Judgement:
        """The platform says that it is stopped: the local one can't stop a box."""
        found = judge(*about, **more)
        assert found.record is not None
        return replace(found, record=replace(found.record, phase=Phase.STOPPED))

    monkeypatch.setattr(teardown, "judge_end", at_rest)
    monkeypatch.setattr(run_or_stop, "check", lambda *about: [])
    stays = sweep.box_inputs(want="stopped", policy=box.policy)
    assert BOX.check(sweep.op(), stays, sweep.box_inputs(want="stopped")).failures == []
    (refused,) = BOX.check(sweep.op(), stays, sweep.box_inputs()).failures
    assert words in refused.reason
    assert "Box box-0 stays stopped. Next: keep it stopped" in refused.reason
    assert "sweepctl finish" in refused.reason
    assert "Nothing is rented" not in refused.reason
