"""`sweepctl profile list`: all platforms in a table."""

from __future__ import annotations

from datetime import date
from typing import Any

from sweepstack.cli.options import AsJson
from sweepstack.cli.output import NO, YES, Out, count
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles import dates, words
from sweepstack.profiles.facts import facts_of
from sweepstack.profiles.load import load_profile, platforms
from sweepstack.profiles.model import Profile

HEAD = (
    "PLATFORM",
    "KIND",
    "ENDS ITS BILL",
    "UNDO",
    "BY",
    "REACHED",
    "A TIER OUTLIVES A BOX",
    "OLD FACTS",
    "PROVED LIVE",
)


def command(json: AsJson = False) -> int:
    """Show all platforms: how each is reached and ended, and how old its facts are. Exit 1: a profile does not hold."""
    out, day = Out(as_json=json), dates.today()
    found: list[Profile] = []
    broken: dict[str, str] = {}
    for name in platforms():
        try:
            found.append(load_profile(name))
        except ConfigError as error:
            broken[name] = str(error)
    out.document(
        {
            "today": day.isoformat(),
            "profiles": [_as_json(profile, day) for profile in found],
            "broken": [{"platform": name, "problem": problem} for name, problem in broken.items()],
        }
    )
    rows = [_row(profile, day) for profile in found]
    rows += [(name, *["-"] * (len(HEAD) - 2), "does not hold") for name in broken]
    out.table(HEAD, sorted(rows))
    for profile in found:
        if profile.unavailable:
            out.line(f"{profile.platform}   can't be used: {profile.unavailable}")
    out.line(f"{count(len(found), 'profile')}; an old fact is one of more than {dates.MONTHS} months, or never checked")
    out.next([f"sweepctl profile check {name}" for name in broken] or ["sweepctl profile show NAME"])
    return NO if broken else YES


def _row(profile: Profile, day: date) -> tuple[str, ...]:
    verb = profile.verbs[profile.meter_stop_verb]
    facts = facts_of(profile, day)
    return (
        profile.platform,
        profile.kind,
        verb.native,
        "never" if verb.irreversible else "yes",
        words.issued_by(verb).replace("`", ""),
        words.reached(profile),
        words.outlives(profile),
        f"{sum(fact.stale() for fact in facts)} of {len(facts)}",
        profile.proved_live,
    )


def _as_json(profile: Profile, day: date) -> dict[str, Any]:
    verb = profile.verbs[profile.meter_stop_verb]
    facts = facts_of(profile, day)
    return {
        "platform": profile.platform,
        "kind": profile.kind,
        "meter_stop_verb": profile.meter_stop_verb,
        "native": verb.native,
        "irreversible": verb.irreversible,
        "issued_by": verb.issued_by,
        "adapter": profile.adapter,
        "ssh": profile.ssh is not None,
        "usable": not profile.unavailable,
        "outlives": words.outlives(profile),
        "facts": len(facts),
        "old": sorted(fact.key for fact in facts if fact.stale()),
        "oldest": min(profile.stamps.values()),
        "proved_live": profile.proved_live,
    }
