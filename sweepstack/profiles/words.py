"""Facts of a profile in words, for people: the same on the screen and in the reference pages."""

from __future__ import annotations

from collections.abc import Iterator

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
