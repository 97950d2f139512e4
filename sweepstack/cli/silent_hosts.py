"""Hosts that answer no look in time: whom no later step asks again, and why nothing comes from them."""

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
"""How long one box may take to answer all questions."""
LATE = f"it did not answer within {LOOK_SECONDS:.0f} s"
TRY_SECONDS = 5.0
"""After so much silence it is tried why nothing comes, beside the look, which goes on: a slow line loses nothing."""

ValueT = TypeVar("ValueT")


def late_hosts(sights: Iterable[Sight]) -> frozenset[str]:
    """The hosts of which no box answered in time. To ask one of them again would take as long, and tell no more."""
    answered: dict[str, bool] = {}
    for sight in sights:
        if has_address(sight.box.adapter):
            answered[sight.box.adapter] = answered.get(sight.box.adapter, False) or sight.seen.note != LATE
    return frozenset(adapter for adapter, any_of_them in answered.items() if not any_of_them)


def beside(adapter: str, look: Callable[[], ValueT]) -> tuple[Callable[[], ValueT], Callable[[], None]]:
    """The look at a host's box, and what is to run beside it: it tries why nothing comes, while nothing does."""
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
    """Keeps what is found for `ssh_mtu.known`."""
    try:
        way = getattr(load_platform(adapter), "way", None)
    except SweepstackError:
        return
    if way is not None:
        ssh_mtu.advice(way)


def remedied(sight: Sight) -> Sight:
    """The same, with what was found meanwhile of why nothing came in time from its host, where that is known."""
    if sight.seen.note != LATE or not has_address(sight.box.adapter):
        return sight
    try:
        endpoint = getattr(load_platform(sight.box.adapter), "endpoint", None)
    except SweepstackError:
        return sight
    more = ssh_mtu.known(endpoint.host, endpoint.port) if endpoint is not None else ""
    return replace(sight, seen=replace(sight.seen, note=f"{LATE}{more}")) if more else sight
