"""The way to a box on a host, and to a volume there: both lie in the host's folder, behind one connection."""

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
    """A channel that connects nothing yet. `mounts`: path on the box → where it lies on the host; `answers`: what was
    foreseen of the box."""
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
    """That of a volume whose content lies there. `mount`: as in `ReadsVolumes.volume_channel`."""
    root, mounts = (content.rpartition("/")[0], {mount: content}) if mount else (content, {})
    return open_channel(caller, native_id, root, mounts, lambda: "is a volume without its box: nothing runs on it")


def closed(record: BoxRecord) -> str:
    """Why nothing may run on it, as the end of a sentence; empty when something may."""
    if record.phase.at_rest:
        return f"is {record.phase}: nothing runs on it until it is started again"
    return "is being destroyed: nothing is started on it any more" if record.phase is Phase.ENDING else ""
