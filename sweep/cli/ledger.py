"""`sweepctl ledger`: every box ever rented for a sweep: hours, rates, USD, and why it ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sweep.cli.look import open_sources
from sweep.cli.output import UNSURE, YES, Out, Unsure, money
from sweep.cli.progress import Progress
from sweep.cli.target import Target
from sweep.money.ledger import Bill, Spent, spent


def ledger(target: Target, out: Out) -> int:
    """Exit code: 0 when every bill is known in full, 2 when a part of it is not."""
    with Progress("reading the ledger"):
        sources = open_sources(target)
        if sources.store is None:
            raise Unsure(
                f"the ledger is in the evidence: {sources.problem or 'nothing was rented yet'}",
                [f"sweepctl status --stack {target.stack}"],
            )
        found = spent(sources.store, datetime.now(UTC))
    out.document({"stack": target.stack, **as_json(found)})
    render(found, target.stack, out)
    return YES if found.complete else UNSURE


def as_json(found: Spent) -> dict[str, Any]:
    """The documented shape of `sweepctl ledger --json`."""
    return {
        "usd": round(found.usd, 6),
        "hours": round(found.hours, 6),
        "per_hour": found.per_hour,
        "complete": found.complete,
        "problems": list(found.problems),
        "boxes": [_row(bill, found.at) for bill in found.bills],
    }


def _row(bill: Bill, now: datetime) -> dict[str, Any]:
    return {
        "box": bill.box,
        "native_id": bill.native_id,
        "platform": bill.platform,
        "account": bill.account,
        "generation": bill.generation,
        "from": bill.begin.isoformat() if bill.begin else None,
        "to": bill.ended_at.isoformat() if bill.ended_at else None,
        "ended": bill.ended_how or None,
        "hours": round(bill.hours(now), 6),
        "usd": bill.usd(now),
        "problem": bill.problem or None,
        "spans": [
            {
                "phase": span.phase,
                "price_per_hour": span.price_per_hour,
                "from": span.begin.isoformat(),
                "to": span.end.isoformat() if span.end else None,
                "hours": round(span.hours(now), 6),
                "usd": span.usd(now),
            }
            for span in bill.spans
        ],
    }


def render(found: Spent, stack: str, out: Out) -> None:
    """The table for people: one line a box and rate, then the sum."""
    rows = [row for bill in found.bills for row in _lines(bill, found.at)]
    if rows:
        out.table(("BOX", "ID", "WHERE", "FROM", "PHASE", "HOURS", "$/H", "USD", "END"), rows)
    for problem in found.problems:
        out.line(f"note   {problem}")
    bound = "" if found.complete else "at least "
    goes_on = f"; ${found.per_hour:.2f}/h goes on" if found.per_hour else ""
    out.line(f"total  {bound}${found.usd:.2f}, {found.hours:.2f} hours of running boxes{goes_on}", style="bold")
    out.next([f"sweepctl status --stack {stack}"])


def _lines(bill: Bill, now: datetime) -> list[tuple[str, ...]]:
    if not bill.spans:
        return [(bill.box, bill.native_id, bill.platform, "?", "?", "?", "?", "?", bill.problem)]
    lines: list[tuple[str, ...]] = []
    for index, span in enumerate(bill.spans):
        last = index == len(bill.spans) - 1
        end = "" if not last else "goes on" if span.end is None else bill.ended_how or "ended"
        who = (bill.box, bill.native_id, bill.platform) if index == 0 else ("", "", "")
        begin = span.begin.astimezone().strftime("%Y-%m-%d %H:%M")
        lines.append(
            (
                *who,
                begin,
                span.phase,
                f"{span.hours(now):.2f}",
                money(span.price_per_hour),
                money(span.usd(now)),
                end,
            )
        )
    return lines
