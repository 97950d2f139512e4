"""Asks an account for its balance, and waits a few seconds at most: a screen shows the answer."""

from __future__ import annotations

from functools import partial

from sweepstack.billing.balance import Left
from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.capabilities import HasBalance
from sweepstack.onbox.host.offers import Balance
from sweepstack.platforms.registry import load_platform

BALANCE_SECONDS = 5.0


def left_at(adapter: str) -> Left | None:
    """What the account has left and what bills on it; None if the platform has no balance. What could not be asked is
    unknown, with why. Reads only; never raises."""
    try:
        platform = load_platform(adapter)
    except SweepstackError:
        return None
    if not isinstance(platform, HasBalance):
        return None
    said = in_parallel({adapter: partial(_ask, platform)}, BALANCE_SECONDS)
    answer = said.get(adapter, SweepstackError(f"it did not answer within {BALANCE_SECONDS:g} s"))
    if isinstance(answer, SweepstackError):
        return Left(adapter, None, why=str(answer))
    if answer is None:
        return Left(adapter, None, why="this key may not see it")
    return Left(adapter, answer.usd, answer.prepaid, answer.per_hour, answer.volumes)


def _ask(platform: HasBalance) -> Balance | SweepstackError | None:
    try:
        return platform.balance()
    except SweepstackError as error:
        return error
