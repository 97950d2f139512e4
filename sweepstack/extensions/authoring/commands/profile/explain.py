"""`sweepctl profile explain`: which facts of which profile the plan of a stack leans on."""

from __future__ import annotations

import json as json_text
from datetime import date
from typing import Annotated, Any

import typer

from sweepstack.cli import completion
from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import YES, No, Out, Unsure, count
from sweepstack.cli.target import Target
from sweepstack.config.stack_config import StackConfig
from sweepstack.extensions.authoring.explain import Leaned, explained, overridden
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles import dates, facts
from sweepstack.profiles.fleet import resolve_fleet
from sweepstack.profiles.load import load_profiles
from sweepstack.profiles.model import Profile
from sweepstack.profiles.plan import Plan


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[STACK]", help="As --stack.", autocompletion=completion.stacks)
    ] = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show which facts a stack's plan leans on, how old each is, and what it decided. Exit 1: no candidate fits."""
    if name and stack and name != stack:
        raise Unsure(f"explain {name}, or --stack {stack}? Name one of them")
    target, out, day = Target.find_sweep(name or stack), Out(as_json=json), dates.today()
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
        "old": facts.notes(profile, config.accept_facts, day),
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
    for line in facts.notes(profile, config.accept_facts, day):
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
