"""Reads what ssh said when it failed: which host said it, and which key was refused."""

from __future__ import annotations

import re
import subprocess

from sweepstack.channel.host_keys import HostKeyChanged, changed
from sweepstack.channel.ssh.options import Way

SECONDS = 45.0
_ZLIB = re.compile(r"\bx\ufffd")
"""How compressed bytes begin, read as text."""


def explained(way: Way, said: str) -> str:
    """What was said, and on a way through other hosts what they say: over a connection that is to stay, ssh throws that
    away. So it is asked once more, alone. Never raises; blocks for the time that a connection takes."""
    if (way.via is None and not way.proxy) or wrong_key(way, said) or turned_away(way, said):
        return said
    command = [*way.command("-T", shared=False), "exit"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return said
    return done.stderr[-4000:].decode("utf-8", "replace").strip() or said


def quotes_ours(said: str) -> bool:
    """Whether a program there quotes the compressed program that was sent for python3: it has read that itself."""
    return _ZLIB.search(said) is not None or any(letter < " " and letter not in "\a\b\t\n\r\x1b" for letter in said)


def said_last(way: Way, said: str) -> str:
    """What ssh said at its end; on a way through other hosts, which of them said it, too."""
    lines = said.splitlines() or [""]
    return lines[-1] if way.via is None and not way.proxy else "; ".join(lines[-2:])


def wrong_key(way: Way, said: str) -> HostKeyChanged | None:
    """The error where ssh said that a host key is not the pinned one: the box's, or that of a host on the way to it."""
    if "HOST IDENTIFICATION HAS CHANGED" not in said and "Host key verification failed" not in said:
        return None
    named = (one for one in way.chain if str(one.pin.path) in said or one.pin.alias in said)
    where = next(named, way)
    return changed(where.pin, where.endpoint)


def turned_away(way: Way, said: str) -> Way | None:
    """Whose sshd did not take the key, where ssh said that one did not."""
    if "Permission denied (" not in said:
        return None
    named = (one for one in way.chain if f"{one.endpoint.user}@{one.endpoint.host}: Permission denied" in said)
    return next(named, way)
