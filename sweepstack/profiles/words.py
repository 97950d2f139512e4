"""Facts of a profile in words, for people: the same on the screen and in the reference pages.

A person is told once what a platform has that helps and hurts: conveniences, clocks, traps. Remembered on this computer
is that it was shown, and under which name or path a credential worked: never its value. In CI nothing is shown, and
nothing remembered: its computer is another one each time.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import canonical_json, write_json_atomically
from sweepstack.onbox.common.xdg import data_folder
from sweepstack.profiles.layout import Layout, Tier, Verb, VerbFacts
from sweepstack.profiles.model import Clock, Profile

_BEGINS = {
    "stop": "stopped",
    "arrears": "in arrears",
    "start": "running",
    "use": "unused",
    "contract": "past the end of the contract with its host",
}
_INSIDE = {None: "over its API", "proved": "yes", "unproved": "not proved", "refuted": "no: it bills on"}

SCHEMA = 1


def layouts(profile: Profile) -> Iterator[tuple[str, Layout]]:
    """How its boxes are laid out: without a volume, and with one where that is another way."""
    yield "", profile.layout(volume=False)
    if profile.with_volume is not None:
        yield "with mounts", profile.with_volume


def issued_by(verb: VerbFacts) -> str:
    """Who ends or stops a box."""
    return {"api": "us", "ssh": f"us, by `{verb.command}` on the box", "person": "a person"}[verb.issued_by]


def undone(verb: VerbFacts) -> str:
    """The verb, and whether it can be taken back."""
    return verb.native + (" (can't be undone)" if verb.irreversible else " (can be undone)")


def stops_from_inside(profile: Profile) -> str:
    """Whether a command on the box ends its bill."""
    return _INSIDE[profile.stop_from_inside]


def outlives(profile: Profile) -> str:
    """Whether a tier outlives a box: `yes`, `with mounts`, or `nothing`."""
    found = [layout.durable_tier("destroy") for _, layout in layouts(profile)]
    return "yes" if found[0] else "with mounts" if any(found) else "nothing"


def reached(profile: Profile) -> str:
    """What its boxes are reached through: SSH to a host, a person's hands, or its adapter."""
    if profile.by_hand is not None:
        return "by hand"
    return "SSH" if profile.ssh is not None else f"adapter {profile.adapter}"


def clock_words(clock: Clock) -> str:
    """A deadline of the platform: when it strikes, what it does, and the tiers that it kills."""
    begins = _BEGINS[clock.starts]
    known = clock.after is not None
    after = f"after {clock.after:g} d {begins}" if known else f"while {begins}, at a time not known before"
    kills = f"; kills {', '.join(clock.kills)}" if clock.kills else ""
    return f"{after}: {clock.what}{kills}"


def survives(tier: Tier, verb: Verb) -> str:
    """What is left on a tier after a verb; `-` where the platform has no such verb."""
    if verb not in tier.survives:
        return "-"
    return {True: "survives", False: "dies", None: "unknown: counts as dead"}[tier.survives[verb]]


def price(profile: Profile) -> str:
    """What a box costs."""
    meter = profile.meter
    if not meter.rents:
        return "sends no bill"
    if meter.price_per_hour is not None:
        said = f"{meter.price_per_hour:g} USD an hour"
    elif meter.quoted:
        said = "each offer has its own price"
    else:
        said = "quotes no price"
    by = f", billed by the {meter.billed_by}" if meter.billed_by not in (None, "nobody") else ""
    return f"{said}{by}{f', in {meter.currency}' if meter.currency not in (None, 'USD') else ''}"


def told_once(profile: Profile) -> tuple[str, ...]:
    """The lines to show now; none where they were shown before, in CI, and for a platform that sends no bill. Of
    several processes at once one gets them. Where nothing can be remembered they are shown again. Never raises."""
    if not profile.meter.rents or os.environ.get("CI") or not _first(profile.platform):
        return ()
    return lines(profile)


def lines(profile: Profile) -> tuple[str, ...]:
    """What is told, a line each."""
    name = profile.platform
    traps = [f"{gotcha.id}: {gotcha.text.split(' → ')[0]}" for gotcha in profile.gotchas]
    return (
        f"first contact with {name}; this is shown once, and again by: sweepctl profile show {name}",
        *(f"  good to know: {line}" for line in profile.conveniences),
        *(f"  clock: {clock_words(clock)}" for clock in profile.danger_clocks),
        *(f"  trap {trap}" for trap in traps),
    )


def remember_credential(platform: str, name: str) -> None:
    """Adds the name of a variable, or the path of a file, whose credential the platform took. Never raises."""
    known = remembered(platform)
    if not name or name in known.get("credentials", ()):
        return
    found = {**known, "schema": SCHEMA, "credentials": sorted({*known.get("credentials", ()), name})}
    with contextlib.suppress(OSError):
        write_json_atomically(_file(platform), found)


def remembered(platform: str) -> dict[str, Any]:
    """`credentials`: names and paths. Empty where nothing is remembered, or it does not read."""
    try:
        found = json.loads(_file(platform).read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    names = found.get("credentials")
    return {"credentials": [name for name in names if isinstance(name, str)]} if isinstance(names, list) else {}


def _first(platform: str) -> bool:
    """Takes the one turn to show it; False where it was taken. A marker that is made only once needs no lock."""
    marker = _file(platform).with_suffix(".shown")
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        with marker.open("xb") as handle:
            handle.write(canonical_json({"shown": datetime.now(UTC).isoformat(timespec="seconds")}))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def _file(platform: str) -> Path:
    return data_folder() / "platforms" / f"{platform}.json"
