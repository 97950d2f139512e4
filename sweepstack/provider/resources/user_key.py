"""Lets the user's key into a box that an earlier, interrupted command has made."""

from __future__ import annotations

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.capabilities import LetsIn
from sweepstack.provider.resources import create
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxAt


def let_in(op: Operation, box: BoxAt) -> None:
    """Adds the key, if the platform can do that for a box that exists. Warns if that fails; never raises."""
    platform = box.platform
    if not isinstance(platform, LetsIn):
        return
    try:
        platform.let_in(box.native_id, box.account, create.public_key())
    except SweepstackError as error:
        op.warn(f"whether {box.native_id} lets this computer's key in is not known: {error}")
