"""Who may approve and who may give up, by signatures that ssh-keygen made; two people are two names with two keys."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.channel.ssh import sshsig
from sweepstack.config.policy import read
from sweepstack.core.policy_chain import NONE, PolicyChain, PolicyCopy, PolicyLink, PolicyText
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.check import may_end
from sweepstack.teardown.orphan_check import EndRequest, OnIt, OrphanBox, may_end_orphan
from sweepstack.teardown.policy_copies import PROPOSED, Found, forget_proposed, keep
from sweepstack.teardown.policy_in_force import FROM, TO, followed, in_force
from sweepstack.teardown.policy_order import weaker
from sweepstack.teardown.stop_check import STOP, AtRisk, may_stop, stop_facts
from tests.unit.evidence.world import IDENTITY
from tests.unit.teardown.support import FIRST, NOW, Situation, abandonment, action, approval, waiver
from tests.unit.teardown.test_signatures import Person, sweep_name

TWO = "approvers: [ana, ben, eve]\nabandoners: [ana, ben]\nabandon_needs: 2\n"
LONG_AGO = datetime(2020, 1, 1, 9, 0, tzinfo=UTC)
Keys = dict[str, Person]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """A key for each of ana, ben and eve, who are in the list, and for mallory, who is not."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ana", "ben", "eve", "mallory"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=300)
    return {name: Person(name, folder / name) for name in ("ana", "ben", "eve", "mallory")}


def lines(keys: Keys, *names: str) -> str:
    """A list of allowed signers with these people."""
    return "".join(keys[name].line for name in names)


@pytest.fixture
def signers(keys: Keys) -> str:
    return lines(keys, "ana", "ben", "eve")


def copy_of(*policies: PolicyText) -> PolicyCopy:
    """A copy with these policies, one after another, none of them approved."""
    return PolicyCopy(chains=(PolicyChain(links=tuple(PolicyLink(policy=policy) for policy in policies)),))


def with_signatures(approval: Approval, keys: Keys, by: str, sweep: SweepName) -> Approval:
    """`by`: `ana ben/ana`: ana by her key, and ben by ana's."""
    words = [word.partition("/") for word in by.split()]
    made = tuple(keys[key or name].sign(approval, sweep, name=name) for name, _, key in words)
    return approval.model_copy(update={"signatures": made})


def sign(situation: Situation, keys: Keys, by: str) -> Situation:
    assert situation.approval is not None
    situation.approval = with_signatures(situation.approval, keys, by, sweep_name(situation))
    return situation


@pytest.fixture
def two(situation: Situation, signers: str) -> Situation:
    """A sweep whose policy asks for one signature of an approval, and for two of an abandonment."""
    situation.state(policy=copy_of(PolicyText(text=TWO, signers=signers)).written())
    return situation


def test_an_approval_needs_one_signature_of_those_who_may_approve(two: Situation, keys: Keys) -> None:
    verdict = two.ask()
    assert not verdict.allowed
    assert verdict.reasons[0] == (
        "the policy asks for the signature of one of ana, ben, eve for the approval (policy.yaml line 1)"
    )
    assert sign(two, keys, "eve").ask().way == "cleared"
    assert two.approval is not None
    two.approval = two.approval.model_copy(update={"signatures": ()})
    assert two.ask().reasons == [verdict.reasons[0]], "all signatures taken away"


@pytest.mark.parametrize("by", ["mallory", "eve/mallory"])
def test_a_person_who_is_not_listed_is_refused_by_name(two: Situation, keys: Keys, by: str) -> None:
    verdict = sign(two, keys, by).ask()
    assert not verdict.allowed
    who = by.partition("/")[0]
    assert f"the signature of {who} under the approval does not count: its key is not in the list" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("by", "missing"),
    [
        ("ana", "1 of ben"),
        ("ana ben", ""),
        ("eve ana ben", ""),
        ("ana eve", "1 of ben"),  # may approve, and not give up
        ("ana mallory", "1 of ben"),
        ("ana ben/mallory", "1 of ben"),
        ("", "2 of ana, ben"),
    ],
)
def test_an_abandonment_needs_two_different_people(two: Situation, keys: Keys, by: str, missing: str) -> None:
    two.approve(receipt=None, abandon=(abandonment(),))
    verdict = sign(two, keys, by).ask()
    assert (verdict.allowed, verdict.way) == ((False, None) if missing else (True, "abandoned")), verdict.reasons
    if missing:
        assert f"the signature of {missing} for giving it up (policy.yaml line 2)" in verdict.reasons[0]


