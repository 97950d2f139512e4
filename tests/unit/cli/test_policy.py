"""`sweepctl policy`: what binds, how the file stands to it, and the approval of a weaker one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sweepstack.core.policy_chain import NONE, PolicyChain, PolicyCopy, PolicyLink, PolicyText
from sweepstack.core.records import Approval
from sweepstack.teardown.policy_change import change
from sweepstack.teardown.policy_copies import PROPOSED, SetAside, in_evidence, keep, record_set_aside
from tests.unit.cli.support import IDENTITY, World

STRICT, WEAK = "waivers: refused\n", "max_expiry: 24h\n"


def accepted(world: World, text: str) -> None:
    """An `up` brought this policy into force."""
    keep(world.store, PolicyCopy(chains=(PolicyChain(links=(PolicyLink(policy=PolicyText(text=text)),)),)))


def file(world: World, text: str | None) -> str:
    """The project's file, and its digest."""
    path = Path(world.root) / "policy.yaml"
    path.unlink(missing_ok=True) if text is None else path.write_text(text)
    return PolicyText(text=text or "").digest


def test_a_sweep_without_a_policy_has_none(world: World) -> None:
    world.add()
    shown = world.run("policy", "--json")
    assert (shown.code, shown.json["in_force"], shown.json["file"]["is"]) == (0, [], "there is none")
    assert "in force   none" in world.run("policy").out


@pytest.mark.parametrize(
    ("text", "code", "state"),
    [
        (STRICT, 0, "the same"),
        (STRICT + WEAK, 0, "stricter in max_expiry: it comes into force with the next `pulumi up`"),
        (WEAK, 1, "weaker, and not approved: it does not count"),
        (None, 1, "missing, and not approved: it does not count"),
        ("max_boxes: 3\n", 1, "it can't be read, so nothing is rented"),
    ],
)
def test_how_the_file_stands_to_what_is_in_force(world: World, text: str | None, code: int, state: str) -> None:
    world.add()
    accepted(world, STRICT)
    file(world, text)
    shown = world.run("policy", "--json")
    assert (shown.code, shown.json["file"]["is"]) == (code, state)
    assert shown.json["in_force"] == [{"digest": PolicyText(text=STRICT).digest, "rules": {"waivers": "refused"}}]
    assert [copy["digests"] for copy in shown.json["copies"]] == [[], [PolicyText(text=STRICT).digest], []]
    words = world.run("policy")
    assert "           waivers: refused\n" in words.out
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
    found = change(Path(world.root), [in_evidence(world.store)], world.store, IDENTITY)
    assert found.lost == ()
    assert [head.text for head in found.after.heads] == [WEAK]
    assert world.run("policy", "--json").json["file"]["is"].startswith("weaker, and approved: it comes into force")
    file(world, "")
    assert world.run("policy").code == 1, "another change was not approved"


def test_without_a_terminal_it_takes_the_whole_digest(world: World) -> None:
    world.add()
    accepted(world, STRICT)
    digest = file(world, None)
    assert digest == NONE.digest
    refused = world.run("policy", "approve")
    assert refused.code == 1
    assert f"--policy {digest}" in refused.err
    assert world.run("policy", "approve", "--policy", PolicyText(text=WEAK).digest).code == 1
    assert world.store.record(PROPOSED, Approval) is None
    done = world.run("policy", "approve", "--policy", digest, "--json")
    assert (done.code, done.json["approved"]) == (0, digest)


def test_what_is_as_strict_needs_no_approval(world: World) -> None:
    world.add()
    accepted(world, STRICT)
    file(world, STRICT + WEAK)
    done = world.run("policy", "approve", "--json")
    assert (done.code, done.json["approved"]) == (0, None)
    assert world.store.record(PROPOSED, Approval) is None


def test_approve_is_refused_for_what_the_policy_refuses(world: World) -> None:
    world.add()
    accepted(world, "max_expiry: 1h\n")
    given_up = ("approve", "--abandon", "box-0", "--reason", "not worth it")
    refused = world.run(*given_up, "--expires", "2h")
    assert refused.code == 1
    assert "--expires 1h" in refused.err
    assert world.run(*given_up, "--expires", "1h").code == 0


def test_an_approval_holds_as_long_as_the_policy_allows_where_no_time_is_named(world: World) -> None:
    """So `finish`, which `status` names, goes through as it stands there."""
    world.add()
    accepted(world, "max_expiry: 1h\n")
    given = world.run("approve", "--abandon", "box-0", "--reason", "not worth it", "--json")
    assert given.code == 0, given
    approval = Approval.model_validate(given.json["approval"])
    assert approval.expires - approval.at == timedelta(hours=1)


def test_status_shows_a_policy_that_was_set_aside(world: World) -> None:
    box = world.add()
    words = "the policy's copy in the engine's state can't be read"
    found = SetAside(box="box-0", native_id=box.native_id, by="ada", at=box.birth().begun_at, why=words)
    record_set_aside(world.store, found)
    assert words in "\n".join(world.run("status", "--json").json["notes"])
