"""Finds out whether large packets are lost on the way to a box while small ones arrive.

Such a way (a VPN or a tunnel whose MTU is smaller than the one that is set, and a router that says nothing) lets a
connection be made, and then nothing comes: at the exchange of keys, or at the first file. By itself it looks like a
host that hangs.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sweepstack.channel.agent_source import ONBOX
from sweepstack.onbox.common.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from sweepstack.channel.ssh.options import Way

SMALL_SEGMENTS = ONBOX / "common" / "small_segments.py"

ENOUGH = 1 << 16
SMALL_SECONDS, LARGE_SECONDS = 20.0, 10.0


AGAIN_SECONDS = 60.0
"""For so long it is not tried again at one address: a command that asks on would wait for that each time."""


@dataclass
class _Tried:
    """What was found at one address, and when. `lock`: who asks at once waits for the one answer."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    at: float = -AGAIN_SECONDS
    found: str = ""


_TRIED: dict[tuple[str, int], _Tried] = {}


def advice(way: Way) -> str:
    """To be added to the words about a box from which nothing came: what to do where a connection of small packets gets
    through now, and one as usual does not. Empty otherwise, and for ways through other hosts.

    Never raises; blocks for up to half a minute, once a minute for each address. Pins nothing, and refuses a
    host that does not show the pinned key."""
    if way.via is not None or way.proxy:
        return ""
    tried = _TRIED.setdefault((way.endpoint.host, way.endpoint.port), _Tried())
    with tried.lock:
        if time.monotonic() - tried.at >= AGAIN_SECONDS:
            tried.found = _tried(way)
            tried.at = time.monotonic()
        return tried.found


def last_advice(host: str, port: int) -> str:
    """What `advice` found at this address in the last minute; "" where it has not tried, or is still trying."""
    tried = _TRIED.get((host, port))
    return tried.found if tried is not None and time.monotonic() - tried.at < AGAIN_SECONDS else ""


def _tried(way: Way) -> str:
    words = [sys.executable, "-I", "-S", str(SMALL_SEGMENTS), way.endpoint.host, str(way.endpoint.port)]
    small = replace(way, proxy=shlex.join(words).replace("%", "%%"))
    if not _gets_through(small, SMALL_SECONDS, "-o", "ProxyUseFdpass=yes") or _gets_through(way, LARGE_SECONDS):
        return ""
    return (
        f". Small packets get there, and large ones vanish on the way: its MTU is less than yours (a VPN, a tunnel). "
        f"`ip route get {way.endpoint.host}` names the interface. Next: `sudo ip link set dev NAME mtu 1280`, and the "
        f"same command again, which goes on where it was"
    )


def _gets_through(way: Way, seconds: float, *options: str) -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired), tempfile.TemporaryDirectory() as folder:
        known = None if way.pin.pinned else Path(folder) / "known"  # until then a key that is shown is all there is
        asked = "exit" if known else f"head -c {ENOUGH} /dev/zero"
        done = subprocess.run(
            [*way.command("-T", *options, shared=False, known=known), asked],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            start_new_session=True,
        )
        return known.is_file() if known else len(done.stdout) >= ENOUGH
    return False
