"""`sweepctl profile show`: one platform's profile, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, Out, count, money
from sweepstack.core.paths import installed
from sweepstack.profiles import dates, words
from sweepstack.profiles.facts import facts_of
from sweepstack.profiles.first_contact import remembered
from sweepstack.profiles.layout import Layout, Verb
from sweepstack.profiles.load import FOLDER, load_profile
from sweepstack.profiles.model import Profile

VERBS: tuple[Verb, ...] = ("stop", "destroy")


def command(
    name: Annotated[str, typer.Argument(help="A platform's name.", autocompletion=completion.platforms)],
    json: AsJson = False,
) -> int:
    """Show a platform: what survives which verb, clocks, prices, conveniences and traps. Exit 2: it does not read."""
    out, day = Out(as_json=json), dates.today()
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