@pytest.mark.parametrize("by", ["ana ben/ana", "ana ana/eve"])
def test_one_key_and_one_name_are_one_person(situation: Situation, keys: Keys, signers: str, by: str) -> None:
    """Even where the list lets that key sign for both names, and that name by both keys."""
    shared = signers + keys["ana"].line.replace("ana ", "ben ", 1) + keys["eve"].line.replace("eve ", "ana ", 1)
    people = "abandoners: [ana, ben, eve, mallory]\nabandon_needs: 2\n"
    policy = PolicyText(text=people, signers=shared + keys["mallory"].line)
    situation.state(policy=copy_of(policy).written())
    situation.approve(receipt=None, abandon=(abandonment(),))
    assert sign(situation, keys, "ana mallory").ask().allowed
    assert not sign(situation, keys, by).ask().allowed
    approval = situation.approval
    assert approval is not None
    assert approval.signatures[1:]
    situation.approval = approval.model_copy(update={"signatures": approval.signatures[:1]})
    assert "; ana signed it" in situation.ask().reasons[0]


def test_a_signer_who_was_taken_out_of_the_list_signs_no_more(two: Situation, keys: Keys, signers: str) -> None:
    """Taking a line out is stricter, so it counts from the next `up`; putting it back has to be approved."""
    assert sign(two, keys, "eve").ask().allowed
    old = PolicyText(text=TWO, signers=signers)
    new = PolicyText(text=TWO.replace("[ana, ben, eve]", "[ana, ben]"), signers=lines(keys, "ana", "ben"))
    assert weaker(read(old), read(new)) == []
    assert weaker(read(new), read(old))
    for chain in ((old, new), (old, new, old)):
        two.state(policy=copy_of(*chain).written())
        verdict = two.ask()
        assert not verdict.allowed
        assert "the signature of eve under the approval does not count" in verdict.reasons[0]


def test_a_list_that_was_replaced_without_an_approval_does_not_count(two: Situation, keys: Keys, signers: str) -> None:
    """ana is taken out and mallory put in her place: the list before that rules."""
    mine = lines(keys, "ben", "eve") + keys["mallory"].line.replace("mallory ", "ana ", 1)
    two.state(policy=copy_of(PolicyText(text=TWO, signers=signers), PolicyText(text=TWO, signers=mine)).written())
    assert not sign(two, keys, "ana/mallory").ask().allowed
    assert sign(two, keys, "ana").ask().allowed


def test_the_person_who_gives_it_now_signs_it_afterwards(two: Situation, keys: Keys, signers: str) -> None:
    context = BoxContext(two.facts, "local")

    def now(context: BoxContext) -> tuple[bool, tuple[str, ...]]:
        verdict = may_end(context, two.approval, two.seen(), now=NOW, full=False, given_now=True)
        return verdict.allowed, verdict.unsigned

    asked = "the policy asks for the signature of one of ana, ben, eve for the approval (policy.yaml line 1)"
    assert now(context) == (True, (asked,))
    sign(two, keys, "ana")
    assert now(context) == (True, ())
    strict = PolicyText(text=TWO + "waivers: refused\n", signers=signers)
    two.state(policy=copy_of(strict).written())
    two.approve(waive=(waiver(FIRST),))
    assert not now(context.about(two.facts))[0]


def test_a_stop_needs_the_same_people(two: Situation, keys: Keys) -> None:
    two.approve(actions=(action(verb=STOP),), receipt=None, abandon=(abandonment().model_copy(update={"verb": STOP}),))
    box = BoxContext(stop_facts(two.facts, ("scratch", "data"), ("durable",)), "local")
    risk = AtRisk(home=True)
    given = may_stop(box, two.approval, two.seen(), risk, now=NOW, full=False, given_now=True)
    assert (given.allowed, len(given.unsigned)) == (True, 1)
    assert not may_stop(box, two.approval, two.seen(), risk, now=NOW, full=False).allowed
    sign(two, keys, "ana ben")
    assert may_stop(box, two.approval, two.seen(), risk, now=NOW, full=False).way == "abandoned"


