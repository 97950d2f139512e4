"""The suite passes in a later month, too: what its stacks accept is all that an approval asks for on that day."""

from __future__ import annotations

from datetime import date

import pytest

from sweepstack.config.override import AcceptedFact
from sweepstack.profiles import dated_facts, dates
from sweepstack.profiles.load import load_profile, platforms
from tests.accepted_facts import accepted_today

DAYS = (date(2027, 2, 2), date(2027, 6, 2), date(2029, 1, 1))
"""After the facts of June 2026 have grown old, and those of November, and all of them for good."""


@pytest.mark.parametrize("day", DAYS, ids=str)
@pytest.mark.parametrize("name", platforms())
def test_what_the_suite_accepts_is_what_an_approval_asks_for(
    name: str, day: date, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dates, "today", lambda: day)
    profile = load_profile(name)
    accepted = {fact: AcceptedFact.model_validate(given) for fact, given in accepted_today([name]).items()}
    for verb in ("destroy", "stop", "volume"):
        assert dated_facts.stale_under(profile, verb, accepted, day) == ()  # type: ignore[arg-type]
    assert dated_facts.problems(accepted, {name: profile}, day) == [], (
        "and no stack file is refused for naming too many"
    )
