"""When the facts about ending a box were last checked: a preview says if that is long ago."""

from __future__ import annotations

from datetime import date, timedelta

from sweepstack.profiles.model import Profile

OLD = timedelta(days=180)
"""From this age on a check is said to be old."""
_OUR_OWN = ("ssh", "workstation")
"""Kinds where our own code ends a box, and no vendor can change what that does."""


def stamp_notes(profile: Profile, today: date) -> list[str]:
    """What a person should know of the profile's `stamps.verbs`; empty where it is recent. It stops nothing."""
    stamp = profile.stamps.get("verbs", "unverified")
    if profile.kind in _OUR_OWN:
        return []
    ends = f"{profile.platform}: what its {profile.meter_stop_verb} ends and leaves"
    if stamp == "unverified":
        return [f"{ends} was never checked by us (stamps.verbs: unverified): look at its console afterwards"]
    year, month, day = (*map(int, stamp.split("-")), 1)[:3]
    if today - date(year, month, day) <= OLD:
        return []
    return [f"{ends} was last checked in {stamp} (stamps.verbs): look at its console afterwards"]
