"""Who may approve and who may give up, by signatures that ssh-keygen made; two people are two names with two keys."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.config.policy import parse_policy
from sweepstack.core.policy_text import NONE, PolicyText, written
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.extensions.signing import sshsig
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.check import may_end
from sweepstack.teardown.orphan_check import EndRequest, OnIt, OrphanBox, OrphanEnding
from sweepstack.teardown.policy_in_force import FROM, TO, in_state, missing_consent
from sweepstack.teardown.policy_strictness import weaker
from sweepstack.teardown.revocation import write_revocation
from sweepstack.teardown.stop_check import STOP, AtRisk, StopEnding, stop_facts
from tests.extensions.signing.test_signatures import Person, sweep_name
from tests.unit.evidence.world import IDENTITY
from tests.unit.teardown.support import FIRST, NOW, Situation, abandonment, action, approval, waiver

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


def place(signers: str) -> str:
    """How messages call TWO in the engine's state."""
    return f"the engine's state: policy {PolicyText(text=TWO, signers=signers).short},"


@pytest.fixture
def signers(keys: Keys) -> str:
    return lines(keys, "ana", "ben", "eve")


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
    situation.state(policies=(written(PolicyText(text=TWO, signers=signers)),))
    return situation


def test_an_approval_needs_one_signature_of_those_who_may_approve(two: Situation, keys: Keys, signers: str) -> None:
    verdict = two.ask()
    assert not verdict.allowed
    assert verdict.reasons[0] == (
        f"the policy asks for the signature of one of ana, ben, eve for the approval ({place(signers)} line 1)"
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
        assert f"the signature of {missing} for giving it up (" in verdict.reasons[0]


@pytest.mark.parametrize("by", ["ana ben/ana", "ana ana/eve"])
def test_one_key_and_one_name_are_one_person(situation: Situation, keys: Keys, signers: str, by: str) -> None:
    """Even where the list lets that key sign for both names, and that name by both keys."""
    shared = signers + keys["ana"].line.replace("ana ", "ben ", 1) + keys["eve"].line.replace("eve ", "ana ", 1)
    people = "abandoners: [ana, ben, eve, mallory]\nabandon_needs: 2\n"
    policy = PolicyText(text=people, signers=shared + keys["mallory"].line)
    situation.state(policies=(written(policy),))
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
    assert weaker(parse_policy(old), parse_policy(new)) == []
    assert weaker(parse_policy(new), parse_policy(old))
    two.state(policies=(written(new),))
    verdict = two.ask()
    assert not verdict.allowed
    assert "the signature of eve under the approval does not count" in verdict.reasons[0]


def test_a_list_that_was_replaced_is_weaker(keys: Keys, signers: str) -> None:
    """ana is taken out and mallory put in her place."""
    mine = lines(keys, "ben", "eve") + keys["mallory"].line.replace("mallory ", "ana ", 1)
    old, new = PolicyText(text=TWO, signers=signers), PolicyText(text=TWO, signers=mine)
    assert missing_consent(in_state([written(old)]), new, None, IDENTITY)
    assert weaker(parse_policy(old), parse_policy(new))


def test_the_person_who_gives_it_now_signs_it_afterwards(two: Situation, keys: Keys, signers: str) -> None:
    context = BoxContext(two.facts, "local")

    def now(context: BoxContext) -> tuple[bool, tuple[str, ...]]:
        verdict = may_end(BoxEnding(context, two.approval, two.seen(), given="now"), now=NOW, full=False)
        return verdict.allowed, verdict.unsigned

    asked = f"the policy asks for the signature of one of ana, ben, eve for the approval ({place(signers)} line 1)"
    assert now(context) == (True, (asked,))
    sign(two, keys, "ana")
    assert now(context) == (True, ())
    strict = PolicyText(text=TWO + "waivers: refused\n", signers=signers)
    two.state(policies=(written(strict),))
    two.approve(waive=(waiver(FIRST),))
    assert not now(context.about(two.facts))[0]


def test_a_stop_needs_the_same_people(two: Situation, keys: Keys) -> None:
    two.approve(actions=(action(verb=STOP),), receipt=None, abandon=(abandonment().model_copy(update={"verb": STOP}),))
    box = BoxContext(stop_facts(two.facts, ("scratch", "data"), ("durable",)), "local")
    risk = AtRisk(home=True)
    given = may_end(StopEnding(box, two.approval, two.seen(), risk, given="now"), now=NOW, full=False)
    assert (given.allowed, len(given.unsigned)) == (True, 1)
    assert not may_end(StopEnding(box, two.approval, two.seen(), risk), now=NOW, full=False).allowed
    sign(two, keys, "ana ben")
    assert may_end(StopEnding(box, two.approval, two.seen(), risk), now=NOW, full=False).way == "abandoned"


def ended(old: PolicyText, keys: Keys, by: str, at: datetime | None = None) -> Approval:
    """The approval that no policy follows `old`, signed."""
    at = at or datetime.now(UTC).replace(microsecond=0)
    actions = (action(IDENTITY, old.digest, FROM), action(IDENTITY, NONE.digest, TO))
    given = approval(None, actions=actions, at=at, expires=at + timedelta(hours=24))
    return with_signatures(given, keys, by, SweepName(project="p", stack="before-it-was-renamed", identity=IDENTITY))


@pytest.mark.parametrize(
    ("by", "counts"), [("ana ben", True), ("ana", False), ("ana ben/ana", False), ("eve ana", False), ("", False)]
)
def test_a_weaker_policy_needs_the_people_who_may_give_up(keys: Keys, signers: str, by: str, counts: bool) -> None:
    old = PolicyText(text=TWO, signers=signers)
    missing = missing_consent(in_state([written(old)]), NONE, ended(old, keys, by), IDENTITY)
    assert (missing == []) is counts, missing


def test_a_key_that_has_expired_lets_nothing_follow(keys: Keys) -> None:
    who, *key = keys["ana"].line.split()
    held = f'{who} valid-before="{LONG_AGO + timedelta(days=1):%Y%m%d%H%M}Z" {" ".join(key)}\n'
    old = PolicyText(text="approvers: ana\n", signers=held)
    assert missing_consent(in_state([written(old)]), NONE, ended(old, keys, "ana", at=LONG_AGO), IDENTITY)


def beside(folder: Path, monkeypatch: pytest.MonkeyPatch, signers: str) -> None:
    """The working folder is a project with the policy."""
    for name, text in (("Pulumi.yaml", "name: p\n"), ("policy.yaml", TWO), ("allowed_signers", signers)):
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)


