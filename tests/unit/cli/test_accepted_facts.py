"""Old facts of a profile: `profile check --old` shows them, and an approval that relies on one needs its name."""

from __future__ import annotations

from datetime import date

import pytest

from sweepstack.config.override import AcceptedFact
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.operations.sweep import accepted_facts
from sweepstack.profiles import dated_facts, dates
from tests.unit.cli.support import STACK, World

LATER = date(2027, 6, 2)
"""Seven months after the stamps of the profile of `local`."""


@pytest.fixture
def old(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A verified sweep on a platform that a vendor could have changed, whose facts were checked seven months ago."""
    monkeypatch.setattr(dated_facts, "_OUR_OWN", ())
    monkeypatch.setattr(dates, "today", lambda: LATER)
    return world


def test_an_approval_names_the_facts_and_the_command_that_accepts_them(old: World) -> None:
    *_, receipt = old.verified()
    before = old.file.path.read_text()
    refused = old.run("approve", receipt, "--expires", "12h")
    assert refused.code == 1, refused
    assert old.file.path.read_text() == before
    told = " ".join(refused.err.split())
    assert "local.verbs is of 2026-11, 7 months old (source: this repository's own adapter and its tests)" in told
    command = f"sweepctl give-up --stack {STACK} {receipt} --expires 12h fact/local.tiers fact/local.verbs"
    assert command in told
    one = old.run("give-up", receipt, "fact/local.verbs")
    assert one.code == 1, "the other one is not accepted with it"
    assert "local.tiers is of" in one.err
    assert "local.verbs is of" not in one.err
    assert old.file.path.read_text() == before, "nothing is written where it is refused"
    given = old.run(*command.replace(f" --stack {STACK}", "").split()[1:], "--json")
    assert given.code == 0, given
    assert given.json["accepted_facts"] == ["local.tiers", "local.verbs"]
    assert {name: (one.month, one.accepted) for name, one in old.file.accepted_facts().items()} == {
        "local.tiers": ("2026-11", LATER),
        "local.verbs": ("2026-11", LATER),
    }
    assert old.file.approval() is not None
    assert before.strip() in old.file.path.read_text(), "every other byte stays"
    again = old.run("approve", receipt)
    assert again.code == 0, "the stack file accepts them"
    assert "old fact  local.verbs" in again.out


def test_only_the_platforms_in_use_count_and_not_what_all_their_stacks_accept(old: World) -> None:
    every = old.run("profile", "check", "--old", "--json", stack=None)
    used = old.run("profile", "check", "--old", "--used", "--json", stack=None)
    assert {fact["platform"] for fact in used.json["facts"]} == {"local"}
    assert len({fact["platform"] for fact in every.json["facts"]}) > 1
    assert used.code == 1
    for fact in used.json["facts"]:
        accepted = AcceptedFact.model_validate({"month": fact["month"], "accepted": LATER.isoformat()})
        old.file.write_accepted_fact(fact["fact"], accepted)
    closed = old.run("profile", "check", "--old", "--used", stack=None)
    assert closed.code == 0, closed
    assert old.run("profile", "check", "--old", stack=None).code == 1


def test_what_was_approved_is_not_locked_by_a_fact_that_grows_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, receipt = world.verified()
    assert world.run("approve", receipt).code == 0
    monkeypatch.setattr(dated_facts, "_OUR_OWN", ())
    monkeypatch.setattr(dates, "today", lambda: LATER)
    world.up()
    assert [gate["state"] for gate in world.run("status", "--json").json["gates"]] == ["cleared", "cleared"]
    assert "is of 2026-11" not in world.run("finish").err


def test_an_acceptance_runs_out(old: World, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, receipt = old.verified()
    words = ("fact/local.verbs", "fact/local.tiers")
    assert old.run("give-up", receipt, *words).code == 0
    monkeypatch.setattr(dates, "today", lambda: date(2028, 1, 2))
    refused = old.run("approve", receipt)
    assert refused.code == 1
    assert "what was accepted on 2027-06-02 counts no more" in " ".join(refused.err.split())
    assert old.run("give-up", receipt, *words).code == 0
    assert {one.accepted for one in old.file.accepted_facts().values()} == {date(2028, 1, 2)}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("local.verb", "there is no such fact here; did you mean"),
        ("runpod.verbs", "there is no such fact here"),
        ("local.kind", "the end of a box does not lean on it; leave it out"),
    ],
)
def test_a_name_that_is_not_needed_is_refused(old: World, name: str, said: str) -> None:
    *_, receipt = old.verified()
    refused = old.run("give-up", receipt, f"fact/{name}")
    assert refused.code == 1
    assert f"fact {name}: {said}" in " ".join(refused.err.split())
    assert old.file.approval() is None


def test_a_fresh_fact_is_not_accepted_by_habit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dated_facts, "_OUR_OWN", ())
    monkeypatch.setattr(dates, "today", lambda: date(2026, 11, 23))
    *_, receipt = world.verified()
    refused = world.run("give-up", receipt, "fact/local.verbs")
    assert "it is of 2026-11, 0 months old, and needs no acceptance" in " ".join(refused.err.split())
    assert world.run("approve", receipt).code == 0


def test_this_machine_needs_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dates, "today", lambda: LATER)
    *_, receipt = world.verified()
    assert world.run("approve", receipt).code == 0


def test_an_abandonment_needs_no_fact_and_no_profile(old: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old.verified()

    def gone(*_: object) -> None:
        raise ConfigError("there is no such profile")

    monkeypatch.setattr(accepted_facts, "load_profile", gone)
    both = ("data/box-0", "data/box-1", "--reason", "the disk burnt down")
    assert old.run("give-up", *both).code == 0
    needless = old.run("give-up", *both, "fact/local.verbs")
    assert "no fact of a profile is relied on here" in " ".join(needless.err.split())


@pytest.mark.parametrize("more", [(), ("--box", "box-0")])
def test_where_a_profile_does_not_hold_finish_copies_first_and_names_both_ways(
    world: World, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    world.full()

    def torn(*_: object) -> None:
        raise ConfigError("profiles/local.md does not hold:\n\n  line 91  section 3. Network  has no date")

    monkeypatch.setattr(accepted_facts, "load_profile", torn)
    refused = world.run("finish", *more)
    assert (refused.code, world.file.approval()) == (2, None), refused
    assert "line 91  section 3. Network" in refused.err
    assert sorted(world.store.copies.cells()) == ["lr0.1", "lr0.3", "lr0.9"], "what is sealed is here"
    again = " ".join(["next   sweepctl finish", "--stack", STACK, *more])
    assert again in refused.err, refused.err
    assert refused.err.index(again) < refused.err.index("data/box-0"), "the way that loses nothing stands first"


def test_finish_asks_before_it_pulls_and_remembers(old: World) -> None:
    old.full()
    refused = old.run("finish")
    assert refused.code == 1, refused
    assert f"sweepctl finish --stack {STACK} fact/local.tiers fact/local.verbs" in refused.err
    assert "sweepctl pull" not in refused.out, "nothing was pulled"
    old.run("finish", "fact/local.tiers", "fact/local.verbs")
    assert sorted(old.file.accepted_facts()) == ["local.tiers", "local.verbs"]
    assert old.run("finish", "cell/lr0.1").code == 2, "give-up approves that"
    assert "is of 2026-11" not in old.run("finish").err, "the next one needs no option"


def test_acceptances_that_do_not_read_are_refused_with_their_place(world: World) -> None:
    text = world.file.path.read_text()
    world.file.path.write_text(f"{text}    accept_facts: {{local.verbs: {{month: lately}}}}\n")
    with pytest.raises(ConfigError, match=r"accept_facts\.local\.verbs\.month: expected the month"):
        world.file.accepted_facts()


@pytest.mark.parametrize(("day", "code"), [(date(2026, 12, 1), 1), (LATER, 1)])
def test_profile_stale_lists_what_leans_on_old_facts(
    world: World, monkeypatch: pytest.MonkeyPatch, day: date, code: int
) -> None:
    monkeypatch.setattr(dates, "today", lambda: day)
    document = world.run("profile", "check", "--old", "--json", stack=None).json
    found = {fact["fact"]: fact for fact in document["facts"]}
    assert ("vastai.verbs" in found) == (day == LATER)
    if day == LATER:
        assert found["vastai.verbs"]["leans"] == ["destroy", "volume"]
        assert (found["vastai.verbs"]["month"], found["vastai.verbs"]["age_months"]) == ("2026-08", 10)
        assert found["vastai.verbs"]["source"]
    assert document["proved_live"]["local"] == "2026-11"
    shown = world.run("profile", "check", "--old", stack=None)
    assert shown.code == code
    assert "LAST PROVED LIVE" in shown.out
    assert (
        world.run("profile", "check", "--old", "--months", "600", "--json", stack=None).json["stale"]
        <= document["stale"]
    )
