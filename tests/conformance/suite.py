"""Words that the suite's files share."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Platform, Wait

PREFIX = f"sweepstack-{os.environ.get('SWEEPSTACK_SUITE_IDENTITY', 'a1b2c3')}-"
"""Of all that the suite rents; a run against a real platform (`tests/live`) has one of its own."""
TAG = f"{PREFIX}box-0-g1"
VOLUME = f"{PREFIX}volume-durable"
able = pytest.mark.able.with_args
"""`@able(CanStop)`: of platforms of this kind alone."""
SLEEP = ("-c", "import time; time.sleep(300)")
STUBBORN_FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited by forks, and ignored signals by exec too
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        program = "import time; print('up', flush=True); time.sleep(300)"
        os.execve(sys.executable, [sys.executable, "-c", program], dict(os.environ))
    time.sleep(300)
time.sleep(300)
"""


class Renter:
    """Rents what the harness asks for, with what a test changes in it; blocks until it is ready."""

    def __init__(self, harness: Any, platform: Platform) -> None:
        self._harness, self._platform = harness, platform

    def __call__(self, platform: Platform | None = None, *, deadline: float = 60, **changes: Any) -> BoxRecord:
        asked: BoxRequest = self._harness.request(changes.pop("tag", TAG), **changes)
        return (platform or self._platform).create(asked, wait=Wait(deadline))


def same_box(one: BoxRecord, other: BoxRecord) -> bool:
    """Two readings of one box in one phase; where it answers may have changed in between."""
    keys = ("native_id", "tag", "account", "phase", "created_at", "price_per_hour")
    return all(getattr(one, key) == getattr(other, key) for key in keys)


def start_stubborn_family(channel: Channel) -> None:
    """Three processes that ignore SIGTERM, two of them in sessions of their own."""
    channel.write("data/here", b"")
    channel.spawn([channel.python, "-c", STUBBORN_FAMILY], cwd="data", env={}, log="data/log.txt")
    begin = time.monotonic()
    while b"up" not in channel.read("data/log.txt") or len(channel.processes()) < 3:
        assert time.monotonic() - begin < 120, "the family did not start"
        time.sleep(0.02)


def spawn_sleeper(channel: Channel) -> None:
    """One process that stays."""
    channel.write("data/here", b"")
    channel.spawn([channel.python, *SLEEP], cwd="data", env={}, log="data/log.txt")


def all_ended(channel: Channel) -> bool:
    """Nothing runs there any more, or there is no such place any more."""
    try:
        return channel.processes() == []
    except Unreachable:
        return True
