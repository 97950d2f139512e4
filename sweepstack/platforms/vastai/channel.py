"""The channel to a box of vast.ai: SSH to the port that its machine maps at this start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common import probe

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel, SshEndpoint

ROOT = "/sweepstack"
FOLDERS = ("data", "scratch", "mnt/durable")
"""The folders of every box, below its root. A volume is mounted at the last one."""
_FOLDER_SECONDS = 30.0


def open_channel(
    native_id: str, endpoint: SshEndpoint, mounts: Mapping[str, str], closed: Callable[[], str] | None = None
) -> Any:
    """An SshChannel, which does not connect yet. `mounts`: box-relative path → where the volume is mounted. `closed`:
    why nothing may be started on the box, "" when it may."""
    from sweepstack.channel.ssh.channel import SshChannel

    return SshChannel(native_id, endpoint, root=ROOT, mounts=mounts, closed=closed)


def channel_to(row: Mapping[str, Any], record: BoxRecord, why_closed: Callable[[], str]) -> Channel:
    """A channel to a running box. Raises Unreachable for any other: the files of a stopped container can't be read."""
    if record.endpoint is None:
        why = (
            closed(record)
            or f"is {record.phase}{f' ({record.note})' if record.note else ''} and has no SSH endpoint now"
        )
        raise Unreachable(f"instance {record.native_id} can't be reached: it {why}")
    channel: Channel = open_channel(record.native_id, record.endpoint, mounts_of(row), why_closed)
    return channel


def closed(record: BoxRecord) -> str:
    """Why nothing may be started on the box, as the end of a sentence; "" when it may."""
    if record.phase.at_rest:
        note = f" ({record.note})" if record.note else ""
        return f"is stopped: nothing on it runs or can be read until it is started{note}"
    if record.phase is Phase.ENDING:
        return "is being destroyed: nothing is started on it"
    return "is gone" if record.phase is Phase.GONE else ""


def mounts_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Box-relative path → mount point of the volume, from `volume_info`, which only the list shows."""
    info = row.get("volume_info")
    path = info.get("mount_path") if isinstance(info, dict) else None
    if not isinstance(path, str) or not path.startswith(f"{ROOT}/"):
        return {}
    return {path.removeprefix(f"{ROOT}/").rstrip("/"): path}


def answers(native_id: str, endpoint: SshEndpoint, mounts: Mapping[str, str]) -> bool:
    """Whether sshd accepts our key and the box has its folders; makes the missing ones. False while the box does not
    answer. Raises other errors of the channel."""
    channel = open_channel(native_id, endpoint, mounts)
    try:
        return probe.runs(channel, ["mkdir", "-p", *FOLDERS], seconds=_FOLDER_SECONDS) == ""
    except Unreachable:
        return False
