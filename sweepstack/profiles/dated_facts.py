"""The dated facts of a profile: how old each is, what leans on it, and who accepted it.

A fact is stale if it is older than six months. One that is stale, or was never checked, counts under a verb that can't
be undone only if the stack config accepts it by its name (`accept_facts`). `sweepctl approve` asks for that; a box that
was approved is not locked again because a fact has grown old since.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Literal

from sweepstack.config.override import AcceptedFact
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.profiles.dates import MONTHS, UNVERIFIED, age_in_months, source_of
from sweepstack.profiles.model import Profile

Leaning = Literal["destroy", "stop", "volume", "clock"]
"""What leans on a fact: a box's end, a stop that kills something, a volume's end, a deadline of the platform."""
_OUR_OWN = ("ssh", "workstation")
"""Kinds where our own code ends a box, and no vendor can change what that does."""
_ONE_DAY = timedelta(days=1)
"""So far apart may the days of two time zones be."""


@dataclass(frozen=True)
class DatedFact:
    """One fact. `stamp`: its month, its day, or unverified; `leans`: what leans on it; `age`: in months, None for
    unverified."""

    platform: str
    key: str
    stamp: str
    source: str
    proved_live: str
    leans: tuple[Leaning, ...]
    age: int | None

    @property
    def name(self) -> str:
        """As a person names it: `runpod.verbs`."""
        return f"{self.platform}.{self.key}"

    @property
    def words(self) -> str:
        """The fact, its age and its source, in one line."""
        if self.age is None:
            return f"{self.name} was never checked (source: {self.source or 'none is named'})"
        return f"{self.name} is of {self.stamp}, {months_words(self.age)} old (source: {self.source})"

    def stale(self, months: int = MONTHS) -> bool:
        """Whether it is older than so many months, or was never checked."""
        return self.age is None or self.age > months


def months_words(age: int | None) -> str:
    """`1 month`, `7 months`."""
    return f"{age} month{'' if age == 1 else 's'}"


def facts_of(profile: Profile, day: date) -> tuple[DatedFact, ...]:
    """Every fact that has a stamp, in the order of the profile."""
    leans = _leaning(profile)
    return tuple(
        DatedFact(
            platform=profile.platform,
            key=key,
            stamp=stamp,
            source=source_of(key, profile.stamps, profile.sources),
            proved_live=profile.proved_live,
            leans=leans.get(key, ()),
            age=age_in_months(stamp, day),
        )
        for key, stamp in profile.stamps.items()
    )


def stale_under(
    profile: Profile,
    verb: Leaning,
    accepted: Mapping[str, AcceptedFact],
    day: date,
) -> tuple[DatedFact, ...]:
    """The facts that `verb` leans on, that are stale or unverified, and that no acceptance covers."""
    return tuple(
        fact
        for fact in facts_of(profile, day)
        if verb in fact.leans and fact.stale() and not covers(accepted.get(fact.name), fact, day)
    )


def covers(acceptance: AcceptedFact | None, fact: DatedFact, day: date) -> bool:
    """Whether the acceptance is of this fact as the profile has it now, and not too old itself."""
    if acceptance is None or acceptance.month != fact.stamp or acceptance.accepted > day + _ONE_DAY:
        return False
    age = age_in_months(acceptance.accepted.isoformat(), day)
    return age is not None and age <= MONTHS


def problems(accepted: Mapping[str, AcceptedFact], profiles: Mapping[str, Profile], day: date) -> list[str]:
    """What is wrong with these acceptances, as far as these profiles can say: a name of no fact, a fact that needs
    none, a month that the profile never gave. One that has run out is no mistake: see `notes`."""
    found = []
    for name, acceptance in accepted.items():
        platform, _, key = name.partition(".")
        if platform not in profiles:
            continue  # the platform of an earlier box; whether there is such a profile is checked with the file
        where = f"accept_facts.{name}"
        known = {fact.key: fact for fact in facts_of(profiles[platform], day)}
        fact = known.get(key)
        if fact is None:
            hint = did_you_mean(key, known)
            found.append(f"{where}: the profile of {platform} has no fact {key}{hint}; take it out, or correct it")
        elif not set(fact.leans) & {"destroy", "stop", "volume"}:
            found.append(f"{where}: no verb that can't be undone leans on {key}; take it out")
        elif acceptance.accepted > day + _ONE_DAY:
            found.append(f"{where}.accepted: {acceptance.accepted} is ahead of today ({day}); write the day of today")
        elif acceptance.month == fact.stamp and not fact.stale():
            found.append(
                f"{where}: {key} is of {fact.stamp}, {months_words(fact.age)} old, and needs no acceptance; take it out"
            )
        elif _ahead(acceptance.month, fact.stamp):
            found.append(f'{where}.month: the profile says {fact.stamp}; write month: "{fact.stamp}", or take it out')
    return found


def _ahead(month: str, stamp: str) -> bool:
    """Whether an acceptance is of a month that the profile has not come to: no person can have read it there."""
    return UNVERIFIED not in (month, stamp) and month > stamp


def notes(profile: Profile, accepted: Mapping[str, AcceptedFact], day: date) -> list[str]:
    """What a preview says: facts that an approval will ask for, and acceptances that count, or count no more."""
    said = []
    for fact in facts_of(profile, day):
        acceptance = accepted.get(fact.name)
        verbs = [verb for verb in fact.leans if verb != "clock"]
        if acceptance is not None and covers(acceptance, fact, day):
            said.append(f"{fact.words}; accepted on {acceptance.accepted}")
        elif verbs and fact.stale():
            before = f"; what was accepted on {acceptance.accepted} counts no more" if acceptance is not None else ""
            said.append(
                f"{fact.words}, and {' and '.join(VERB_WORDS[verb] for verb in verbs)} there can't be undone{before}: "
                f"look at its console, then `sweepctl give-up fact/{fact.name}` approves"
            )
        elif acceptance is not None:
            said.append(f"{fact.words}: accept_facts.{fact.name} is not needed any more; take it out")
    return said


VERB_WORDS: Mapping[Leaning, str] = {
    "destroy": "the end of a box",
    "stop": "a stop of a box",
    "volume": "the end of a volume",
    "clock": "a deadline",
}


def _leaning(profile: Profile) -> dict[str, tuple[Leaning, ...]]:
    """Fact → what leans on it. `verbs` and `tiers` say what a verb kills and what survives it. `verbs` also says what
    `meter_stop_verb` and `meter_stop_irreversible` say."""
    clocks: tuple[Leaning, ...] = ("clock",) if profile.danger_clocks else ()
    if profile.kind in _OUR_OWN:
        return {"danger_clocks": clocks}
    layouts = [profile.layout(volume=False), profile.layout(volume=True)]
    ends: list[Leaning] = ["destroy"]
    if any("stop" in layout.verbs and layout.verbs["stop"].kills for layout in layouts):
        ends.append("stop")
    if profile.ssh is None and layouts[1].durable_tier("destroy") is not None:
        ends.append("volume")
    kept = tuple(ends)
    # Where a delete only parks the box, a clock of the platform is what ends it.
    parked: tuple[Leaning, ...] = ("destroy",) if profile.meter_stop_verb != "destroy" else ()
    stopped: tuple[Leaning, ...] = ("stop",) if "stop" in ends and clocks else ()
    return {
        "verbs": kept,
        "tiers": kept,
        "danger_clocks": (*clocks, *parked, *stopped) if clocks else (),
    }
