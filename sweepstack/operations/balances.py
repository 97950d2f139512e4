"""Asking an account what it has left, within a few seconds: a screen that shows it waits for nothing longer."""

from __future__ import annotations

from sweepstack.billing.balance import Left
from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.offers import Balance, Capability
from sweepstack.platforms.registry import load_platform

BALANCE_SECONDS = 5.0


def left_at(adapter: str) -> Left | None:
    """None where the platform has no balance, or the key may not see it. Reads only; never raises."""

    def ask() -> Balance | SweepstackError | None:
        try:
            return platform.balance()
        except SweepstackError as error:
            return error

    try:
        platform = load_platform(adapter)
    except SweepstackError:
        return None
    if Capability.BALANCE not in platform.capabilities:
        return None
    said = in_parallel({adapter: ask}, BALANCE_SECONDS)
    answer = said.get(adapter, SweepstackError("it did not answer in time"))
    if isinstance(answer, SweepstackError):
        return Left(adapter, None)
    return None if answer is None else Left(adapter, answer.usd, answer.prepaid)
