"""Resolves how a box of a platform stops itself once its lease is over. Pure."""

from __future__ import annotations

from sweepstack.config.stack_config import StackConfig
from sweepstack.core.lease import LeaseFacts, lease_seconds
from sweepstack.profiles.layout import Layout
from sweepstack.profiles.model import Profile


def lease_facts(config: StackConfig, profile: Profile, layout: Layout) -> LeaseFacts | None:
    """The lease of this config there; None without one."""
    seconds = lease_seconds(config.lease)
    if config.lease is None or seconds is None:
        return None
    facts = LeaseFacts(text=config.lease, seconds=seconds)
    verb = layout.verbs.get("stop")
    if verb is None:
        return facts
    kills = tuple(tier for tier in verb.kills if layout.tiers[tier].path)
    if verb.issued_by == "ssh":
        return facts.model_copy(update={"kills": kills, "by": "ssh", "native": verb.native, "command": verb.command})
    if verb.issued_by == "api" and profile.own_key is not None:
        known = {"key": profile.own_key.variable, "proved": profile.own_key.proved}
        return facts.model_copy(update={"kills": kills, "by": "key", "native": verb.native, **known})
    return facts
