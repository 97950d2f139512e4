"""Asking an account what it has left, within a few seconds: a screen that shows it waits for nothing longer."""

from __future__ import annotations

from provider.platforms.offers import Balance, Capability
from provider.platforms.registry import load_platform
from sweep.errors import SweepstackError
from sweep.money.balance import Left
from sweep.parallel import in_parallel

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
