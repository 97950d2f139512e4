"""`sweepctl profile show`: all platforms in a table, or one platform's profile, for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any

import typer

from sweepstack.cli import completion
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import NO, YES, Out, money
from sweepstack.core.paths import installed
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.common.units import count
from sweepstack.profiles import dates, words
from sweepstack.profiles.dated_facts import facts_of
from sweepstack.profiles.layout import Layout, Verb
from sweepstack.profiles.load import FOLDER, load_profile, platforms
from sweepstack.profiles.model import Profile
from sweepstack.profiles.words import remembered

VERBS: tuple[Verb, ...] = ("stop", "destroy")
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


def command(
    name: Annotated[
        str | None,
        typer.Argument(help="A platform's name; default: all, a line each.", autocompletion=completion.platforms),
    ] = None,
    json: AsJson = False,
) -> int:
    """Show all platforms; or one: what survives which verb, clocks, prices and traps. Exit 1: a profile is wrong."""
    out, day = Out(as_json=json), dates.today()
    return _all(out, day) if name is None else _one(name, out, day)


def _one(name: str, out: Out, day: date) -> int:
    """Shows one platform. Raises ConfigError where its profile does not read."""
    profile = load_profile(name)
    facts = facts_of(profile, day)
    out.document(
        {
            **profile.model_dump(mode="json"),
            "facts": [
                {
                    "key": fact.key,
                    "month": fact.stamp,
                    "age_months": fact.age,
                    "source": fact.source,
                    "old": fact.stale(),
                }
                for fact in facts
            ],
        }
    )
    for label, said in _head(profile):
        out.line(f"{label:<12}  {said}")
    for title, layout in words.layouts(profile):
        out.line()
        out.line(f"What survives{f', {title}' if title else ''}", style="bold")
        out.table(("TIER", "WHERE", "STOP", "DESTROY", "HOLDS", "USD/GB/MONTH"), _tiers(layout))
        out.table(("VERB", "THERE", "BY", "STOPS THE BILL", "UNDO", "BILLS ON"), _verbs(layout))
    _list(out, "Clocks", [words.clock_words(clock) for clock in profile.danger_clocks])
    _list(out, "By hand", [verb.manual for verb in profile.verbs.values() if verb.manual])
    _list(out, "Credentials that worked, by name or path", remembered(profile.platform).get("credentials", ()))
    _list(out, "Conveniences", profile.conveniences)
    _list(out, "Traps", [f"{gotcha.id}  {gotcha.text}" for gotcha in profile.gotchas])
    old = [fact.key for fact in facts if fact.stale()]
    out.line()
    out.line(f"{count(len(facts), 'fact')}, {len(old)} old or never checked")
    if old:
        out.line(f"old           {', '.join(old)}")
    if profile.unknown:
        out.line(f"unknown       {', '.join(profile.unknown)}")
    file = FOLDER / f"{name}.md" if installed() else f"profiles/{name}.md"
    out.next([f"less {file}    (all of it, with its sources)"])
    return YES


def _head(profile: Profile) -> Iterator[tuple[str, str]]:
    verb = profile.verbs[profile.meter_stop_verb]
    yield profile.platform, f"{profile.kind}, reached through {words.reached(profile)}"
    if profile.unavailable:
        yield "not usable", profile.unavailable
    yield "end", f"{words.undone(verb)}, issued by {words.issued_by(verb)}"
    yield "stop inside", words.stops_from_inside(profile)
    written = f": write overrides.{profile.platform}.price_per_hour"
    yield "price", words.price(profile) + ("" if profile.meter.quoted else written)
    offered = {True: "yes", False: "none", None: "depends on the machine"}[profile.gpus.offered]
    yield "GPUs", offered + ("" if profile.gpus.checked else "; not checked before a box is made")
    grace = "grace not known" if profile.spot_grace is None else f"{profile.spot_grace:g} s of grace"
    yield (
        "spot",
        f"yes, {grace}" if profile.spot_available else "no" if profile.spot_available is False else "not known",
    )
    if profile.network is not None:
        routes = ", ".join(f"{route} ({', '.join(found.values())})" for route, found in profile.network.mirrors.items())
        yield "mirrors", routes or "none"
    yield "proved live", profile.proved_live


def _tiers(layout: Layout) -> Iterator[tuple[str, ...]]:
    for name, tier in layout.tiers.items():
        size = f"{tier.size_cap_bytes / 1e9:g} GB" if tier.size_cap_bytes else "-"
        files = f", {tier.inode_cap:,} files" if tier.inode_cap else ""
        cost = money(tier.price_per_gb_month) if tier.price_per_gb_month is not None else "-"
        yield name, tier.place or f"{tier.path}/", *(words.survives(tier, verb) for verb in VERBS), size + files, cost


def _verbs(layout: Layout) -> Iterator[tuple[str, ...]]:
    for name, verb in layout.verbs.items():
        yield (
            name,
            verb.native,
            words.issued_by(verb).replace("`", ""),
            "yes" if verb.stops_meter else "no",
            "never" if verb.irreversible else "yes",
            "; ".join(verb.bills_after) or "-",
        )


def _list(out: Out, title: str, lines: list[str] | tuple[str, ...]) -> None:
    if lines:
        out.line()
        out.line(title, style="bold")
        for line in lines:
            out.line(f"-  {line}")


def _all(out: Out, day: date) -> int:
    """Shows all: how each is reached and ended, how old its facts are. Exit 1: a profile does not hold."""
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
