"""The channel to an instance: SSH to its public address, as `ubuntu`.

Another launch has another address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common import probe

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel

ROOT = "/home/ubuntu/sweepstack"
"""The box's folder: `ubuntu` may write there, and it lies on the local disk."""
FOLDERS = ("data", "scratch", "mnt/durable")
"""Its tiers, below the box's folder."""
PROBE_SECONDS = 10.0


def channel_to(record: BoxRecord) -> SshChannel:
    """A channel to an instance; it does not connect yet. Raises Unreachable for one that is gone or has no address,
    PlatformError for one that is ending."""
    if record.phase is Phase.GONE:
        raise Unreachable(f"{record.native_id} can't be reached: it is gone")
    if record.phase is Phase.ENDING:
        raise PlatformError(f"{record.native_id} is being terminated: nothing is started on it any more")
    if record.endpoint is None:
        raise Unreachable(f"{record.native_id} has no address ({record.phase}): {record.note or 'wait for it'}")
    from sweepstack.channel.ssh.channel import SshChannel

    return SshChannel(record.native_id, record.endpoint, root=ROOT)


def why_silent(record: BoxRecord) -> str:
    """Connects and makes the folders of the tiers, which nothing on the image makes; where they are, nothing happens.
    Returns why the box can't be used yet; "" when it can."""
    if not probe.ON:
        return ""
    try:
        return probe.runs(channel_to(record), ["mkdir", "-p", *FOLDERS], seconds=PROBE_SECONDS)
    except PlatformError as error:
        return str(error)
