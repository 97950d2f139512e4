"""Adds to a platform's error the name of the box, what may bill, and the next command.

Adapters know calls and no sweeps: "the platform does not answer" says neither which box may bill meanwhile, nor how to
go on. Handlers that ask them about a box add that here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from sweepstack.billing.ledger import bill_of
from sweepstack.billing.unlaunched import unheld
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.onbox.common.errors import (
    EvidenceError,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    StillCreating,
    Unreachable,
    WrongAccount,
)
from sweepstack.onbox.common.units import spell_rate
from sweepstack.provider.next_command import ended, with_next
from sweepstack.provider.session import Operation
from sweepstack.teardown.refusal import of_box

_UNSURE = (Unreachable, OutcomeUnknown, NotAuthorized, WrongAccount)
"""After these errors it is not known what an earlier try has left; after any other the platform has answered."""


def became(before: str, now: str) -> str:
    """`locked → cleared by receipt …`; for a box that stays locked, only the new reason."""
    return now if before.startswith("locked") and now.startswith("locked") else f"{before} → {now}"


@contextmanager
def naming(op: Operation, evidence: Evidence, box: str) -> Iterator[None]:
    """Raises errors of a platform again, of the same type, with the box's name, what of it may bill, and the next
    command."""
    try:
        yield
    except StillCreating as error:
        whose = f"box {box} ({error.identifier})"
        reasons = [
            _complete(op, reason if _names(reason, box) or error.identifier in reason else f"{whose}: {reason}")
            for reason in error.reasons
        ]
        raise StillCreating(error.identifier, error.outputs, reasons) from error
    except PlatformError as error:
        words = of_box(str(error), box, op.stack)
        bills = _may_bill(evidence, box, error)
        named = words if _names(words, box) else f"box {box}: {words}"
        raise type(error)(_complete(op, f"{ended(named)} {bills}" if bills else named)) from error


def _complete(op: Operation, words: str) -> str:
    return with_next(words, f"pulumi up --stack {op.stack}")


def _names(words: str, box: str) -> bool:
    return re.search(rf"\bbox {re.escape(box)}\b", words) is not None


def _may_bill(evidence: Evidence, box: str, error: PlatformError) -> str:
    """A sentence about what may bill of this box, by the records; "" if they have nothing, or the error says it."""
    try:
        store = evidence.store
        births = [birth for birth in store.births() if birth.box == box]
    except EvidenceError:
        return ""
    last = max(births, key=lambda birth: birth.generation, default=None)
    if last is None or last.ended_at is not None:
        return ""
    if last.native_id is not None:
        # The bill knows of stops and of changed prices.
        bill = bill_of(store, box, last.generation, last.native_id, datetime.now(UTC))
        price = bill.per_hour if bill is not None and bill.open is not None else last.price_per_hour
        bare = [one for one in unheld(store, [last], datetime.now(UTC)) if one.over]
        since = f" since {last.begun_at:%Y-%m-%d %H:%M} UTC, and nothing was launched on it" if bare else ""
        return f"{last.native_id} on {last.platform} may bill{_price(price)}{since}."
    if last.asked_at is not None and isinstance(error, _UNSURE) and last.tag not in str(error):
        would = f"would bill{_price(last.price_per_hour)}"
        return f"What an earlier try may have rented carries the tag {last.tag} and {would}."
    return ""


def _price(per_hour: float | None) -> str:
    return "" if per_hour is None else f" ${spell_rate(per_hour)}/h"
