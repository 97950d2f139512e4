"""`sweepctl ledger --against-bill`: the ledger beside what each platform says that it billed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sweepstack.billing.ledger import Bill, Spent, without_price
from sweepstack.billing.vendor_bill import LAG_HOURS, Line, compare
from sweepstack.cli.output import NO, UNSURE, YES, Out, count, money
from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.errors import PlatformError, SweepstackError
from sweepstack.onbox.host.billed import Billed
from sweepstack.onbox.host.capabilities import HasBill
from sweepstack.onbox.host.platform import Platform
from sweepstack.platforms.registry import need

SECONDS = 60.0
Load = Callable[[str], Platform]


@dataclass
class Compared:
    """`others`: what else is on the accounts' bills; `unknown`: what could not be compared, with why."""

    lines: list[Line] = field(default_factory=list)
    others: list[Billed] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def code(self) -> int:
        """1 if a line differs or is missing on a side, 2 if something could not be compared, else 0."""
        if any(line.verdict not in ("agrees", "unknown") for line in self.lines):
            return NO
        return UNSURE if self.unknown or any(line.verdict == "unknown" for line in self.lines) else YES

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
        return {
            "lines": [line.as_json() for line in self.lines],
            "others": {"boxes": len(self.others), "usd": round(sum(one.usd for one in self.others), 6)},
            "unknown": self.unknown,
        }


def against_bill(found: Spent, prefix: str, load: Load) -> Compared:
    """Asks every platform of the ledger for its bill, side by side. Reads only; blocks for `SECONDS` at most. `load`:
    the platform behind an adapter's name; `prefix`: the beginning of the tags of this sweep."""
    result = Compared()
    platforms = sorted({bill.platform for bill in found.bills if bill.begin is not None})
    asked = {
        name: partial(_ask, load, name, [b for b in found.bills if b.platform == name], found) for name in platforms
    }
    told = in_parallel(asked, SECONDS)
    for name in platforms:
        answer = told.get(name, f"it did not answer within {SECONDS:.0f} s")
        if isinstance(answer, str):
            result.unknown.append(f"the bill of {name} is not known: {answer}")
            continue
        lines, others = compare(found.bills, answer, found.at, name, prefix)
        result.lines += lines
        result.others += others
    return result


def _ask(load: Load, adapter: str, bills: Sequence[Bill], found: Spent) -> list[Billed] | str:
    begin = min(bill.begin for bill in bills if bill.begin is not None)
    try:
        platform = need(load(adapter), HasBill)
        who, billed = platform.account(), platform.billed(begin, found.at)
        shown = {one.native_id for one in billed}
        ours = {
            who,
            *(bill.account for bill in bills if bill.native_id in shown),
        }  # a box on the bill names its account
        if other := sorted({bill.account for bill in bills} - ours):
            raise PlatformError(f"the key at hand is of account {who}, and boxes were rented with {', '.join(other)}")
        return billed
    except SweepstackError as error:
        return str(error)


def render(result: Compared, out: Out) -> None:
    """Prints the table, what else is on the bill, and what counts as rounding."""
    rows = [
        (
            line.box,
            line.native_id,
            line.platform,
            f"{'≥ ' if line.unpriced and line.ours is not None else ''}{money(line.ours)}",
            money(line.theirs),
            money(line.traffic) if line.traffic else "",
            "" if line.difference is None else f"{line.difference:+.2f}",
            line.verdict,
        )
        for line in result.lines
    ]
    if rows:
        out.table(("BOX", "ID", "WHERE", "LEDGER", "BILL", "TRAFFIC", "DIFFERENCE", ""), rows)
    if result.others:
        usd = sum(one.usd for one in result.others)
        out.line(
            f"note   also on the bill, and not of this sweep's ledger: {count(len(result.others), 'box')}, ${usd:.2f}"
        )
    for line in result.lines:
        if line.unpriced and line.ours is not None:
            least = f"at least ${line.ours:.2f}{without_price(line.unpriced)}"
            out.line(f"note   {line.box} ({line.native_id}) has cost {least}: its bill can't be compared")
    for why in result.unknown:
        out.line(f"UNKNOWN {why}", style="yellow")
    if rows:
        out.line(
            f"note   rounding: a cent, and {LAG_HOURS * 60:.0f} min at the box's price, since platforms post charges "
            "later; the ledger counts no traffic"
        )
