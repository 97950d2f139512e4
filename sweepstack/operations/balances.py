"""Asks an account for its balance, and waits a few seconds at most: a screen shows the answer."""

from __future__ import annotations

from functools import partial

from sweepstack.billing.balance import BalanceLeft
from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.capabilities import Wallet
from sweepstack.onbox.host.offers import Balance
from sweepstack.platforms.registry import has_wallet, load_platform, load_wallet

BALANCE_SECONDS = 5.0


def left_at(payer: str) -> BalanceLeft | None:
    """What the account has left and what bills on it; None if the platform has no balance, or a wallet no key here.
    What could not be asked is unknown, with why. Reads only; never raises.

    `payer`: an adapter, or a platform with a wallet (`registry.payer`).
    """
    try:
        account = load_wallet(payer) if has_wallet(payer) else load_platform(payer)
    except SweepstackError as error:
        return BalanceLeft(payer, None, why=str(error)) if has_wallet(payer) else None
    if not isinstance(account, Wallet):
        return None
    said = in_parallel({payer: partial(_ask, account)}, BALANCE_SECONDS)
    answer = said.get(payer, SweepstackError(f"it did not answer within {BALANCE_SECONDS:g} s"))
    if isinstance(answer, SweepstackError):
        return BalanceLeft(payer, None, why=str(answer))
    if answer is None:
        return BalanceLeft(payer, None, why="this key may not see it")
    return BalanceLeft(payer, answer.usd, answer.prepaid, answer.per_hour, answer.volumes, said=answer.said)


def _ask(account: Wallet) -> Balance | SweepstackError | None:
    try:
        return account.balance()
    except SweepstackError as error:
        return error
