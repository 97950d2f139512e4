"""Proves that a rented box is ready: its sshd accepts our key, and a command runs there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sweepstack.onbox.common.errors import PlatformError

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel

SECONDS = 10.0
"""Limit for one look of `why_silent`."""
ON = True
"""False in tests against a simulated API: there is no machine behind its boxes to connect to."""


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
