"""Which policy binds, what counts as weaker, and what the gate refuses because of it."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.config.policy import Policy, read
from sweepstack.core.policy_chain import NONE, PolicyChain, PolicyCopy, PolicyLink, PolicyText, read_copy, united
from sweepstack.core.records import Action, Approval
from sweepstack.core.signature import SweepName
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.teardown.policy_check import PolicyAnswer, ask_policy
from sweepstack.teardown.policy_copies import RECORD, Found, in_evidence, in_state, keep
from sweepstack.teardown.policy_in_force import FROM, TO, followed, in_force
from sweepstack.teardown.policy_order import stricter, weaker
from tests.unit.evidence.world import IDENTITY
from tests.unit.teardown.support import FIRST, NOW, Situation, abandonment, approval, waiver

STRICT, WEAK = "max_expiry: 24h\nwaivers: refused\n", "max_expiry: 24h\n"


def source(text: str, signers: str | None = None) -> PolicyText:
    """A policy; with the keys of all, where it names people."""
    named = "approvers" in text or "abandoners" in text
    return PolicyText(text=text, signers=(ANA + BEN if named else "") if signers is None else signers)


def copy_of(*texts: str, approval: Approval | None = None) -> PolicyCopy:
    """A chain of these policies; the last one by this approval."""
    links = [PolicyLink(policy=source(text)) for text in texts]
    links[-1] = links[-1].model_copy(update={"approval": approval})
    return PolicyCopy(chains=(PolicyChain(links=tuple(links)),))


def change(old: str, new: str, identity: str = IDENTITY, **changes: Any) -> Approval:
    """A person's consent that `new` follows `old`."""
    actions = (
        Action(verb=FROM, box=identity, native_id=source(old).digest),
        Action(verb=TO, box=identity, native_id=source(new).digest),
    )
    return approval(None, actions=actions, **changes)


def binding(*copies: PolicyCopy | None) -> list[str]:
    """The texts of the policies that bind by these copies."""
    places = [Found(f"place {number}", copy) for number, copy in enumerate(copies)]
    return [head.text for head in in_force(places, IDENTITY).heads]


ANA, BEN, EVE = (f"{name} ssh-ed25519 AAAA{name}\n" for name in ("ana", "ben", "eve"))
"""Lines of a list of allowed signers."""
ORDER = {
    "approvers": ("approvers: [ana, ben]\nabandoners: ana", "approvers: ana\nabandoners: ana"),
    "abandoners": ("abandoners: [ana, ben]", "abandoners: ben"),
    "abandon_needs": ("abandoners: [ana, ben]", "abandoners: [ana, ben]\nabandon_needs: 2"),
    "max_price_per_hour": ("max_price_per_hour: 4", "max_price_per_hour: 2"),
    "platforms": ("platforms: [local, other]", "platforms: local"),
    "regions": ("regions: [EU-1, EU-2]", "regions: [EU-2]"),
    "evidence": ("evidence: [folder, s3]", "evidence: s3"),
    "max_expiry": ("max_expiry: 1d", "max_expiry: 90m"),
}
"""Key → a value, and a stricter one."""
WORDS = {"budget": "budget: required", "waivers": "waivers: refused"}


def test_every_key_has_its_order() -> None:
    """A key that nothing compares would count as weaker with each change, or never."""
    assert set(ORDER) | set(WORDS) == set(Policy.model_fields)


@pytest.mark.parametrize("key", [*ORDER, *WORDS])
def test_a_key_that_is_left_out_is_weaker(key: str) -> None:
    text = WORDS.get(key) or ORDER[key][1]
    assert key in [line.partition(":")[0] for line in weaker(read(source(text)), read(NONE))]
    assert weaker(read(NONE), read(source(text))) == []
    assert key in stricter(read(NONE), read(source(text)))


@pytest.mark.parametrize("key", ORDER)
def test_a_key_with_a_stricter_value_is_not_weaker_and_back_it_is(key: str) -> None:
    loose, strict = (read(source(text)) for text in ORDER[key])
    assert weaker(loose, strict) == []
    assert [line.partition(":")[0] for line in weaker(strict, loose)] == [key]
    assert weaker(loose, loose) == []


