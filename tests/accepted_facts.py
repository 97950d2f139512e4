"""What a stack file has to accept today, so that the suite passes in every month, whatever the profiles' stamps are."""

from __future__ import annotations

from collections.abc import Iterable

from sweepstack.profiles import dates
from sweepstack.profiles.dated_facts import facts_of
from sweepstack.profiles.load import load_profile, platforms


def accepted_today(candidates: Iterable[str]) -> dict[str, dict[str, str]]:
    """`accept_facts` for every fact of these platforms that an approval would be refused for today; else empty."""
    day = dates.today()
    return {
        fact.name: {"month": fact.stamp, "accepted": day.isoformat()}
        for name in candidates
        if name in platforms()
        for fact in facts_of(load_profile(name), day)
        if fact.stale() and set(fact.leans) - {"clock"}
    }
