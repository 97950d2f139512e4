"""`sweepctl ledger`: every box ever rented for a sweep: hours, rates, USD, and why it ended.

`sweepctl ledger --against-bill`: the ledger beside what each platform says that it billed. `--all`: of all sweeps of
this backend, by an extension.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer

from sweepstack.billing.egress import Egress, copied, egress_words
from sweepstack.billing.ledger import LAG_HOURS, Bill, Line, Spent, compare, spent, without_price
from sweepstack.billing.stray import Stray, leftover_lines
from sweepstack.cli.extension import of_extension
from sweepstack.cli.options import AsJson, Stack, one_of
from sweepstack.cli.output import NO, UNSURE, YES, Out, money, size
from sweepstack.cli.progress import Progress
from sweepstack.core.extensions import part_of
from sweepstack.core.journal import could_not_stop
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged, PlatformError, SweepstackError, Unsure
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.onbox.host.capabilities import Billed, HasBill
from sweepstack.onbox.host.platform import Phase, Platform
from sweepstack.operations.observe import look_up
from sweepstack.operations.strays.beside_sweep import entry_of
from sweepstack.operations.strays.volumes import leftovers
from sweepstack.operations.sweep.collect import LOOK_SECONDS
from sweepstack.operations.sweep.egress import prices
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target, project_root
from sweepstack.platforms.registry import load_platform, need
from sweepstack.status.engine.state import BoxEntry, StackState
from sweepstack.teardown.close_box import StillBilled, still_billed


def command(
    stack: Stack = None,
    against_bill: Annotated[
        bool,
        typer.Option("--against-bill", help="Compare it with what each platform says that it billed. Exit 1: differs."),
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="What all sweeps of this backend cost, and who rented.")] = False,
    form: Annotated[
        str, typer.Option("--as", metavar="csv", help="With --all: the table for other programs.")
    ] = "table",
    json: AsJson = False,
) -> int:
    """Show every box ever rented: hours, rate, USD, why it ended. Exit 2: a part of the bill is not known."""
    one_of(form, "table", "csv", option="--as")
    out = Out(as_json=json)
    if (against_bill and all_) or (form == "csv" and (json or not all_)):
        raise Unsure("--as csv goes with --all and without --json, --against-bill with one sweep")
    if all_:
        return of_extension("answers", "all_sweeps", "ledger --all")(project_root(), form, out)
    target = Target.find_sweep(stack)
    with Progress("reading the ledger"):
        sources = open_sources(target)
        if sources.store is None:
            raise Unsure(
                f"the ledger is in the evidence: {sources.problem or 'nothing was rented yet'}",
                [f"sweepctl status --stack {target.stack}"],
            )
        births = sources.store.births()
        found = spent(sources.store, datetime.now(UTC), births)
        rests = still_billed(sources.store, found, births)
        gone = proved_gone(open_boxes(sources.state, sources.store, found, births))
        left = leftovers(sources.state, sources.store, births)
        alarms = _own_stops(sources.store, found, gone)
        prefix = box_layout.tag_prefix(sources.store.marker.identity)
        billed = _pulled(sources, found, births)
        saved = saved_by_stops(sources.store, found)
        compared = compare_with_bill(found, prefix, load_platform) if against_bill else None
    volumes = [volume.as_json("volumes_left") for volume in left]
    document = {"stack": target.stack, **as_json(found, gone), "volumes_left": volumes, "alarms": alarms}
    document["egress"] = [one.as_json() for one in billed]
    if saved is not None:
        document["saved"] = saved.as_json()
    out.document(document if compared is None else document | {"against_bill": compared.as_json()})
    if compared is not None:
        render_vendor_bill(compared, out)
    render(found, target.stack, out, gone, left, rests, alarms, billed)
    if saved is not None:
        out.line(saved.words)
    if compared is not None and compared.code != YES:
        return compared.code
    return YES if found.complete else UNSURE


def saved_by_stops(store: EvidenceStore, found: Spent) -> Any:
    """What the rule of a search saved, as the `Saved` of the extension `search`; None where there is nothing to tell,
    or no such extension. Reads its log. Raises EvidenceError."""
    search = part_of("search", "saved")
    return search.saved_by_stops(store, found) if search is not None else None


def open_boxes(state: StackState, store: EvidenceStore, found: Spent, births: Sequence[Birth]) -> list[BoxEntry]:
    """The boxes with an open bill, also those that no state has any more."""
    goes_on = {bill.native_id for bill in found.bills if bill.open is not None}
    boxes = {box.native_id: box for box in state.boxes}
    left = [birth for birth in births if birth.native_id not in {None, *boxes} and birth.ended_at is None]
    boxes |= {one.native_id or "": entry_of(store, one, store.objects.uri) for one in left}
    return [box for box in boxes.values() if box.native_id in goes_on]


def proved_gone(boxes: Sequence[BoxEntry]) -> frozenset[str]:
    """The native ids of those that are proved gone. Blocks for `LOOK_SECONDS`."""

    def asked(box: BoxEntry) -> bool:
        try:
            platform = box.context().platform
            return look_up(platform, box.native_id, box.account, rented=box.teardown.rented).phase is Phase.GONE
        except SweepstackError:
            return False

    answers = in_parallel({box.native_id: partial(asked, box) for box in boxes}, LOOK_SECONDS)
    return frozenset(native_id for native_id, gone in answers.items() if gone)


def _pulled(sources: Sources, found: Spent, births: Sequence[Birth]) -> list[Egress]:
    """What was pulled out of boxes whose bytes are billed, by the latest receipt; nothing where none can be read."""
    platforms = {box.native_id: box.platform for box in sources.state.boxes}
    whose = [(bill.native_id, platforms.get(bill.native_id), bill.platform) for bill in found.bills]
    known = prices(sources.target, whose, births)
    try:
        digest = sources.store.latest_receipt() if known and sources.store else None
        return copied(sources.store.receipt(digest), births, known) if digest and sources.store else []
    except EvidenceError:
        return []


def _own_stops(store: EvidenceStore, found: Spent, gone: Collection[str]) -> list[str]:
    """A line for each box that still bills and should have ended its bill itself, by the copy of its journal."""
    alarms = []
    for bill in found.bills:
        if bill.open is None or bill.open.phase != "running" or bill.generation is None or bill.native_id in gone:
            continue
        try:
            journal = store.journal(bill.box, bill.generation)
        except (EvidenceError, JournalDamaged):
            continue  # `status` reports it
        if stop := could_not_stop(journal, found.at, bill.open.price_per_hour):
            alarms.append(f"ALARM  box {bill.box}, by the last copy of its journal: {stop}")
    return alarms


def as_json(found: Spent, gone: Collection[str] = ()) -> dict[str, Any]:
    """The documented shape of `sweepctl ledger --json`. `gone`: boxes that are gone and have an open bill."""
    return {
        "usd": round(found.usd, 6),
        "hours": round(found.hours, 6),
        "per_hour": found.per_hour,
        "complete": found.complete,
        "problems": list(found.problems),
        "boxes": [_row(bill, found.at) | {"gone": bill.native_id in gone} for bill in found.bills],
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
        "complete": bill.whole,
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


def render(
    found: Spent,
    stack: str,
    out: Out,
    gone: Collection[str] = (),
    left: Sequence[Stray] = (),
    rests: Sequence[StillBilled] = (),
    alarms: Sequence[str] = (),
    billed: Sequence[Egress] = (),
) -> None:
    """Prints the table: one line for each box and rate, then the sum, and the volumes that outlived the boxes."""
    rows = [row for bill in found.bills for row in _lines(bill, found.at, bill.native_id in gone)]
    if rows:
        out.table(("BOX", "FROM", "TO", "PHASE", "HOURS", "$/H", "USD", "END"), rows)
    for problem in found.problems:
        out.line(f"note   {problem}")
    for rest in rests:
        out.line(f"note   {rest.text(stack)}")
    for one in billed:
        cost = egress_words(one.bytes, one.per_gb)
        out.line(f"note   not in the total: {size(one.bytes)} were pulled out of {one.box}, which is billed {cost}")
    for alarm in alarms:
        out.line(alarm, style="bold red")
    per_hour = sum(bill.per_hour or 0.0 for bill in found.bills if bill.native_id not in gone)
    goes_on = f"; ${spell_rate(per_hour)}/h goes on" if per_hour else ""
    if gone:
        out.line("note   a box that is gone is counted until now: `pulumi up` or `pulumi destroy` closes its bill")
        out.line(f"       (where no state has it: sweepctl confirm gone --stack {stack} BOX)")
    for text in leftover_lines(left):
        out.line(f"       {text}")
    out.line(f"total  {found.text}, {found.hours:.2f} hours of running boxes{goes_on}", style="bold")
    out.next([f"sweepctl status --stack {stack}"])


PAST = {"running": "ran", "stopped": "stood still"}
"""The name of a phase that is over."""


def _lines(bill: Bill, now: datetime, gone: bool) -> list[tuple[str, ...]]:
    who = f"{bill.box}  {bill.native_id}  {bill.platform}"
    if not bill.spans:
        return [(who, *["?"] * 6, bill.problem)]
    lines: list[tuple[str, ...]] = []
    for index, span in enumerate(bill.spans):
        last = index == len(bill.spans) - 1
        over = span.end is not None or gone
        end = "" if not last else "gone" if gone and span.end is None else "" if not over else bill.ended_how or "ended"
        lines.append(
            (
                who if index == 0 else "",
                _clock(span.begin, now),
                _clock(span.end, now) if span.end is not None else "not closed" if gone else "goes on",
                PAST.get(span.phase, span.phase) if over else span.phase,
                f"{span.hours(now):.2f}",
                "?" if span.price_per_hour is None else spell_rate(span.price_per_hour),
                _usd(span.usd(now)),
                end,
            )
        )
    return lines


def _usd(usd: float | None) -> str:
    """As the total has it; what would read as nothing, and is in the total, is said to be below a cent."""
    return "<0.01" if usd is not None and 0 < usd < 0.005 else money(usd)


def _clock(moment: datetime, now: datetime) -> str:
    here, year = moment.astimezone(), now.astimezone().year
    return here.strftime("%m-%d %H:%M" if here.year == year else "%Y-%m-%d %H:%M")


BILL_SECONDS = 60.0
LoadPlatform = Callable[[str], Platform]


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


def compare_with_bill(found: Spent, prefix: str, load: LoadPlatform) -> Compared:
    """Asks every platform of the ledger for its bill, side by side. Reads only; blocks for `SECONDS` at most. `load`:
    the platform behind an adapter's name; `prefix`: the beginning of the tags of this sweep."""
    result = Compared()
    platforms = sorted({bill.platform for bill in found.bills if bill.begin is not None})
    asked = {
        name: partial(_ask, load, name, [b for b in found.bills if b.platform == name], found) for name in platforms
    }
    told = in_parallel(asked, BILL_SECONDS)
    for name in platforms:
        answer = told.get(name, f"it did not answer within {BILL_SECONDS:.0f} s")
        if isinstance(answer, str):
            result.unknown.append(f"the bill of {name} is not known: {answer}")
            continue
        lines, others = compare(found.bills, answer, found.at, name, prefix)
        result.lines += lines
        result.others += others
    return result


def _ask(load: LoadPlatform, adapter: str, bills: Sequence[Bill], found: Spent) -> list[Billed] | str:
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


def render_vendor_bill(result: Compared, out: Out) -> None:
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
