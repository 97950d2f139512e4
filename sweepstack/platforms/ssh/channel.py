"""Channels to a box and to a volume on a host: both are folders there, reached over one connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.ssh.api import Caller

if TYPE_CHECKING:
    from sweepstack.channel.prefetch import Answers
    from sweepstack.channel.ssh.channel import SshChannel


def open_channel(
    caller: Caller,
    native_id: str,
    root: str,
    mounts: Mapping[str, str],
    closed: Callable[[], str],
    answers: Answers | None = None,
) -> SshChannel:
    """A channel, which does not connect yet. `root`: the box's folder on the host. `mounts`: path on the box → path on
    the host. `closed`: why nothing may be started on the box, "" when it may. `answers`: prefetched answers."""
    from sweepstack.channel.ssh.channel import SshChannel

    return SshChannel(
        native_id,
        caller.way.endpoint,
        root=root,
        mounts=mounts,
        closed=closed,
        links=caller.connections(),
        answers=answers,
    )


def volume_channel(caller: Caller, native_id: str, content: str, mount: str) -> SshChannel:
    """A channel to a volume. `content`: its folder on the host. `mount`: as in `ReadsVolumes.volume_channel`."""
    root, mounts = (content.rpartition("/")[0], {mount: content}) if mount else (content, {})
    return open_channel(caller, native_id, root, mounts, lambda: "is a volume without its box: nothing runs on it")


def closed(record: BoxRecord) -> str:
    """Why nothing may be started on the box, as the end of a sentence; "" when it may."""
    if record.phase.at_rest:
        return f"is {record.phase}: nothing runs on it until it is started again"
    return "is being destroyed: nothing is started on it any more" if record.phase is Phase.ENDING else ""
