"""Alerts of a budget's thresholds: each is sent once, and recorded in the evidence."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from pydantic import AwareDatetime

from sweepstack.billing.budget import Budget, Use, crossed
from sweepstack.billing.forecast import Forecast
from sweepstack.billing.webhook import post
from sweepstack.core.records import Record
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceError

if TYPE_CHECKING:
    from sweepstack.evidence.store import EvidenceStore

STALE = timedelta(minutes=2)
"""Seconds. An alert that was begun this long ago and is not on record as sent: its sender died."""
FOLDER = "notices"


class Notice(Record):
    """A threshold of one budget, and whether its message went out. A raised budget has thresholds of its own."""

    threshold: float
    usd: float | None
    hours: float | None
    state: Literal["sending", "told"]
    at: AwareDatetime


@dataclass
class Alert:
    """An alert that a thread sends; the thread dies with the process. `wait` returns why it failed, or ""."""

    threshold: float
    problem: str = ""
    _done: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float) -> str:
        """Blocks for at most so long: "" when it was sent, else why not, or that it is still under way."""
        if not self._done.wait(seconds):
            return f"the webhook has not answered within {seconds:g} s; the next look tries again"
        return self.problem


def tell(
    store: EvidenceStore, budget: Budget, use: Use, seen: Forecast, *, stack: str, per_hour: float | None
) -> Alert | None:
    """Begins to tell the webhook of the highest threshold that was crossed and not reported yet.

    None when there is nothing to tell. Returns at once; never raises: money is told of, nothing waits for it.
    """
    if budget.webhook is None:
        return None
    try:
        now = datetime.now(UTC)
        known = [notice for notice in store.records(FOLDER, Notice) if _same(notice, budget)]
        told = [notice.threshold for notice in known if notice.state == "told" or now - notice.at < STALE]
    except EvidenceError as error:
        return _failed(0.0, f"who was told of the budget is not known: {error}")
    threshold = crossed(budget, use, told)
    if threshold is None:
        return None
    url = os.environ.get(budget.webhook)
    if not url:
        return _failed(
            threshold, f"{budget.webhook} is not set here, so no alert was sent that {_part(threshold)} is used"
        )
    alert = Alert(threshold)
    body = message(budget, use, seen, stack=stack, threshold=threshold, per_hour=per_hour)
    threading.Thread(target=_send, args=(alert, store, budget, url, body), daemon=True, name="webhook").start()
    return alert


def message(
    budget: Budget, use: Use, seen: Forecast, *, stack: str, threshold: float, per_hour: float | None
) -> dict[str, Any]:
    """The JSON body. `text` is what chat services show; the rest is for programs."""
    words = [f"{stack}: {_part(threshold)} of the budget is used: {use.text()}"]
    if seen.text(budget):
        words.append(seen.text(budget))
    if per_hour:
        words.append(f"${per_hour:.2f}/h goes on")
    if threshold >= 1:
        words.append("nothing more is rented" + ("; boxes are stopped where they can be" if budget.stop else ""))
    return {
        "text": "; ".join(words) + f". Look: sweepctl status --stack {stack}",
        "stack": stack,
        "threshold": threshold,
        "used": {"usd": round(use.usd, 4), "hours": round(use.hours, 4), "fraction": round(use.fraction, 4)},
        "budget": {"usd": budget.usd, "hours": budget.hours},
        "projected": {"usd": seen.usd, "hours": seen.hours},
        "per_hour": per_hour,
    }


def _send(alert: Alert, store: EvidenceStore, budget: Budget, url: str, body: Mapping[str, Any]) -> None:
    name = _name(budget, alert.threshold)
    try:
        if _claim(store, name, budget, alert.threshold):
            why = post(url, body)
            if why:
                alert.problem = (
                    f"the webhook ({budget.webhook}) was not told that {_part(alert.threshold)} is used: {why}"
                )
                store.write_record(name, None)  # the next look tries again at once
            else:
                store.write_record(name, _notice(budget, alert.threshold, "told"))
    except EvidenceError as error:
        alert.problem = f"that the webhook was told is not on record: {error}"
    finally:
        alert._done.set()


def _claim(store: EvidenceStore, name: str, budget: Budget, threshold: float) -> bool:
    """Whether this process is the one that sends it."""
    held = store.record(name, Notice)
    if held is not None and (held.state == "told" or datetime.now(UTC) - held.at < STALE):
        return False
    try:
        store.write_record(name, _notice(budget, threshold, "sending"))
    except EvidenceChanged:
        return False
    return True


def _notice(budget: Budget, threshold: float, state: Literal["sending", "told"]) -> Notice:
    return Notice(threshold=threshold, usd=budget.usd, hours=budget.hours, state=state, at=datetime.now(UTC))


def _name(budget: Budget, threshold: float) -> str:
    limits = f"{budget.usd or 0:g}usd-{budget.hours or 0:g}h"
    return f"{FOLDER}/{limits}-{threshold:g}.json"


def _same(notice: Notice, budget: Budget) -> bool:
    return (notice.usd, notice.hours) == (budget.usd, budget.hours)


def _part(threshold: float) -> str:
    return f"{threshold:.0%}".replace("%", " %")


def _failed(threshold: float, problem: str) -> Alert:
    alert = Alert(threshold, problem)
    alert._done.set()
    return alert
