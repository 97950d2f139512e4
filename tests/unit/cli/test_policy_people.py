"""`approve` and `policy approve` under a policy that names people, with keys of ssh-keygen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sweepstack.cli.commands import policy
from sweepstack.cli.commands.approve.sign import SIGNER, SIGNING_KEY
from sweepstack.core.policy_text import PolicyText, written
from sweepstack.core.records import Approval
from sweepstack.teardown.policy_in_force import PROPOSED, change
from tests.unit.cli.support import IDENTITY, World

TWO = "approvers: [ana, ben]\nabandon_needs: 2\n"
MISSING = "the policy asks for the signature of 2 of ana, ben for giving it up ("


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ana", "ben", "eve"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=300)
    return folder


@pytest.fixture
def two(world: World, keys: Path) -> World:
    """A sweep of one box whose policy asks for two signatures to give it up."""
    signers = "".join(f"{name} {' '.join((keys / f'{name}.pub').read_text().split()[:2])}\n" for name in ("ana", "ben"))
    world.policy = written(PolicyText(text=TWO, signers=signers))
    world.add()
    return world


def by(keys: Path, name: str, how: str = "--sign") -> list[str]:
    return [f"{SIGNING_KEY}={keys / name}", f"{SIGNER}={name}", how]


def heads(world: World) -> list[str]:
    """What binds after the next `up`: there is no policy.yaml in the project."""
    found = change(Path(world.root), [world.policy], world.store, IDENTITY)
    return [policy.text for policy in found.after]


def test_approve_says_whose_signatures_are_missing_and_lets_them_come(two: World, keys: Path) -> None:
    given = two.run("give-up", "data/box-0", "--reason", "not worth it", *by(keys, "ana"))
    assert given.code == 0, given
    assert MISSING in " ".join(given.out.split())
    two.up()
    gate = two.run("status", "--json").json["gates"][0]
    assert gate["state"] == "locked"
    assert "1 of ben" in str(gate)
    (shown,) = [one for one in gate["approvals"] if one["where"] == "the state"]
    (ana,) = shown["signed_by"]
    assert (ana["name"], ana["listed"], ana["problem"]) == ("ana", True, "")
    whole = subprocess.run(["ssh-keygen", "-lf", str(keys / "ana.pub")], capture_output=True, text=True, check=True)
    assert len(ana["key"]) == 19
    assert whole.stdout.split()[1].startswith(ana["key"])
    assert "1 of ben" in shown["missing"][0]
    screen = " ".join(two.run("status").out.split())
    until = shown["until"][:16].replace("T", " ")
    assert f"signed box-0: by ana ({ana['key']}); until {until} UTC (in the state)" in screen
    line = screen.partition("signed box-0:")[2].partition("UNKNOWN")[0]
    assert "1 of ben" not in line, "the reason above says it"
    stands = two.run("cosign", *by(keys, "ben")[:2], types="box-0")
    assert stands.code == 0, stands
    two.up()
    gate = two.run("status", "--json").json["gates"][0]
    assert gate["state"] == "cleared"
    assert [[one["name"] for one in each["signed_by"]] for each in gate["approvals"]] == [["ana", "ben"]]
    assert gate["approvals"][0]["missing"] == []


def test_a_weaker_policy_is_signed_by_one_person_after_another(two: World, keys: Path) -> None:
    refused = two.run("policy", "approve", types="yes")
    assert refused.code == 1
    assert "the policy in force asks for signatures (the engine's state: policy" in refused.err
    assert two.store.record(PROPOSED, Approval) is None
    first = two.run("policy", "approve", *by(keys, "ana"), types="yes")
    assert first.code == 0, first
    assert "1 of ben" in first.out
    assert "sweepctl policy approve" in first.out
    assert heads(two) == [TWO]
    assert two.run("policy", "approve", *by(keys, "ana"), types="yes").code == 1, "signed already"
    assert two.run("policy", "approve", *by(keys, "eve"), types="yes").code == 0
    assert heads(two) == [TWO]
    second = two.run("policy", "approve", *by(keys, "ben"), PolicyText().digest, "--json")
    assert (second.code, second.json["signed"], second.json["missing"]) == (0, ["ana", "eve", "ben"], [])
    assert heads(two) == []


def test_a_damaged_signature_under_the_one_that_waits_does_not_keep_others_from_signing(two: World, keys: Path) -> None:
    assert two.run("policy", "approve", *by(keys, "ana"), types="yes").code == 0
    waiting = two.store.record(PROPOSED, Approval)
    assert waiting is not None
    edited = waiting.signatures[0].model_copy(update={"principal": "eve"})
    two.store.write_record(PROPOSED, waiting.model_copy(update={"signatures": (edited,)}))
    again = two.run(
        "policy",
        "approve",
        *by(keys, "ben"),
        types="yes",
    )
    assert again.code == 0, again
    assert "1 of ana" in again.out


def test_sign_is_for_approve_alone(two: World, keys: Path) -> None:
    assert two.run("policy", *by(keys, "ana")).code == 2


def test_the_second_person_sees_who_began_it_and_until_when(two: World, keys: Path) -> None:
    assert two.run("policy", "approve", *by(keys, "ana"), "--expires", "5h", types="yes").code == 0
    waiting = two.store.record(PROPOSED, Approval)
    assert waiting is not None
    seen = two.run("policy", "approve", *by(keys, "ben"), types="no").out
    assert f"begun      by {waiting.by} at {waiting.at:%Y-%m-%d %H:%M} UTC" in seen
    assert f"it holds until {waiting.expires:%Y-%m-%d %H:%M} UTC" in seen
    assert "signed     by ana" in seen


def test_a_signature_that_came_during_the_prompt_is_not_lost(
    two: World, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert two.run("policy", "approve", *by(keys, "ana"), types="yes").code == 0

    def slow(question: str) -> str:
        monkeypatch.setattr(policy, "answer", lambda question: "yes")
        assert two.run("policy", "approve", *by(keys, "eve"), types="yes").code == 0
        return "yes"

    monkeypatch.setattr(policy, "answer", slow)
    refused = two.run("policy", "approve", *by(keys, "ben"), types="yes")
    assert refused.code == 1, refused
    assert "was changed in the evidence while you looked at it" in " ".join(refused.err.split())
    waiting = two.store.record(PROPOSED, Approval)
    assert waiting is not None
    assert [one.principal for one in waiting.signatures] == ["ana", "eve"]
