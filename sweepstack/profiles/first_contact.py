"""Tells a person once what a platform has that helps and hurts: conveniences, clocks, traps.

Remembered on this computer is that it was shown, and under which name or path a credential worked: never its value. In
CI nothing is shown, and nothing remembered: its computer is another one each time.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import canonical_json, write_json_atomically
from sweepstack.onbox.common.xdg import data_folder
from sweepstack.profiles.model import Profile
from sweepstack.profiles.words import clock_words

SCHEMA = 1


def once(profile: Profile) -> tuple[str, ...]:
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
