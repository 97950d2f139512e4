"""Checks of a stack of volumes: its stack file, its records, and its volumes on the platform."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from sweepstack.billing.cost import cost_words, overdue
from sweepstack.cli.commands.doctor import platforms
from sweepstack.cli.commands.doctor import sweep as one_sweep
from sweepstack.cli.commands.doctor.finding import Check, Finding, fail, first_line, ok, unknown, warn
from sweepstack.config.stack_config import StoreConfig
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError, No, SweepstackError
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.volumes.volumes_now import Holding, adapters_of, holding
from sweepstack.platforms.registry import load_platform
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.volume_stack_plan import plan_store


@dataclass
class CheckedStore:
    """The stack that is checked. `config` is None if its file is not valid."""

    target: Target
    config: StoreConfig | None = None
    problems: list[str] = field(default_factory=list)


def checks(target: Target) -> Iterator[tuple[str, Check]]:
    """(name, check), in the order of the table. Reads the stack file now: the checks use it in parallel."""
    subject, sweep = CheckedStore(target), one_sweep.CheckedSweep(target)
    try:
        subject.config = StoreConfig.load(target.root, target.stack)
    except ConfigError as error:
        subject.problems = error.problems or [first_line(str(error))]
    yield "stack file", lambda: stack_file(subject)
    if (config := subject.config) is not None:
        yield "extras", lambda: platforms.extras(config)
        profile = load_profile(config.platform)
        # A platform without its adapter is refused with the stack file, and can't be asked.
        platform = load_platform(profile.adapter) if not profile.unavailable else None
        if platform is not None and platforms.rents(platform):
            yield "accounts", lambda: platforms.accounts({profile.platform: platform}, None)
    yield "evidence", lambda: one_sweep.evidence(sweep)
    yield "state", lambda: one_sweep.state(sweep)
    yield "volumes", lambda: volumes(subject)


def stack_file(subject: CheckedStore) -> list[Finding]:
    """Whether it is valid, and whether the platform can keep such volumes."""
    target, config = subject.target, subject.config
    if config is None:
        return [one_sweep.mistakes(subject.problems, target)]
    try:
        plan = plan_store(config, load_profile(config.platform))
    except ConfigError as error:
        reasons = "; ".join(error.problems) or first_line(str(error))
        return [fail("stack file", f"{config.platform} can't keep them: {reasons}", f"fix it in {config.file}")]
    leaving = f", {len(plan.gone)} to go" if plan.gone else ""
    return [ok("stack file", f"{config.file}: {count(len(plan.volumes), 'volume')} on {plan.platform}{leaving}")]


def volumes(subject: CheckedStore) -> list[Finding]:
    """Whether the volumes of the state exist and are still wanted, and whether there are others."""
    stack = subject.target.stack
    try:
        sources = open_sources(subject.target)
        held = holding(sources)
    except No:
        return [ok("volumes", "none was ever made")]
    except SweepstackError as error:
        return [unknown("volumes", str(error), f"sweepctl status --stack {stack}")]
    return [*_each(held, stack), *_all(held, stack, sorted(adapters_of(sources)))]


def _each(held: Holding, stack: str) -> Iterator[Finding]:
    for one in held.volumes:
        cost = cost_words(one.facts.price_per_month, one.facts.keep_until)
        found = f"{one.facts.name}: {cost}, in {one.facts.where}; used by {', '.join(one.users) or 'no sweep so far'}"
        if one.state == "gone":
            fix = f"pulumi up --stack {stack} makes it again, empty; or want: gone in the stack file"
            yield fail("volumes", f"{one.facts.name} ({one.facts.native_id}) is gone with all that was on it", fix)
        elif overdue(one.facts.keep_until, date.today()):
            yield warn("volumes", found, f"a later keep_until, or sweepctl finish --stack {stack}")
        elif one.state != "unknown":
            yield ok("volumes", found)


def _all(held: Holding, stack: str, adapters: list[str]) -> Iterator[Finding]:
    if held.orphans:
        named = ", ".join(f"{record.native_id} ({record.tag})" for record in held.orphans)
        yield fail("volumes", f"not in the state, and may bill: {named}", f"pulumi up --stack {stack}    (adopts it)")
    for problem in held.problems:
        yield unknown("volumes", problem, f"sweepctl status --stack {stack}")
    if not (held.volumes or held.orphans or held.problems):
        yield ok("volumes", f"none in the state, and none on {', '.join(adapters) or 'any platform'}")
