"""Turns a host's answer about a box or a volume into a record."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.units import skew_words
from sweepstack.onbox.host.platform import BoxRecord, Phase, VolumeRecord


def record_of(said: Any, host: str, keys: Iterable[str], endpoint: SshEndpoint | None, skew: float) -> BoxRecord:
    """The record of a box. `host`: its name in messages. `keys`: the host's pinned fingerprints. `skew`: seconds that
    its clock is ahead of ours. Raises Unreachable when the answer can't be read."""
    try:
        at = datetime.fromisoformat(said["created_at"]) if said["created_at"] else None
        known: dict[str, Any] = {
            "phase": Phase(said["phase"]),
            "created_at": None if at is None else at - timedelta(seconds=skew),  # the host said it by its own clock
            "note": said["note"] or skew_words(skew),
        }
        return BoxRecord(**{**said, **known, "endpoint": endpoint, "host_keys": tuple(keys)})
    except (KeyError, TypeError, ValueError) as error:
        raise Unreachable(f"{host} gave an answer that can't be one: {error}") from error


def volume_of(said: Any) -> VolumeRecord:
    """The record of a volume."""
    mounted = said["mounted_by"]
    return VolumeRecord(**{**said, "mounted_by": None if mounted is None else tuple(mounted)})
