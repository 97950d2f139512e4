"""The last proof that a rented box is ready: its sshd lets us in, and a command runs there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel

ON = True
"""False in tests of an API alone: no machine stands behind its boxes, so what the API says of them is enough."""


def runs(channel: SshChannel, command: Sequence[str], *, seconds: float) -> str:
    """Why `command` does not run there; "" when it does. Closes the channel. Raises what the channel raises."""
    try:
        channel.prepare()
        ended = channel.run(list(command), timeout=seconds)
    finally:
        channel.close()
    return "" if ended.returncode == 0 else f"`{command[0]}` ended with {ended.returncode} on it"
