"""Hosts that do not answer in time: later steps skip them, and the likely cause is tested."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from sweepstack.channel.ssh import mtu as ssh_mtu
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.platforms.registry import has_address, load_platform
from sweepstack.status.snapshot import Sight

LOOK_SECONDS = 20.0
"""The most seconds for one box to answer all questions."""
LATE = f"it did not answer within {LOOK_SECONDS:.0f} s"
TRY_SECONDS = 5.0
"""Seconds without an answer after which a test for the cause starts, while the command still waits for the box."""

ValueT = TypeVar("ValueT")


def late_hosts(sights: Iterable[Sight]) -> frozenset[str]:
    """The hosts with no box that answered in time. Asking them again would take as long and give no answer."""
    answered: dict[str, bool] = {}
    for sight in sights:
        if has_address(sight.box.adapter):
            answered[sight.box.adapter] = answered.get(sight.box.adapter, False) or sight.seen.note != LATE
    return frozenset(adapter for adapter, any_of_them in answered.items() if not any_of_them)


def beside(adapter: str, look: Callable[[], ValueT]) -> tuple[Callable[[], ValueT], Callable[[], None]]:
    """Two calls to run in parallel: the look at a host's box, and the test for why it does not answer."""
    came = threading.Event()

    def looked() -> ValueT:
        try:
            return look()
        finally:
            came.set()

    def tried() -> None:
        if not came.wait(TRY_SECONDS):
            _try(adapter)

    return looked, tried


def _try(adapter: str) -> None:
    """Runs the test; `ssh_mtu.known` keeps its result."""
    try:
        way = getattr(load_platform(adapter), "way", None)
    except SweepstackError:
        return
    if way is not None:
        ssh_mtu.advice(way)


def remedied(sight: Sight) -> Sight:
    """The sight with the cause of the silence added to its note, if the test has found one."""
    if sight.seen.note != LATE or not has_address(sight.box.adapter):
        return sight
    try:
        endpoint = getattr(sight.box.context().platform, "endpoint", None)
    except SweepstackError:
        return sight
    more = ssh_mtu.known(endpoint.host, endpoint.port) if endpoint is not None else ""
    return replace(sight, seen=replace(sight.seen, note=f"{LATE}{more}")) if more else sight
