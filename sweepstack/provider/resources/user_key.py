"""The user's key into a box that an earlier, interrupted command has made: it is let in right after the create."""

from __future__ import annotations

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.capabilities import LetsIn
from sweepstack.platforms.registry import load_platform
from sweepstack.provider.resources import create
from sweepstack.provider.session import Operation


def let_in(op: Operation, adapter: str, native_id: str, account: str) -> None:
    """Where the platform can do that for a box that is there. Never raises: a box that stays shut says so itself."""
    platform = load_platform(adapter)
    if not isinstance(platform, LetsIn):
        return
    try:
        platform.let_in(native_id, account, create.public_key())
    except SweepstackError as error:
        op.warn(f"whether {native_id} lets this computer's key in is not known: {error}")
