"""What a host says of a box or a volume, as a record."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.units import skew_words
from sweepstack.onbox.host.platform import BoxRecord, Phase, VolumeRecord


def record_of(said: Any, host: str, keys: Iterable[str], endpoint: SshEndpoint | None, skew: float) -> BoxRecord:
    """The host's answer as a record. `keys`: fingerprints that it is known by; `skew`: seconds that its clock is ahead
    of ours. Raises Unreachable for what can't be an answer."""
    try:
        at = datetime.fromisoformat(said["created_at"]) if said["created_at"] else None
        known: dict[str, Any] = {
            "phase": Phase(said["phase"]),
            "created_at": None if at is None else at - timedelta(seconds=skew),  # by the host's clock
            "note": said["note"] or skew_words(skew),
        }
        return BoxRecord(**{**said, **known, "endpoint": endpoint, "host_keys": tuple(keys)})
    except (KeyError, TypeError, ValueError) as error:
        raise Unreachable(f"{host} gave an answer that can't be one: {error}") from error


def volume_of(said: Any) -> VolumeRecord:
    """The host's answer as a record."""
    mounted = said["mounted_by"]
    return VolumeRecord(**{**said, "mounted_by": None if mounted is None else tuple(mounted)})
