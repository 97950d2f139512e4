"""The user's key into a box that an earlier, interrupted command has made: it is let in right after the create."""

from __future__ import annotations

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.capabilities import LetsIn
from sweepstack.provider.resources import create
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxAt


def let_in(op: Operation, box: BoxAt) -> None:
    """Where the platform can do that for a box that is there. Never raises: a box that stays shut says so itself."""
    platform = box.platform
    if not isinstance(platform, LetsIn):
        return
    try:
        platform.let_in(box.native_id, box.account, create.public_key())
    except SweepstackError as error:
        op.warn(f"whether {box.native_id} lets this computer's key in is not known: {error}")
