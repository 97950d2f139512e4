"""The channel to an instance: SSH to its public address, as `ubuntu`.

Another launch has another address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweepstack.extensions.lambda_api.states import USER
from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common import probe

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel

ROOT = "/home/ubuntu/sweepstack"
"""The box's folder: `ubuntu` may write there, and it lies on the local disk."""
FOLDERS = ("data", "scratch", "mnt/durable")
"""The folders of the box's tiers: no runner starts without them."""
FIRST_BOOT = (
    f"#cloud-config\nruncmd:\n  - [install, -d, -o, {USER}, -g, {USER}, "
    f"{', '.join([ROOT, f'{ROOT}/mnt', *(f'{ROOT}/{folder}' for folder in FOLDERS)])}]\n"
)
"""What cloud-init does once, at an instance's first boot: a create that was cancelled makes no folders."""


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
    """Connects, and makes the box's folders where they are not there. Returns why the box can't be used yet; "" when
    it can."""
    return probe.why_silent(lambda: channel_to(record), ["mkdir", "-p", *FOLDERS])
