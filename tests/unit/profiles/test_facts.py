"""How old a fact is, what leans on it, and when an acceptance counts."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sweepstack.config.override import AcceptedFact
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.dated_facts import covers, facts_of, notes, problems, stale_under
from sweepstack.profiles.dates import age_in_months, source_problems
from sweepstack.profiles.load import FOLDER, load_profile, platforms
from sweepstack.profiles.model import Profile

NOW = date(2026, 11, 23)


def vendor(stamp: str = "2026-06", **changes: Any) -> Profile:
    """A rental whose vendor ends its boxes, with one stamp for what a destroy relies on."""
    profile = load_profile("runpod")
    stamps = {**profile.stamps, "verbs": stamp, "tiers": stamp}
    sources = {**profile.sources, **({} if stamp == "unverified" else {stamp[:7]: "a page"})}
    return profile.model_copy(update={"stamps": stamps, "sources": sources, **changes})


def accept(month: str = "2026-04", accepted: str = "2026-11-23") -> AcceptedFact:
    return AcceptedFact.model_validate({"month": month, "accepted": accepted})


@pytest.mark.parametrize(
    ("stamp", "age"),
    [("2026-11", 0), ("2026-06", 5), ("2026-05", 6), ("2026-04-30", 7), ("2025-11", 12), ("unverified", None)],
)
def test_age_is_counted_in_months_of_the_calendar(stamp: str, age: int | None) -> None:
    assert age_in_months(stamp, NOW) == age


@pytest.mark.parametrize(
    ("stamp", "stale"), [("2026-05", False), ("2026-05-01", False), ("2026-04", True), ("unverified", True)]
)
def test_older_than_six_months_or_never_checked_is_stale(stamp: str, stale: bool) -> None:
    names = [fact.name for fact in stale_under(vendor(stamp), "destroy", {}, NOW)]
    assert names == (["runpod.tiers", "runpod.verbs"] if stale else [])


def test_what_leans_on_a_fact() -> None:
    leans = {fact.name: set(fact.leans) for name in platforms() for fact in facts_of(load_profile(name), NOW)}
    assert leans["runpod.verbs"] == {"destroy", "stop", "volume"}, "with a volume, its stop wipes two tiers"
    assert leans["vastai.verbs"] == {"destroy", "volume"}, "its stop kills nothing"
    assert leans["autodl.danger_clocks"] == {"clock", "destroy"}, "a delete parks a box there, and the clock ends it"
    assert leans["runpod.spot_available"] == set()
    ours = {name for name, what in leans.items() if name.startswith(("local.", "generic-ssh.")) and what}
    assert ours == set(), "our own code ends a box there"


@pytest.mark.parametrize("name", ["autodl", "generic-ssh", "local", "runpod", "vastai"])
def test_no_shipped_fact_needs_an_acceptance_on_the_day_of_its_stamps(name: str) -> None:
    """What a destroy relies on has a month, so that a person knows what to look up again."""
    profile = load_profile(name)
    assert stale_under(profile, "destroy", {}, NOW) == ()
    assert stale_under(profile, "volume", {}, NOW) == ()


@pytest.mark.parametrize(
    ("month", "accepted", "counts"),
    [
        ("2026-04", "2026-11-23", True),
        ("2026-04", "2026-11-24", True),  # another time zone
        ("2026-04", "2026-05-01", True),
        ("2026-04", "2026-04-30", False),  # it has run out
        ("2026-04", "2026-12-23", False),  # that day has not come yet
        ("2026-03", "2026-11-23", False),  # of another state of the fact
        ("unverified", "2026-11-23", False),
    ],
)
def test_an_acceptance_is_for_one_month_of_one_fact_and_for_a_while(month: str, accepted: str, counts: bool) -> None:
    profile = vendor("2026-04")
    given = {"runpod.verbs": accept(month, accepted)}
    asked = [fact.key for fact in stale_under(profile, "destroy", given, NOW)]
    assert asked == (["tiers"] if counts else ["tiers", "verbs"]), "one fact never stands for another"
    fact = next(fact for fact in facts_of(profile, NOW) if fact.key == "verbs")
    assert covers(given["runpod.verbs"], fact, NOW) == counts


@pytest.mark.parametrize(
    ("stamp", "name", "acceptance", "said"),
    [
        ("2026-04", "runpod.verbs", accept(), ""),
        ("unverified", "runpod.verbs", accept("unverified"), ""),
        (
            "2026-04",
            "runpod.verb",
            accept(),
            "accept_facts.runpod.verb: the profile of runpod has no fact verb; did you",
        ),
        ("2026-10", "runpod.verbs", accept("2026-10"), "is of 2026-10, 1 month old, and needs no acceptance; take it"),
        ("2026-04", "runpod.verbs", accept("2026-06"), 'the profile says 2026-04; write month: "2026-04"'),
        ("2026-04", "runpod.verbs", accept(accepted="2027-02-01"), "accepted: 2027-02-01 is ahead of today"),
        ("2026-04", "runpod.spot_grace", accept("2026-11"), "no verb that can't be undone leans on spot_grace"),
        ("2026-10", "runpod.verbs", accept("2026-04"), ""),  # it was checked anew: spent, and no mistake
        ("2026-04", "vastai.verbs", accept(), ""),  # of an earlier box; its profile is not among these
    ],
)
def test_an_acceptance_that_nobody_needs_is_refused(stamp: str, name: str, acceptance: AcceptedFact, said: str) -> None:
    found = problems({name: acceptance}, {"runpod": vendor(stamp)}, NOW)
    assert len(found) == (1 if said else 0)
    assert said in "".join(found)


def test_a_preview_names_the_fact_its_age_its_source_and_the_option() -> None:
    assert notes(vendor("2026-05"), {}, NOW) == []
    said = notes(vendor("2026-04"), {}, NOW)
    assert [line.partition(" ")[0] for line in said] == ["runpod.tiers", "runpod.verbs"]
    assert "is of 2026-04, 7 months old (source: a page)" in said[1]
    assert "fact/runpod.verbs" in said[1]
    assert "was never checked (source: none is named)" in "".join(notes(vendor("unverified"), {}, NOW))
    assert notes(vendor("2026-04"), {"runpod.verbs": accept()}, NOW)[1].endswith("; accepted on 2026-11-23")
    late = notes(vendor("2026-04"), {"runpod.verbs": accept(accepted="2026-03-01")}, NOW)[1]
    assert "what was accepted on 2026-03-01 counts no more" in late
    spent = notes(vendor("2026-10"), {"runpod.verbs": accept("2026-04")}, NOW)
    assert [line.rpartition(": ")[2] for line in spent] == [
        "accept_facts.runpod.verbs is not needed any more; take it out"
    ]


def test_each_dated_fact_has_a_source() -> None:
    assert source_problems({"verbs": "2026-06-14", "tiers": "unverified"}, {"2026-06": "a page"}) == []
    assert source_problems({"verbs": "2026-06"}, {"verbs": "a page"}) == []
    assert source_problems({"verbs": "2026-06"}, {}) == [
        'sources lacks 2026-06; write 2026-06: "where the facts with that stamp come from"'
    ]
    assert "neither a fact" in "".join(source_problems({"verbs": "unverified"}, {"2025-01": "a page"}))
    assert "is empty" in "".join(source_problems({"verbs": "2026-06"}, {"2026-06": " "}))
    for profile in map(load_profile, platforms()):
        assert all(fact.source for fact in facts_of(profile, NOW) if fact.age is not None), profile.platform


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("proved_live: 2026-11\n", "", "proved_live  is missing"),
        ("proved_live: 2026-11", "proved_live: lately", "not ahead of today, or never"),
        ('  2026-11: "this', '  2026-10: "this', "sources  lacks 2026-11"),
    ],
)
def test_a_profile_without_them_is_refused_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (FOLDER / "local.md").read_text()
    assert old in text
    (tmp_path / "local.md").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match="line ") as caught:
        load_profile("local", tmp_path)
    assert said in str(caught.value)


def test_the_readme_says_what_was_proved_live() -> None:
    readme = (FOLDER.parent / "README.md").read_text()
    shown = dict(re.findall(r"^\| \[([\w-]+)\]\(profiles/[\w-]+\.md\) \| (\S+) \|$", readme, re.MULTILINE))
    assert shown == {name: load_profile(name).proved_live for name in platforms()}
