"""Hosts that do not answer in time: later steps skip them, and the likely cause is tested."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from sweepstack.channel.ssh import mtu as ssh_mtu
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.platforms.registry import has_address, load_platform
from sweepstack.status.snapshot import BoxSnapshot

LOOK_SECONDS = 20.0
"""The most seconds for one box to answer all questions."""
LATE = f"it did not answer within {LOOK_SECONDS:.0f} s"
TRY_SECONDS = 5.0
"""Seconds without an answer after which a test for the cause starts, while the command still waits for the box."""

ValueT = TypeVar("ValueT")


def late_hosts(box_snapshots: Iterable[BoxSnapshot]) -> frozenset[str]:
    """The hosts with no box that answered in time. Asking them again would take as long and give no answer."""
    answered: dict[str, bool] = {}
    for box_snapshot in box_snapshots:
        if has_address(box_snapshot.box.adapter):
            answered[box_snapshot.box.adapter] = (
                answered.get(box_snapshot.box.adapter, False) or box_snapshot.seen.note != LATE
            )
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


def remedied(box_snapshot: BoxSnapshot) -> BoxSnapshot:
    """The box's snapshot with the cause of the silence added to its note, if the test has found one."""
    if box_snapshot.seen.note != LATE or not has_address(box_snapshot.box.adapter):
        return box_snapshot
    try:
        endpoint = getattr(box_snapshot.box.context().platform, "endpoint", None)
    except SweepstackError:
        return box_snapshot
    more = ssh_mtu.last_advice(endpoint.host, endpoint.port) if endpoint is not None else ""
    return replace(box_snapshot, seen=replace(box_snapshot.seen, note=f"{LATE}{more}")) if more else box_snapshot
