"""The channel to a pod: SSH to its direct address, which changes with each start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common import probe
from sweepstack.platforms.runpod.api import Session
from sweepstack.platforms.runpod.bodies import ROOT
from sweepstack.platforms.runpod.lookup import mounts_of

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel


def channel_to(session: Session, record: BoxRecord) -> SshChannel:
    """A channel to a running pod; it does not connect yet. Raises Unreachable for a pod that is gone or has no direct
    address, PlatformError for a stopped one."""
    if record.phase is Phase.GONE:
        raise Unreachable(f"{record.native_id} can't be reached: it is gone")
    if record.phase is Phase.FAILED:
        raise PlatformError(f"{record.native_id} runs nothing, and what is on it can't be read: {record.note}")
    if record.phase in (Phase.STOPPED, Phase.STOPPING, Phase.ENDING):
        raise PlatformError(
            f"{record.native_id} is {record.phase}: nothing runs there and RunPod shows no file of it. "
            f"Start it to read it"
        )
    if record.endpoint is None:
        raise Unreachable(f"{record.native_id} has no address yet ({record.phase}): {record.note or 'wait for it'}")
    if record.endpoint.proxied:
        raise Unreachable(
            f"{record.native_id} can be reached only through RunPod's relay, which passes a shell and no files: "
            f"wait for its direct address"
        )
    from sweepstack.channel.ssh.channel import SshChannel

    mounts = mounts_of(session, record)
    below = {path.removeprefix(f"{ROOT}/"): path for path in mounts if path.startswith(f"{ROOT}/")}
    return SshChannel(record.native_id, record.endpoint, root=ROOT, mounts=below)


def why_silent(session: Session, record: BoxRecord) -> str:
    """Connects and runs a command. Returns why the pod can't be used yet; "" when it can."""
    return probe.why_silent(lambda: channel_to(session, record), ["true"])
