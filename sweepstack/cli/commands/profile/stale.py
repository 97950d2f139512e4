"""`sweepctl profile stale`: the facts of all profiles that are too old, or were never checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any

import typer

from sweepstack.cli.accepted_facts import platforms_in_use
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import NO, YES, Out, count
from sweepstack.cli.target import project_root
from sweepstack.config.accepted import AcceptedFact
from sweepstack.profiles import dates
from sweepstack.profiles.facts import DatedFact, covers, facts_of
from sweepstack.profiles.load import load_profiles, platforms


def command(
    months: Annotated[
        int, typer.Option(metavar="6", min=0, help="A fact that is older than so many is stale.")
    ] = dates.MONTHS,
    used: Annotated[
        bool,
        typer.Option(
            "--used", help="Only the platforms that this project's stack files name, without facts that all accept."
        ),
    ] = False,
    json: AsJson = False,
) -> int:
    """Show the facts that are too old. Exit 1: one is, or an unverified one is under a verb or a clock; 0: none."""
    out, day = Out(as_json=json), dates.today()
    uses = platforms_in_use(project_root()) if used else {}
    profiles = load_profiles(uses if used else platforms()).values()
    found = [fact for profile in profiles for fact in facts_of(profile, day) if not _accepted(uses, fact, day)]
    stale = sorted((fact for fact in found if fact.stale(months)), key=_order)
    shown = [fact for fact in stale if fact.leans or fact.age is not None]
    out.document(
        {
            "months": months,
            "today": day.isoformat(),
            "stale": len(shown),
            "facts": [_as_json(fact) for fact in stale],
            "proved_live": {profile.platform: profile.proved_live for profile in profiles},
        }
    )
    rows = [
        (fact.key, fact.platform, fact.stamp, _age(fact), ", ".join(fact.leans) or "-", fact.source) for fact in shown
    ]
    if rows:
        out.table(("FACT", "PLATFORM", "MONTH", "AGE", "LEANS ON IT", "SOURCE"), rows)
    out.table(
        ("PLATFORM", "LAST PROVED LIVE", "OLDEST MONTH"),
        (
            (profile.platform, profile.proved_live, min(stamp for stamp in profile.stamps.values()))
            for profile in profiles
        ),
    )
    out.line(
        f"{count(len(shown), 'fact')} of {len(found)} older than {months} months, or unverified under a verb or a clock"
    )
    if rest := len(stale) - len(shown):
        out.line(f"{rest} more are unverified, and no verb or clock leans on them: --json shows them")
    if any(set(fact.leans) - {"clock"} for fact in shown):
        out.line("an approval that relies on one of them needs its name: sweepctl approve --accept-fact PLATFORM.FACT")
    return NO if shown else YES


def _accepted(uses: Mapping[str, Sequence[Mapping[str, AcceptedFact]]], fact: DatedFact, day: date) -> bool:
    """Whether each stack that names the platform accepts this fact as it is."""
    stacks = uses.get(fact.platform, ())
    return bool(stacks) and all(covers(accepted.get(fact.name), fact, day) for accepted in stacks)


def _order(fact: DatedFact) -> tuple[bool, str, bool, str]:
    """What an end or a stop leans on comes first, then by platform."""
    return not set(fact.leans) - {"clock"}, fact.platform, not fact.leans, fact.key


def _age(fact: DatedFact) -> str:
    return "-" if fact.age is None else count(fact.age, "month")


def _as_json(fact: DatedFact) -> dict[str, Any]:
    return {
        "fact": fact.name,
        "platform": fact.platform,
        "key": fact.key,
        "month": fact.stamp,
        "age_months": fact.age,
        "source": fact.source,
        "leans": list(fact.leans),
    }
