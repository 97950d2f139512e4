"""`sweepctl profile explain`: which facts a stack's plan leans on, what a box says of them; traps."""

from __future__ import annotations

import json as json_text
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from sweepstack.cli import completion
from sweepstack.cli.options import AsJson, Stack, one_of
from sweepstack.cli.output import YES, Out
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.suggest import did_you_mean
from sweepstack.extensions.authoring.explain import Leaned, explained, overridden
from sweepstack.extensions.authoring.gotcha_list import UNIVERSAL, known_gotchas
from sweepstack.extensions.authoring.probe import ask_box
from sweepstack.onbox.common.errors import ConfigError, No, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.target import Target
from sweepstack.profiles import dated_facts, dates
from sweepstack.profiles.fleet import resolve_fleet
from sweepstack.profiles.load import load_profiles, platforms
from sweepstack.profiles.model import Profile
from sweepstack.profiles.plan import Plan

NAME = f"A stack, as --stack; with --gotchas a platform, or `{UNIVERSAL}`."


def command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help=NAME, autocompletion=completion.stacks)] = None,
    box: Annotated[
        str | None,
        typer.Option(
            metavar="BOX",
            help="Ask this box for its platform's facts instead; edits nothing.",
            autocompletion=completion.boxes,
        ),
    ] = None,
    stop: Annotated[
        str,
        typer.Option(
            metavar="before|after",
            help="--box: leave a small file in each tier, to be looked for after a stop; or look which of these files "
            "it left, and take them away.",
        ),
    ] = "",
    patch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="--box: write the proposed stamps there, for `git apply`.")
    ] = None,
    gotchas: Annotated[
        bool, typer.Option("--gotchas", help="Show the traps that are known instead, with the id that stays.")
    ] = False,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show which facts a stack's plan leans on and what each decided. Exit 1: none fits, or the box contradicts one."""
    out = Out(as_json=json)
    if (box and gotchas) or (not box and (stop or patch)):
        raise Unsure("--stop and --patch go with --box, which is another question than --gotchas")
    if stop:
        one_of(stop, "before", "after", option="--stop")
    if gotchas:
        return _gotchas(name, out)
    if name and stack and name != stack:
        raise Unsure(f"explain {name}, or --stack {stack}? Name one of them")
    target = Target.find_sweep(name or stack)
    return ask_box(target, box, stop, patch, out) if box else _explain(target, out)


def _gotchas(platform: str | None, out: Out) -> int:
    names = [*platforms(), UNIVERSAL]
    if platform is not None and platform not in names:
        raise No(f"there is no platform {platform}{did_you_mean(platform, names)}", ["sweepctl profile show"])
    found = [one for one in known_gotchas() if platform in (None, one.platform)]
    out.document({"gotchas": [vars(one) for one in found]})
    for one in found:
        out.line(f"{one.id}  {one.platform}: {one.text}")
    return YES


def _explain(target: Target, out: Out) -> int:
    day = dates.today()
    config = StackConfig.load(target.root, target.stack)
    profiles = load_profiles(config.candidates)
    try:
        fleet = resolve_fleet(config, profiles)
    except ConfigError as error:
        raise No(str(error), ["sweepctl profile show"]) from error
    following = [
        *(f"sweepctl profile show {name}" for name in fleet.platforms),
        f"pulumi preview --stack {target.stack}",
    ]
    parts = [_document(config, plan, profiles[plan.platform], day) for plan in fleet.plans]
    others = {"others": parts[1:]} if parts[1:] else {}
    out.document({"stack": target.stack, **parts[0], **others, "next": following})
    for plan in fleet.plans:
        _screen(config, plan, profiles[plan.platform], day, out)
    out.next(following)
    return YES


def _document(config: StackConfig, plan: Plan, profile: Profile, day: date) -> dict[str, Any]:
    return {
        "platform": plan.platform,
        "refused": list(plan.reasons[:-1]),
        "facts": [_as_json(one) for one in explained(config, profile, plan, day)],
        "overrides": overridden(config, plan.platform),
        "old": dated_facts.notes(profile, config.accept_facts, day),
    }


def _screen(config: StackConfig, plan: Plan, profile: Profile, day: date, out: Out) -> None:
    found = explained(config, profile, plan, day)
    leaned = [one for one in found if one.decides]
    idle = [one.key for one in found if not one.decides]
    changed = overridden(config, plan.platform)
    for reason in plan.reasons:
        out.line(reason)
    out.line()
    out.table(("FACT", "SAYS", "AGE", "WHAT IT DECIDED"), ((one.key, one.says, one.age, one.decides) for one in leaned))
    for key, value in changed.items():
        said = value if isinstance(value, str) else json_text.dumps(value)
        out.line(f"instead       overrides.{plan.platform}.{key}: {said}")
    for line in dated_facts.notes(profile, config.accept_facts, day):
        out.line(f"old           {line}")
    if idle:
        out.line(f"{count(len(idle), 'fact')} decided nothing here: {', '.join(idle)}")


def _as_json(one: Leaned) -> dict[str, Any]:
    fact = one.fact
    return {
        "key": one.key,
        "says": one.says,
        "decides": one.decides or None,
        "month": fact.stamp if fact is not None else None,
        "age_months": fact.age if fact is not None else None,
        "source": fact.source if fact is not None else None,
        "old": fact.stale() if fact is not None else None,
    }