def test_a_new_line_of_the_allowed_signers_is_weaker_and_one_less_is_not() -> None:
    """A new key under an old name may be another person's."""
    text = "approvers: ana\n"
    before = read(source(text, ANA + BEN))
    assert weaker(before, read(source(text, "# of the lab\n" + ANA))) == []
    assert weaker(before, read(source(text, ANA + BEN + EVE))) == [
        "allowed_signers: a line for eve is new or was changed"
    ]
    assert weaker(before, read(source(text, ANA.replace("AAAA", "BBBB") + BEN)))


MISTAKES = {
    "no key": ("approvers: eve\n", ANA, "approvers: eve"),
    "no list": ("approvers: ana\n", "", "approvers: ana"),
    "one person": ("approvers: ana\nabandon_needs: 2\n", ANA, "abandon_needs: 2"),
    "one key": ("approvers: [ana, ben]\nabandon_needs: 2\n", ANA + ANA.replace("ana ", "ben "), "abandon_needs: 2"),
    "no people": ("abandon_needs: 2\n", "", "abandon_needs: 2"),
    "a pattern": ('approvers: "*"\n', ANA, "approvers"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_people_who_can_never_sign_are_a_mistake(what: str) -> None:
    text, signers, key = MISTAKES[what]
    with pytest.raises(ConfigError, match=re.escape(key)):
        read(source(text, signers))
    assert read(source("approvers: [ana, ben]\nabandon_needs: 2\n", ANA + BEN)).rules.may_abandon == ("ana", "ben")


def test_neither_of_two_lists_may_be_as_strict_as_the_other() -> None:
    one, other = read(source("platforms: [local]")), read(source("platforms: [other]"))
    assert weaker(one, other)
    assert weaker(other, one)


def test_a_mistake_in_the_file_is_named_with_line_and_key() -> None:
    with pytest.raises(ConfigError) as caught:
        read(source("waivers: refused\nmax_prise_per_hour: 3\nmax_expiry: soon\n"))
    words = str(caught.value)
    assert "policy.yaml has 2 mistakes" in words
    assert "line 2  max_prise_per_hour" in words
    assert 'did you mean "max_price_per_hour"?' in words
    assert "docs/policy.md#keys" in words


def test_the_newest_accepted_policy_binds_and_an_older_copy_does_not() -> None:
    assert binding(copy_of(WEAK), copy_of(WEAK, STRICT)) == [STRICT]
    assert binding(copy_of(WEAK, STRICT), None) == [STRICT]
    assert binding(None, None) == []


def test_a_weaker_policy_in_a_copy_does_not_count_without_its_approval() -> None:
    assert binding(copy_of(STRICT, WEAK)) == [STRICT]
    assert binding(copy_of(STRICT, "")) == [STRICT]
    assert binding(copy_of(STRICT, WEAK, approval=change(STRICT, WEAK))) == [WEAK]


@pytest.mark.parametrize(
    "given",
    [change(WEAK, STRICT), change(STRICT, ""), change(STRICT, WEAK, "other-sweep"), change("", WEAK)],
    ids=["backwards", "of another policy", "of another sweep", "after another policy"],
)
def test_an_approval_counts_for_one_change_of_one_sweep(given: Approval) -> None:
    assert binding(copy_of(STRICT, WEAK, approval=given)) == [STRICT]


def test_where_two_copies_differ_both_bind() -> None:
    """A copy that begins anew with a weaker policy adds its rules, and takes none away."""
    assert set(binding(copy_of(STRICT), copy_of(WEAK))) == {STRICT, WEAK}
    assert set(binding(copy_of("budget: required"), copy_of(WEAK))) == {"budget: required", WEAK}


def test_a_copy_is_read_as_it_was_written() -> None:
    copy = united([copy_of(STRICT, WEAK, approval=change(STRICT, WEAK)), copy_of("budget: required")])
    assert read_copy(copy.written()) == copy
    with pytest.raises(ValueError, match="chains"):
        read_copy('{"chains": 3}')


def test_the_file_follows_where_it_is_as_strict_and_else_by_approval() -> None:
    def after(text: str, given: Approval | None = None) -> tuple[list[str], list[str]]:
        now = in_force([Found("here", copy_of(STRICT))], IDENTITY)
        copy, lost = followed(now, source(text), given, IDENTITY)
        return [chain.head.text for chain in copy.chains], lost

    stricter_one = STRICT + "budget: required\n"
    assert after(stricter_one) == ([stricter_one], [])
    assert after(WEAK) == ([STRICT], ["waivers: refused is left out"])
    assert after("") == ([STRICT], ["waivers: refused is left out", "max_expiry: 24h is left out"])
    assert after(WEAK, change(STRICT, WEAK)) == ([WEAK], [])
    assert after(WEAK, change(STRICT, "")) == ([STRICT], ["waivers: refused is left out"])


def test_the_evidence_keeps_what_it_had_and_what_comes(situation: Situation) -> None:
    keep(situation.store, copy_of(WEAK))
    keep(situation.store, copy_of(WEAK, STRICT))
    keep(situation.store, copy_of(WEAK))
    assert in_evidence(situation.store).copy == copy_of(WEAK, STRICT)
    (situation.evidence / "records" / RECORD).write_text("{")
    keep(situation.store, copy_of(WEAK))
    assert in_evidence(situation.store).copy == copy_of(WEAK)


# The gate


def under(situation: Situation, text: str, *, state: bool = True, evidence: bool = True) -> Situation:
    """The same, with copies of a policy."""
    if state:
        situation.state(policy=copy_of(text).written())
    if evidence:
        keep(situation.store, copy_of(text))
    return situation


def test_a_policy_that_allows_the_approval_changes_nothing(situation: Situation) -> None:
    verdict = under(situation, "max_expiry: 3d\nwaivers: refused\nbudget: required\n").ask()
    assert (verdict.allowed, verdict.way, verdict.policy_set_aside) == (True, "cleared", "")


@pytest.mark.parametrize("where", [{"state": False}, {"evidence": False}, {}], ids=["evidence", "state", "both"])
def test_waivers_are_refused_by_whichever_copy_is_left(situation: Situation, where: dict[str, bool]) -> None:
    situation.approve(waive=(waiver(FIRST),))
    assert situation.ask().allowed
    verdict = under(situation, STRICT.replace("24h", "3d"), **where).ask()
    assert not verdict.allowed
    assert verdict.reasons[0] == f"the policy refuses waivers (policy.yaml line 2): {FIRST}"
    assert not verdict.approved


def test_an_approval_may_not_hold_longer_than_the_policy_says(situation: Situation) -> None:
    verdict = under(situation, "max_expiry: 24h\n").ask()
    assert not verdict.allowed
    assert verdict.reasons[0].startswith("the approval may hold for 24h at most (policy.yaml line 1)")
    situation.approve(expires=NOW + timedelta(hours=22))
    assert situation.ask().allowed
    situation.approve(at=NOW + timedelta(hours=40), expires=NOW + timedelta(hours=50))  # a date in the future
    assert not situation.ask().allowed


def test_the_rules_of_an_approval_hold_for_an_abandonment_too(situation: Situation) -> None:
    situation.approve(receipt=None, abandon=(abandonment(),))
    assert situation.ask().way == "abandoned"
    verdict = under(situation, "max_expiry: 24h\n").ask()
    assert not verdict.allowed


def test_a_state_that_was_edited_by_hand_does_not_loosen_the_policy(situation: Situation) -> None:
    situation.approve(waive=(waiver(FIRST),))
    under(situation, STRICT.replace("24h", "3d"))
    for edited in (copy_of("max_expiry: 3d\n").written(), copy_of("").written(), None, "{", '{"chains": []}'):
        situation.state(policy=edited)
        assert not situation.ask().allowed, edited


def test_an_evidence_copy_that_was_edited_or_taken_away_does_not_loosen_it(situation: Situation) -> None:
    situation.approve(waive=(waiver(FIRST),))
    under(situation, STRICT.replace("24h", "3d"))
    path = situation.evidence / "records" / RECORD
    for text in (copy_of("max_expiry: 3d\n").written(), "{", '{"chains": []}'):
        path.write_text(text)
        assert not situation.ask().allowed, text
    shutil.rmtree(path.parent)
    assert not situation.ask().allowed


def test_no_copy_can_be_read_and_only_an_abandonment_goes_on(situation: Situation) -> None:
    """It is said why: `policy_set_aside` is recorded and announced by the delete."""
    situation.state(policy="{")
    verdict = situation.ask()
    assert not verdict.allowed
    assert "the policy's copy in the engine's state can't be read" in verdict.reasons[0]
    situation.approve(receipt=None, abandon=(abandonment(),))
    verdict = situation.ask()
    assert (verdict.allowed, verdict.way) == (True, "abandoned")
    assert "the policy's copy in the engine's state can't be read" in verdict.policy_set_aside


def test_a_key_of_a_newer_version_is_refused_by_name_and_the_way_out_stays(situation: Situation) -> None:
    under(situation, "max_expiry: 3d\nmax_boxes: 3\n")
    verdict = situation.ask()
    assert not verdict.allowed
    assert "max_boxes" in verdict.reasons[0]
    assert "git pull" in verdict.reasons[0]
    situation.approve(receipt=None, abandon=(abandonment(),))
    verdict = situation.ask()
    assert verdict.way == "abandoned"
    assert "max_boxes" in verdict.policy_set_aside


def test_an_abandonment_goes_by_the_last_policy_that_can_be_read(situation: Situation) -> None:
    newer = "max_expiry: 24h\nmax_boxes: 3\n"
    situation.state(policy=copy_of("max_expiry: 24h\n", newer).written())
    situation.approve(receipt=None, abandon=(abandonment(),))
    assert not situation.ask().allowed
    situation.approve(expires=NOW + timedelta(hours=22))
    assert situation.ask().way == "abandoned"


def test_what_is_gone_needs_no_policy(situation: Situation) -> None:
    from sweepstack.core.observation import Existence

    under(situation, "max_expiry: 1h\n")
    situation.existence = Existence.GONE
    assert situation.ask().way == "gone"


def test_old_records_have_no_policy(situation: Situation) -> None:
    assert (in_evidence(situation.store).copy, in_evidence(situation.store).problem) == (None, "")
    assert in_state(None).copy is None
    assert situation.ask().allowed


# A chain that was begun anew


def places_of(**copies: PolicyCopy | None) -> list[Found]:
    """What state, evidence and box hold, by kind."""
    return [Found(f"the {kind}", copy, kind=kind) for kind, copy in copies.items()]  # type: ignore[arg-type]


def asked(places: list[Found], *, given_up: bool) -> PolicyAnswer:
    sweep = SweepName(project="", stack="", identity=IDENTITY)
    given = approval(None, expires=NOW + timedelta(hours=48), **({"abandon": (abandonment(),)} if given_up else {}))
    return ask_policy(places, sweep, given, given_up=given_up, now=NOW)


OURS, LOCKING = copy_of("max_expiry: 3d"), copy_of("max_expiry: 1m\nplatforms: nowhere")


def test_who_writes_the_evidence_alone_can_not_lock_a_box_in() -> None:
    """State and box agree: the way out goes by theirs. It is announced, and all else keeps to both."""
    places = places_of(state=OURS, evidence=LOCKING, box=OURS)
    given_up = asked(places, given_up=True)
    assert given_up.problems == ()
    assert "the policy's copy in the evidence was begun anew" in given_up.set_aside
    assert "`pulumi up` writes the other one again" in given_up.set_aside
    assert asked(places, given_up=False).problems, "an end by an approval keeps to both"
    assert len(in_force(places, IDENTITY).rules) == 2
    assert "was begun anew" in in_force(places, IDENTITY).notes[0]


def test_a_job_that_writes_its_box_s_copy_can_not_lock_the_box_in() -> None:
    assert asked(places_of(state=OURS, evidence=OURS, box=LOCKING), given_up=True).problems == ()


@pytest.mark.parametrize(
    "copies",
    [
        {"state": LOCKING, "evidence": OURS, "box": OURS},
        {"state": OURS, "evidence": LOCKING, "box": LOCKING},
        {"state": OURS, "evidence": LOCKING},
        {"evidence": LOCKING, "box": OURS},
        {"evidence": LOCKING},
    ],
    ids=["the state's own", "two against the state", "no second witness", "no state", "the last copy"],
)
def test_elsewhere_every_copy_binds_an_abandonment_too(copies: dict[str, PolicyCopy]) -> None:
    """A state, or any one other copy, that was edited loosens nothing: what is strict in one of them still holds."""
    assert asked(places_of(**copies), given_up=True).problems


def test_a_job_can_not_lock_in_its_box_of_a_sweep_without_a_policy() -> None:
    """It may write all of its own box, and nothing else. All but the way out keeps to what it wrote, and names it."""
    places = places_of(state=None, evidence=None, box=LOCKING)
    given_up = asked(places, given_up=True)
    assert given_up.problems == ()
    assert "only the box has a policy" in given_up.set_aside
    assert asked(places, given_up=False).problems
    assert "only the box has a policy" in in_force(places, IDENTITY).notes[0]


@pytest.mark.parametrize(
    "places",
    [
        places_of(state=None, evidence=LOCKING, box=None),
        places_of(state=None, evidence=LOCKING),
        places_of(state=None, box=LOCKING),
        places_of(evidence=None, box=LOCKING),
        [Found("the evidence", kind="evidence", problem="torn"), *places_of(state=None, box=LOCKING)],
        [Found("the state", kind="state", problem="torn"), *places_of(evidence=None, box=LOCKING)],
    ],
    ids=["the evidence alone", "and the box is silent", "no evidence", "no state", "evidence torn", "state torn"],
)
def test_where_a_copy_may_have_been_lost_the_last_one_binds_an_abandonment(places: list[Found]) -> None:
    assert asked(places, given_up=True).problems


@pytest.mark.parametrize("there", [("state", "evidence", "box"), ("state", "evidence")])
@pytest.mark.parametrize("kinds", [("state", "evidence", "box"), ("state", "evidence")])
def test_one_copy_that_is_deleted_changes_nothing(there: tuple[str, ...], kinds: tuple[str, ...]) -> None:
    """Whether the box has a copy, has none yet, or is silent."""
    for gone in set(there) & set(kinds):
        held = {kind: LOCKING if kind in there and kind != gone else None for kind in kinds}
        for given_up in (True, False):
            assert asked(places_of(**held), given_up=given_up).problems, (gone, held)


def test_a_chain_that_was_begun_anew_spreads_to_no_other_copy(situation: Situation) -> None:
    """Else one `up` after an edit of the state would make the evidence its witness."""
    keep(situation.store, OURS)
    keep(situation.store, LOCKING)
    assert in_evidence(situation.store).copy == OURS
    assert united([OURS, LOCKING]).within(OURS) == OURS
    assert LOCKING.within(None) == LOCKING


# A policy that can't be read, and what may follow it

NEWER = "max_expiry: 24h\nmax_boxes: 3\n"


def test_the_people_of_the_last_readable_policy_may_approve_what_follows_one_that_is_not() -> None:
    """Else nothing could be rented, and nothing end but by an abandonment, for good."""
    before = copy_of(STRICT, NEWER)
    now = in_force([Found("here", before)], IDENTITY)
    assert now.unreadable
    assert followed(now, source(WEAK), None, IDENTITY) == (
        before,
        [f"{source(NEWER).short} can't be read by this sweepstack, so nothing is known to be as strict"],
    )
    copy, lost = followed(
        now, source(WEAK), change(NEWER, WEAK, expires=datetime.now(UTC) + timedelta(days=1)), IDENTITY
    )
    assert lost == []
    after = in_force([Found("here", copy)], IDENTITY)
    assert ([head.text for head in after.heads], after.unreadable) == ([WEAK], "")
    assert followed(now, source(WEAK), change(STRICT, WEAK), IDENTITY)[1], "an approval of another change"


def test_where_no_policy_of_a_chain_can_be_read_nothing_follows_it() -> None:
    now = in_force([Found("here", copy_of(NEWER))], IDENTITY)
    copy, lost = followed(now, source(WEAK), change(NEWER, WEAK), IDENTITY)
    assert (copy, bool(lost)) == (copy_of(NEWER), True)


@pytest.mark.parametrize("key", sorted(Policy.model_fields))
def test_a_key_without_a_value_is_a_mistake_and_not_a_rule_that_allows_all(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} +no value, and without one it allows all"):
        read(source(f"{key}:\n", ANA + BEN))


def test_an_unknown_key_is_answered_with_the_keys_of_the_file() -> None:
    with pytest.raises(ConfigError, match=re.escape("keys of policy.yaml: approvers, abandoners")):
        read(source("max_boxes: 3\n"))


def test_the_only_key_that_begins_so_is_meant() -> None:
    with pytest.raises(ConfigError, match=re.escape('did you mean "max_price_per_hour"?')):
        read(source("max_pric: 3\n"))


def test_a_wrong_value_of_a_list_with_one_entry_is_shown_whole() -> None:
    with pytest.raises(ConfigError, match=re.escape('evidence[0]: "gcs"')):
        read(source("evidence: gcs\n"))
