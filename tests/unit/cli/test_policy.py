"""`sweepctl policy`: what binds, how the file stands to it, and the approval of a weaker one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sweepstack.core.policy_text import NONE, PolicyText, written
from sweepstack.core.records import Approval
from sweepstack.teardown import policy_in_force
from sweepstack.teardown.policy_in_force import PROPOSED, change
from tests.unit.cli.support import IDENTITY, World

STRICT, WEAK = "waivers: refused\n", "max_expiry: 24h\n"


def accepted(world: World, text: str) -> None:
    """An `up` brought this policy into force."""
    world.policy = written(PolicyText(text=text))


def file(world: World, text: str | None) -> str:
    """The project's file, and its digest."""
    path = Path(world.root) / "policy.yaml"
    path.unlink(missing_ok=True) if text is None else path.write_text(text)
    return PolicyText(text=text or "").digest


@pytest.mark.parametrize(
    ("text", "code", "state"),
    [
        (STRICT, 0, "the same"),
        (STRICT + WEAK, 0, "stricter in max_expiry: it comes into force with the next `pulumi up`"),
        (WEAK, 1, "weaker, and not approved: it does not count"),
        (None, 1, "missing, and not approved: it does not count"),
        ("max_boxes: 3\n", 1, "it can't be read, so nothing is rented, and nothing ends"),
    ],
)
def test_how_the_file_stands_to_what_is_in_force(world: World, text: str | None, code: int, state: str) -> None:
    world.add()
    accepted(world, STRICT)
    file(world, text)
    shown = world.run("policy", "--json")
    assert (shown.code, shown.json["file"]["is"]) == (code, state)
    held = PolicyText(text=STRICT)
    where = "policy.yaml" if text == STRICT else "the engine's state"
    at = "policy.yaml line 1" if text == STRICT else f"the engine's state: policy {held.short}, line 1"
    assert shown.json["in_force"] == [{"digest": held.digest, "where": where, "rules": {"waivers": "refused"}}]
    assert {tuple(copy["digests"]) for copy in shown.json["copies"]} == {(held.digest,)}
    assert "the engine's state: box box-0" in [copy["where"] for copy in shown.json["copies"]]
    words = world.run("policy")
    assert f"           waivers: refused    ({at})\n" in words.out
    assert words.code == code
    assert "\nnext   " in words.out


def test_a_weaker_policy_is_approved_at_a_terminal_for_one_change(world: World) -> None:
    world.add()
    accepted(world, STRICT)
    file(world, WEAK)
    assert world.run("policy", "approve", types="no").code == 1
    assert world.store.record(PROPOSED, Approval) is None
    done = world.run("policy", "approve", types="yes")
    assert done.code == 0, done
    assert "weaker     waivers: refused is left out" in done.out
    found = change(Path(world.root), [world.policy], world.store, IDENTITY)
    assert not found.refused
    assert [policy.text for policy in found.after] == [WEAK]
    assert world.run("policy", "--json").json["file"]["is"].startswith("weaker, and approved: it comes into force")
    file(world, "")
    assert world.run("policy").code == 1, "another change was not approved"


def test_a_consent_that_waits_is_taken_back_with_all_others(world: World) -> None:
    world.add()
    accepted(world, STRICT)
    digest = file(world, WEAK)

    def counts() -> bool:
        return not change(Path(world.root), [world.policy], world.store, IDENTITY).refused

    assert world.run("policy", "approve", digest).code == 0
    assert counts()
    assert world.run("revoke").code == 0
    assert not counts()
    list_of_them = world.evidence / "records" / "revoked.json"
    list_of_them.unlink()
    assert not counts(), "the evidence was put back to an earlier day, and this computer knows"
    assert world.run("policy").code == 1
    assert world.run("policy", "approve", digest).code == 0
    assert counts(), "given since then, in the same second, too"
    list_of_them.write_bytes(b"{")
    assert not counts()
    refused = world.run("policy", "approve", digest, "--json")
    assert (refused.code, "revoke --stack" in refused.json["next"][0]) == (1, True)


def test_without_a_terminal_it_takes_the_whole_digest(world: World) -> None:
    world.add()
    accepted(world, STRICT)
    digest = file(world, None)
    assert digest == NONE.digest
    refused = world.run("policy", "approve")
    assert refused.code == 1
    assert f"policy approve --stack sweep-t {digest}" in refused.err
    assert world.run("policy", "approve", PolicyText(text=WEAK).digest).code == 1
    assert world.store.record(PROPOSED, Approval) is None
    done = world.run("policy", "approve", digest, "--json")
    assert (done.code, done.json["approved"]) == (0, digest)


def test_what_is_as_strict_needs_no_approval(world: World) -> None:
    world.add()
    accepted(world, STRICT)
    file(world, STRICT + WEAK)
    done = world.run("policy", "approve", "--json")
    assert (done.code, done.json["approved"]) == (0, None)
    assert world.store.record(PROPOSED, Approval) is None


def test_an_approval_holds_as_long_as_the_policy_allows_where_no_time_is_named(world: World) -> None:
    """So `finish`, which `status` names, goes through as it stands there."""
    world.add()
    accepted(world, "max_expiry: 1h\n")
    given = world.run("give-up", "data/box-0", "--reason", "not worth it", "--json")
    assert given.code == 0, given
    approval = Approval.model_validate(given.json["approval"])
    assert approval.expires - approval.at == timedelta(hours=1)


def test_an_entry_that_does_not_read_is_named_and_a_person_may_let_the_file_follow(world: World) -> None:
    world.add()
    world.policy = "{"
    file(world, WEAK)
    shown = world.run("policy", "--json")
    assert shown.code == 1
    assert "can't be read" in shown.json["problem"]
    assert "sweepctl policy approve" in shown.json["next"][0]
    given = world.run("policy", "approve", types="yes")
    assert given.code == 0, given
    assert "pulumi up" in given.out
    assert [policy.text for policy in change(Path(world.root), ["{"], world.store, IDENTITY).after] == [WEAK]


def test_a_policy_of_another_name_is_to_be_renamed(world: World) -> None:
    world.add()
    (Path(world.root) / "Policy.yaml").write_text(STRICT)
    shown = world.run("policy", "--json")
    assert shown.json["next"] == ["mv Policy.yaml policy.yaml && sweepctl policy --stack sweep-t"]
    assert "Next: mv Policy.yaml policy.yaml, or take it out" in shown.out
    (binding,) = [one for one in policy_in_force.binding([], {}, Path(world.root)) if one.problem]
    assert binding.problem.count("Next: ") == 1
    assert "mend policy.yaml" not in binding.problem
