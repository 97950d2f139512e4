"""Whether a platform has spot boxes, and how long their cells have when one is taken away."""

from __future__ import annotations

from sweepstack.config.rent import Resources
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.units import parse_duration
from sweepstack.onbox.runner.spec import GRACE_SECONDS
from sweepstack.profiles.hosts import VERB, layout_of
from sweepstack.profiles.model import Profile

MARGIN_SECONDS = 1.0
"""Of a platform's grace: what the signal takes to the runner, and the runner's last line in the journal."""


def asked_resources(config: StackConfig) -> list[tuple[str, Resources]]:
    """What is asked of boxes, and where: the job's, where a box has none of its own."""
    asked = {f"boxes.{name}.resources": box.resources for name, box in config.boxes.items() if box.want != "gone"}
    own = [(where, resources) for where, resources in asked.items() if resources is not None]
    return own if len(own) == len(asked) and own else [("job.resources", config.job.resources), *own]


def spot_problems(config: StackConfig, profile: Profile) -> list[str]:
    """Why the spot boxes that are asked for can't be rented there."""
    problems = []
    where = _where(config)
    if where and profile.spot_available is not True:
        problems.append(f"{where}.spot: {profile.platform} has no spot boxes")
    if config.bid is not None and not where:
        problems.append("bid is for spot boxes: write resources: {spot: true}, or leave it out")
    return problems


def spot_notes(config: StackConfig, profile: Profile, instead: str) -> list[str]:
    """What the preview says of spot boxes. `instead`: what is possible on a platform whose boxes leave nothing."""
    where = _where(config)
    if not where:
        return []
    notes = [f"{where}.spot: {profile.spot_note}"] if profile.spot_note else []
    name, grace = profile.platform, profile.spot_grace
    if layout_of(config, profile).durable_tier(VERB) is None:
        notes.append(
            f"{where}.spot: {name} may take a spot box away at any moment, with every cell on it that was not pulled"
            f"{instead}"
        )
    written = config.job.grace
    if not grace:
        known = "no time" if grace == 0 else "a time that is not known"
        own = f"; job.grace ({written}) is for our own stops" if written else ""
        notes.append(f"{where}.spot: {name} gives cells {known} to save before it takes a box away{own}")
        return notes
    asked = parse_duration(written) if written else None
    more = f": job.grace ({written}) is more than that" if asked and asked > _within(grace, None) else ""
    notes.append(
        f"{where}.spot: {name} takes a box away {grace:g} s after it says so, and the cells have "
        f"{_within(grace, asked):g} s of them to save{more}"
    )
    return notes


def grace_seconds(config: StackConfig, profile: Profile, resources: Resources) -> float | None:
    """Seconds that a cell of such a box has between SIGTERM and SIGKILL; None: as many as the runner gives by itself.

    A platform that takes spot boxes away without a notice sends no signal: then only our own stops do, and they need
    not hurry.
    """
    written = parse_duration(config.job.grace) if config.job.grace else None
    if not resources.spot or not profile.spot_grace:
        return written
    return _within(profile.spot_grace, written)


def _within(grace: float, written: float | None) -> float:
    return min(max(grace - MARGIN_SECONDS, 0.0), GRACE_SECONDS if written is None else written)


def _where(config: StackConfig) -> str:
    return next((where for where, resources in asked_resources(config) if resources.spot), "")
