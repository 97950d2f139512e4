"""Who may approve and who may give up, by signatures that verify; two people are two names with two keys."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from sweepstack.config.policy import read
from sweepstack.core.policy_chain import PolicyChain, PolicyCopy, PolicyLink, PolicyText
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.teardown.orphan_check import EndRequest, OnIt, OrphanBox, may_end_orphan
from sweepstack.teardown.policy_copies import Found, keep
from sweepstack.teardown.policy_in_force import in_force
from sweepstack.teardown.policy_order import weaker
from tests.unit.evidence.world import IDENTITY
from tests.unit.teardown.support import FIRST, NOW, Situation, abandonment, waiver
from tests.unit.teardown.test_policy import change

SIGNERS = "".join(f"{name} ssh-ed25519 AAAA{name}\n" for name in ("ana", "ben", "eve"))
TWO = "approvers: [ana, ben, eve]\nabandoners: [ana, ben]\nabandon_needs: 2\n"


class Signers(NamedTuple):
    valid: dict[str, str]
    problems: tuple[str, ...] = ()


def verified(approval: Approval, sweep: SweepName, allowed_signers: str, **_: object) -> Signers:
    """`by` stands for the signatures: `ana/ana ben/ana`: two names, one key."""
    assert sweep.identity == IDENTITY
    names = dict(word.split("/") for word in approval.by.split() if "/" in word)
    listed = {name: key for name, key in names.items() if f"{name} ssh" in allowed_signers}
    return Signers(listed, tuple(f"{name} is not listed" for name in names if name not in listed))


@pytest.fixture(autouse=True)
def signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a signature is checked is tested with the real ssh-keygen, in test_signatures.py."""
    monkeypatch.setattr("sweepstack.teardown.signatures.verified_signers", verified)


def copy_of(text: str, signers: str = SIGNERS) -> PolicyCopy:
    return PolicyCopy(chains=(PolicyChain(links=(PolicyLink(policy=PolicyText(text=text, signers=signers)),)),))


def signed(situation: Situation, by: str) -> Situation:
    situation.edit_approval(by=by)
    return situation


@pytest.fixture
def two(situation: Situation) -> Situation:
    """A sweep whose policy asks for one signature of an approval, and for two of an abandonment."""
    situation.state(policy=copy_of(TWO).written())
    return situation


def test_an_approval_needs_one_signature_of_those_who_may_approve(two: Situation) -> None:
    verdict = two.ask()
    assert not verdict.allowed
    assert verdict.reasons[0] == (
        "the policy asks for the signature of one of ana, ben, eve for the approval (policy.yaml line 1)"
    )
    assert not signed(two, "mallory/mallory").ask().allowed
    assert signed(two, "eve/eve").ask().way == "cleared"


@pytest.mark.parametrize(
    ("by", "allowed"),
    [
        ("ana/ana", False),
        ("ana/ana ben/ben", True),
        ("ana/ana ben/ana", False),  # one key under two names
        ("ana/ana ana/other", False),  # one name with two keys
        ("ana/ana eve/eve", False),  # may approve, and not give up
        ("eve/eve ana/ana ben/ben", True),
        ("", False),
    ],
)
def test_an_abandonment_needs_two_different_people(two: Situation, by: str, allowed: bool) -> None:
    two.approve(receipt=None, abandon=(abandonment(),))
    verdict = signed(two, by).ask()
    assert (verdict.allowed, verdict.way) == (allowed, "abandoned" if allowed else None), verdict.reasons
    assert allowed or "abandoners" not in verdict.reasons[0]
    assert allowed or "policy.yaml line 2" in verdict.reasons[0]


def test_a_signer_who_was_taken_out_of_the_list_signs_no_more(two: Situation) -> None:
    """Taking a line out is stricter, so it counts at once; putting it back has to be approved."""
    signed(two, "eve/eve")
    assert two.ask().allowed
    fewer = TWO.replace("[ana, ben, eve]", "[ana, ben]")
    without = SIGNERS.replace("eve ssh-ed25519 AAAAeve\n", "")
    old, new = (read(PolicyText(text=text, signers=keys)) for text, keys in ((TWO, SIGNERS), (fewer, without)))
    assert weaker(old, new) == []
    assert weaker(new, old)
    links = tuple(PolicyLink(policy=policy.source) for policy in (old, new))
    two.state(policy=PolicyCopy(chains=(PolicyChain(links=links),)).written())
    assert not two.ask().allowed
    back = (*links, PolicyLink(policy=old.source))
    two.state(policy=PolicyCopy(chains=(PolicyChain(links=back),)).written())
    assert not two.ask().allowed


def test_the_person_who_gives_it_now_signs_it_afterwards(two: Situation) -> None:
    from sweepstack.teardown.box_context import BoxContext
    from sweepstack.teardown.check import may_end

    context = BoxContext(two.facts, "local")
    assert may_end(context, two.approval, two.seen(), now=NOW, full=False, given_now=True).allowed
    two.state(policy=copy_of(TWO + "waivers: refused\n").written())
    two.approve(waive=(waiver(FIRST),))
    assert not may_end(context.about(two.facts), two.approval, two.seen(), now=NOW, full=False, given_now=True).allowed


def test_a_weaker_policy_needs_the_people_who_may_give_up() -> None:
    old, new = PolicyText(text=TWO, signers=SIGNERS), PolicyText()

    def heads(by: str) -> list[str]:
        given = change("", "").model_copy(update={"by": by})
        actions = tuple(
            action.model_copy(update={"native_id": policy.digest})
            for action, policy in zip(given.actions, (old, new), strict=True)
        )
        last = PolicyLink(policy=new, approval=given.model_copy(update={"actions": actions}))
        chain = PolicyChain(links=(PolicyLink(policy=old), last))
        return [head.text for head in in_force([Found("x", PolicyCopy(chains=(chain,)))], IDENTITY).heads]

    assert heads("ana/ana ben/ben") == [""]
    assert heads("ana/ana") == [TWO]
    assert heads("ana/ana ben/ana") == [TWO]
    assert heads("eve/eve ana/ana") == [TWO]


def test_a_box_that_no_state_has_ends_only_by_an_approval_that_they_signed(two: Situation) -> None:
    """`sweepctl audit --end`: the evidence has the policy, and the approval that was put on record there."""
    keep(two.store, copy_of(TWO))
    two.approve(receipt=None, abandon=(abandonment(),))
    facts = two.facts
    box = OrphanBox("local", facts.native_id, facts.account, IDENTITY, facts.name, 1, ours=True)
    on_it = OnIt(two.seen(), None, frozenset({FIRST}))

    def end(reason: str = "") -> tuple[bool, str]:
        verdict = may_end_orphan(box, on_it, [two.store], EndRequest("me@here", reason), now=NOW, full=True)
        return verdict.allowed, "; ".join(verdict.reasons)

    assert end("not worth it")[0] is False
    assert "bring it back into a state first" in end("not worth it")[1]
    assert "the signature of one of ana, ben, eve" in end()[1]
    assert two.approval is not None
    two.store.write_clearance(facts.native_id, two.approval.model_copy(update={"by": "ana/ana ben/ana"}))
    assert end("not worth it")[0] is False
    two.store.write_clearance(facts.native_id, two.approval.model_copy(update={"by": "ana/ana ben/ben"}))
    assert end("not worth it")[0] is True
    on_it = replace(on_it, policy=Found("the box", problem="damaged"))
    two.store.write_clearance(facts.native_id, None)
    assert end("not worth it")[0] is False, "the evidence still has it"
