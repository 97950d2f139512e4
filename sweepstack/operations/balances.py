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
    """What the account has left; None if the platform has no balance, or the key may not see it. Reads only; never
    raises."""
    try:
        platform = load_platform(adapter)
    except SweepstackError:
        return None
    if not isinstance(platform, HasBalance):
        return None
    said = in_parallel({adapter: partial(_ask, platform)}, BALANCE_SECONDS)
    answer = said.get(adapter, SweepstackError("it did not answer in time"))
    if isinstance(answer, SweepstackError):
        return Left(adapter, None)
    return None if answer is None else Left(adapter, answer.usd, answer.prepaid)


def _ask(platform: HasBalance) -> Balance | SweepstackError | None:
    try:
        return platform.balance()
    except SweepstackError as error:
        return error
