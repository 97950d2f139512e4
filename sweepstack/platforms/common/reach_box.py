"""Reaches a rented box, and proves that it is ready.

Then its sshd accepts our key, and a command runs there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel

SECONDS = 10.0
"""Limit for one look of `why_silent`."""
ON = True
"""False in tests against a simulated API: there is no machine behind its boxes to connect to."""


def channel_to(
    record: BoxRecord, closed: Mapping[Phase, str], *, root: str, mounts: Mapping[str, str] | None = None
) -> SshChannel:
    """A channel to a box; it does not connect yet. `closed`: phase → why nothing can be done there, as the end of a
    sentence. `root`, `mounts`: as in `SshChannel`. Raises Unreachable for a box that is gone or has no address,
    PlatformError for one in a phase of `closed`."""
    native_id, phase = record.native_id, record.phase
    if phase is Phase.GONE:
        raise Unreachable(f"{native_id} can't be reached: it is gone")
    if phase in closed:
        raise PlatformError(f"{native_id} {closed[phase]}")
    if record.endpoint is None:
        raise Unreachable(f"{native_id} has no address ({phase}): {record.note or 'wait for it'}")
    from sweepstack.channel.ssh.channel import SshChannel

    return SshChannel(native_id, record.endpoint, root=root, mounts=mounts)


def runs(channel: SshChannel, command: Sequence[str], *, seconds: float) -> str:
    """Runs `command` on the box, `seconds` at most. Returns "" when it ended with 0, else why it did not. Closes the
    channel. Raises what the channel raises."""
    try:
        channel.prepare()
        ended = channel.run(list(command), timeout=seconds)
    finally:
        channel.close()
    return "" if ended.returncode == 0 else f"`{command[0]}` ended with {ended.returncode} on it"


def why_silent(channel_to: Callable[[], SshChannel], command: Sequence[str]) -> str:
    """Connects and runs `command`. Returns why the box can't be used yet; "" when it can, and while `ON` is False."""
    if not ON:
        return ""
    try:
        return runs(channel_to(), command, seconds=SECONDS)
    except PlatformError as error:
        return str(error)