def ended(old: PolicyText, keys: Keys, by: str, at: datetime = NOW) -> Approval:
    """The approval that no policy follows `old`, signed."""
    actions = (action(IDENTITY, old.digest, FROM), action(IDENTITY, NONE.digest, TO))
    given = approval(None, actions=actions, at=at, expires=at + timedelta(hours=24))
    return with_signatures(given, keys, by, SweepName(project="p", stack="before-it-was-renamed", identity=IDENTITY))


def heads(old: PolicyText, given: Approval) -> Sequence[str]:
    chain = PolicyChain(links=(PolicyLink(policy=old), PolicyLink(policy=NONE, approval=given)))
    return [head.text for head in in_force([Found("x", PolicyCopy(chains=(chain,)))], IDENTITY).heads]


@pytest.mark.parametrize(
    ("by", "counts"), [("ana ben", True), ("ana", False), ("ana ben/ana", False), ("eve ana", False), ("", False)]
)
def test_a_weaker_policy_needs_the_people_who_may_give_up(keys: Keys, signers: str, by: str, counts: bool) -> None:
    old = PolicyText(text=TWO, signers=signers)
    given = ended(old, keys, by)
    assert heads(old, given) == [NONE.text if counts else TWO]
    now = in_force([Found("x", copy_of(old))], IDENTITY)
    assert followed(now, NONE, given, IDENTITY)[0] == (
        PolicyCopy(chains=(PolicyChain(links=(PolicyLink(policy=old), PolicyLink(policy=NONE, approval=given))),))
        if counts
        else copy_of(old)
    )


@pytest.mark.parametrize("how", ["with one signature less", "cut short", "its signatures in another order"])
def test_an_approval_of_a_weaker_policy_counts_once_however_it_is_signed(keys: Keys, signers: str, how: str) -> None:
    """The people signed one change. Later they went back; the old approval, signed otherwise, is no new consent."""
    old = PolicyText(text=TWO.replace("needs: 2", "needs: 1"), signers=signers)
    given = ended(old, keys, "ana ben")
    changed: dict[str, dict[str, Any]] = {
        "with one signature less": {"signatures": given.signatures[:1]},
        "cut short": {"until": NOW},
        "its signatures in another order": {"signatures": given.signatures[::-1]},
    }
    again = given.model_copy(update=changed[how])
    assert again != given
    assert heads(old, again) == [NONE.text], "it is good, and only its second use is refused"
    links = [(old, None), (NONE, given), (old, None), (NONE, again)]
    chain = PolicyChain(links=tuple(PolicyLink(policy=policy, approval=by) for policy, by in links))
    found = in_force([Found("x", PolicyCopy(chains=(chain,)))], IDENTITY)
    assert [head.text for head in found.heads] == [old.text]
    assert "its approval was used before" in found.notes[0]


def test_an_approval_that_was_used_is_taken_away_also_if_it_was_signed_again(
    two: Situation, keys: Keys, signers: str
) -> None:
    """And one that does not read stops no `pulumi up`."""
    old = PolicyText(text=TWO, signers=signers)
    given = ended(old, keys, "ana ben")
    used = PolicyCopy(chains=(PolicyChain(links=(PolicyLink(policy=old), PolicyLink(policy=NONE, approval=given))),))
    two.store.write_record(PROPOSED, ended(old, keys, "ana ben eve"))
    forget_proposed(two.store, used)
    assert two.store.record(PROPOSED, Approval) is None
    two.store.write_record(PROPOSED, given)
    (two.store.root / "records" / PROPOSED).write_bytes(b"{")
    forget_proposed(two.store, used)