def test_a_box_that_no_state_has_ends_only_by_an_approval_that_they_signed(
    two: Situation, keys: Keys, signers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sweepctl audit --end`: the project has the policy, and the evidence the approval that was put on record."""
    beside(tmp_path, monkeypatch, signers)
    two.approve(receipt=None, abandon=(abandonment(),))
    facts = two.facts
    box = OrphanBox("local", facts.native_id, facts.account, IDENTITY, facts.name, 1, ours=True)
    on_it = OnIt(two.seen(), None, frozenset({FIRST}))

    def end(reason: str = "") -> tuple[bool, str]:
        verdict = may_end(OrphanEnding(box, on_it, [two.store], EndRequest("me@here", reason)), now=NOW, full=True)
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
    two.store.write_clearance(facts.native_id, None)
    assert end("not worth it")[0] is False
    for name in ("policy.yaml", "allowed_signers"):
        (tmp_path / name).unlink()
    birth = two.store.birth(facts.name, 1)
    assert birth is not None
    two.store.write_birth(birth.model_copy(update={"policy": PolicyText(text=TWO, signers=signers).digest}))
    assert "no text of it is here" in end("not worth it")[1], "a checkout without the file"
    record("ana ben")
    assert end("not worth it")[0] is False, "who has to sign is in the text"


def test_who_signed_a_verified_end_did_not_give_up_a_box_that_no_state_has(
    two: Situation, keys: Keys, signers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside(tmp_path, monkeypatch, signers)
    facts = two.facts
    box = OrphanBox("local", facts.native_id, facts.account, IDENTITY, facts.name, 1, ours=True)
    on_it = OnIt(two.seen(), None, frozenset({FIRST}))

    def given_up(approval: Approval | None) -> bool:
        two.store.write_clearance(facts.native_id, approval)
        request = EndRequest("me@here", "not worth it")
        return may_end(OrphanEnding(box, on_it, [two.store], request), now=NOW, full=True).allowed

    assert not given_up(sign(two, keys, "ana ben").approval), "by a receipt, and not given up"
    two.approve(receipt=None, abandon=(abandonment(),))
    approval = sign(two, keys, "ana ben").approval
    assert approval is not None
    assert given_up(approval)
    assert not given_up(approval.model_copy(update={"until": NOW})), "left by a change that was interrupted"
    assert given_up(approval)
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{TWO}max_expiry: 1s\n")
    assert not given_up(approval), "it holds longer than the policy allows, as for a box of a state"
    policy.write_text(TWO)
    write_revocation(two.store, [], at=approval.at, by="ana")
    assert not given_up(approval), "a revoked one lends its signatures to nothing"


def test_each_signature_is_checked_once_in_a_command(
    two: Situation, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again for each box."""
    two.approve(receipt=None, abandon=(abandonment(),), by="signed anew")
    sign(two, keys, "ana ben")
    ran, run = [], sshsig._run

    def counted(arguments: Sequence[str], data: bytes) -> Any:
        ran.append(arguments[1])
        return run(arguments, data)

    monkeypatch.setattr(sshsig, "_run", counted)
    for _ in range(2):
        assert two.ask().way == "abandoned"
    assert sorted(ran) == ["check-novalidate", "check-novalidate", "verify", "verify"]
