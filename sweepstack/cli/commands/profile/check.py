"""`sweepctl profile check`: what is wrong with profiles, and which facts are too old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from sweepstack.cli import completion
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import NO, YES, Out
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.override import AcceptedFact
from sweepstack.config.stack_config import StoreConfig, load_any
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.errors import Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.target import project_root
from sweepstack.profiles import dates
from sweepstack.profiles.dated_facts import DatedFact, covers, facts_of
from sweepstack.profiles.load import FOLDER, load_profiles, mistakes_in, platforms
from sweepstack.profiles.mistakes import Mistake


def command(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="A profile's file, or a platform's name; default: all.",
            autocompletion=completion.platforms,
        ),
    ] = None,
    old: Annotated[bool, typer.Option("--old", help="Show the facts that are too old, or were never checked.")] = False,
    months: Annotated[
        int, typer.Option(metavar="6", min=0, help="With --old: a fact that is older than so many is.")
    ] = dates.MONTHS,
    used: Annotated[
        bool,
        typer.Option(
            "--used",
            help="With --old: only the platforms that this project's stack files name, without facts that all accept.",
        ),
    ] = False,
    json: AsJson = False,
) -> int:
    """Check one profile, or all: each mistake with its line and fix; or which facts are old. Exit 1: there is one."""
    out = Out(as_json=json)
    if old and file is not None:
        raise Unsure("--old looks at all profiles, or with --used at those in use: leave out the file")
    if old:
        return _stale(months, used, out)
    if used or months != dates.MONTHS:
        raise Unsure("--months and --used belong to --old")
    checked = [_path(file)] if file is not None else [FOLDER / f"{name}.md" for name in platforms()]
    found: dict[str, list[Mistake]] = {}
    for path in checked:
        shown = f"profiles/{path.name}" if path.parent == FOLDER else str(path)
        found[shown] = mistakes_in(path, shown)
    out.document(
        {
            "files": list(found),
            "mistakes": [
                {"file": shown, "line": one.line, "key": one.key, "problem": one.problem, "fix": one.fix}
                for shown, mistakes in found.items()
                for one in mistakes
            ],
        }
    )
    for shown, mistakes in found.items():
        for one in mistakes:
            out.line(f"{shown}:{one.line}  {one.key}", style="bold", wrap=False)
            out.line(f"  problem  {one.problem}")
            out.line(f"  fix      {one.fix}")
    wrong = sum(map(len, found.values()))
    out.line(f"{count(len(found), 'profile')}: {count(wrong, 'mistake') if wrong else 'all holds'}")
    return NO if wrong else YES


def _path(named: str) -> Path:
    """The file that is meant. Raises Unsure."""
    path = FOLDER / f"{named}.md" if named in platforms() else Path(named)
    if not path.is_file():
        near = did_you_mean(named, platforms())
        raise Unsure(f"{named} is no file and no platform{near}", ["sweepctl profile show"])
    return path


def _in_use(root: Path) -> dict[str, list[dict[str, AcceptedFact]]]:
    """The platforms that the project's stack files name, each with what every one of these files accepts.

    Raises ConfigError for a stack file that does not read: which platforms it has is not known.
    """
    found: dict[str, list[dict[str, AcceptedFact]]] = {}
    for stack in StackFile.stacks(root):
        config = load_any(root, stack)
        for platform in {config.platform} if isinstance(config, StoreConfig) else config.candidates:
            found.setdefault(platform, []).append(config.accept_facts)
    return found


def _stale(months: int, used: bool, out: Out) -> int:
    """Shows the facts that are too old. Exit 1: one is, or an unverified one is under a verb or a clock; 0: none."""
    day = dates.today()
    uses = _in_use(project_root()) if used else {}
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
        out.line("an approval that relies on one of them needs its name: sweepctl give-up fact/PLATFORM.FACT")
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