def test_a_key_that_expired_later_does_not_undo_a_change_and_begins_none(keys: Keys) -> None:
    who, *key = keys["ana"].line.split()
    held = f'{who} valid-before="{LONG_AGO + timedelta(days=1):%Y%m%d%H%M}Z" {" ".join(key)}\n'
    old = PolicyText(text="approvers: ana\n", signers=held)
    given = ended(old, keys, "ana", at=LONG_AGO)
    assert heads(old, given) == [NONE.text]
    now = in_force([Found("x", copy_of(old))], IDENTITY)
    assert followed(now, NONE, given, IDENTITY)[0] == copy_of(old)
    assert heads(old, ended(old, keys, "ana", at=LONG_AGO + timedelta(days=2))) == [old.text]


def test_a_box_that_no_state_has_ends_only_by_an_approval_that_they_signed(
    two: Situation, keys: Keys, signers: str
) -> None:
    """`sweepctl audit --end`: the evidence has the policy, and the approval that was put on record there."""
    keep(two.store, copy_of(PolicyText(text=TWO, signers=signers)))
    two.approve(receipt=None, abandon=(abandonment(),))
    facts = two.facts
    box = OrphanBox("local", facts.native_id, facts.account, IDENTITY, facts.name, 1, ours=True)
    on_it = OnIt(two.seen(), None, frozenset({FIRST}))

    def end(reason: str = "") -> tuple[bool, str]:
        verdict = may_end_orphan(box, on_it, [two.store], EndRequest("me@here", reason), now=NOW, full=True)
        return verdict.allowed, "; ".join(verdict.reasons)

    def record(by: str) -> None:
        two.store.write_clearance(facts.native_id, sign(two, keys, by).approval)

    assert end("not worth it")[0] is False
    assert "bring it back into a state first" in end("not worth it")[1]
    assert "the signature of one of ana, ben, eve" in end()[1]
    for by in ("", "ana", "ana ben/ana", "eve ana"):
        record(by)
        assert end("not worth it")[0] is False, by
    record("ana ben")
    assert end("not worth it")[0] is True
    on_it = replace(on_it, policy=Found("the box", problem="damaged"))
    two.store.write_clearance(facts.native_id, None)
    assert end("not worth it")[0] is False, "the evidence still has it"


def test_who_signed_a_verified_end_did_not_give_up_a_box_that_no_state_has(
    two: Situation, keys: Keys, signers: str
) -> None:
    keep(two.store, copy_of(PolicyText(text=TWO, signers=signers)))
    facts = two.facts
    box = OrphanBox("local", facts.native_id, facts.account, IDENTITY, facts.name, 1, ours=True)
    on_it = OnIt(two.seen(), None, frozenset({FIRST}))

    def given_up(approval: Approval | None) -> bool:
        two.store.write_clearance(facts.native_id, approval)
        request = EndRequest("me@here", "not worth it")
        return may_end_orphan(box, on_it, [two.store], request, now=NOW, full=True).allowed

    assert not given_up(sign(two, keys, "ana ben").approval), "by a receipt, and not given up"
    two.approve(receipt=None, abandon=(abandonment(),))
    approval = sign(two, keys, "ana ben").approval
    assert approval is not None
    assert given_up(approval)
    assert not given_up(approval.model_copy(update={"until": NOW})), "left by a change that was interrupted"


def test_each_signature_of_a_chain_is_checked_once_in_a_command(
    keys: Keys, signers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again for each box and each copy: 20 links with two signatures took 2.6 s a box."""
    old = PolicyText(text=TWO + "max_price_per_hour: 7\n", signers=signers)
    chain = PolicyChain(links=(PolicyLink(policy=old), PolicyLink(policy=NONE, approval=ended(old, keys, "ana ben"))))
    ran, run = [], sshsig._run

    def counted(arguments: Sequence[str], data: bytes) -> Any:
        ran.append(arguments[1])
        return run(arguments, data)

    monkeypatch.setattr(sshsig, "_run", counted)
    places = [Found(where, PolicyCopy(chains=(chain,))) for where in ("the state", "the evidence", "a box")]
    for _ in range(2):
        assert [head.text for head in in_force(places, IDENTITY).heads] == [NONE.text]
    assert sorted(ran) == ["check-novalidate", "check-novalidate", "verify", "verify"]
