"""The channel to a machine: SSH to its public address, as `paperspace`.

Each start has another address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweepstack.extensions.paperspace_api.login_script import ROOT
from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common import probe

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel


def channel_to(record: BoxRecord) -> SshChannel:
    """A channel to a machine; it does not connect yet. Raises Unreachable for one that is gone or has no address,
    PlatformError for one that is ending or stopped."""
    if record.phase is Phase.GONE:
        raise Unreachable(f"{record.native_id} can't be reached: it is gone")
    if record.phase is Phase.ENDING:
        raise PlatformError(f"{record.native_id} is being deleted: nothing is started on it any more")
    if record.phase.at_rest:
        raise PlatformError(f"{record.native_id} is {record.phase}: nothing runs on it until it is started")
    if record.endpoint is None:
        raise Unreachable(f"{record.native_id} has no address ({record.phase}): {record.note or 'wait for it'}")
    from sweepstack.channel.ssh.channel import SshChannel

    return SshChannel(record.native_id, record.endpoint, root=ROOT)


def why_silent(record: BoxRecord) -> str:
    """Connects and runs a command. Returns why the box can't be used yet; "" when it can."""
    return probe.why_silent(lambda: channel_to(record), ["true"])
