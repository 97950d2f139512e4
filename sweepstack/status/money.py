"""Money on the screen: what the sweep will have cost, how the budget stands, and warnings about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from sweepstack.billing.balance import MONTH_HOURS, Runway
from sweepstack.billing.budget import BudgetUse, use_of
from sweepstack.billing.cost import Meter, cost_words
from sweepstack.billing.deadlines import Countdown, contract_end, last_seen, lying, running
from sweepstack.billing.egress import egress_words, sealed_besides
from sweepstack.billing.forecast import Forecast, forecast
from sweepstack.billing.ledger import HOUR
from sweepstack.billing.stray import leftover_lines
from sweepstack.core.lease_terms import NONE
from sweepstack.onbox.common.units import spell_bytes, spell_rate
from sweepstack.platforms.registry import payer
from sweepstack.status.boxes import per_hour
from sweepstack.status.model import BudgetView, CellView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot


def projected(snapshot: Snapshot, costs: Meter, eta_seconds: float | None) -> Meter:
    """The meter with what it will show when the last cell is through: all boxes bill until then."""
    if not eta_seconds or not costs.per_hour or costs.incomplete:
        return costs
    return replace(costs, projected=costs.so_far + costs.per_hour * eta_seconds / HOUR)


def outlook_of(snapshot: Snapshot, costs: Meter, eta_seconds: float | None) -> tuple[BudgetUse, Forecast] | None:
    """How much of the budget is used, and how it will be at the end; None without a budget or a ledger."""
    if snapshot.budget is None or snapshot.spent is None:
        return None
    use = use_of(snapshot.budget, snapshot.spent)
    running = sum(not box_snapshot.gone and box_snapshot.phase != "stopped" for box_snapshot in snapshot.box_snapshots)
    hours_left = None if eta_seconds is None else eta_seconds / HOUR
    return use, forecast(use, hours_left=hours_left, boxes=running, per_hour=costs.per_hour)


def budget_view(snapshot: Snapshot, costs: Meter, eta_seconds: float | None) -> BudgetView | None:
    """The budget as `status` shows it."""
    found = outlook_of(snapshot, costs, eta_seconds)
    if found is None or snapshot.budget is None:
        return None
    use, seen = found
    return BudgetView(
        usd=snapshot.budget.usd,
        hours=snapshot.budget.hours,
        spent_usd=use.usd,
        spent_hours=use.hours,
        used=use.fraction,
        unpriced=use.unpriced,
        projected_usd=seen.usd,
        projected_hours=seen.hours,
        unknown=use.unknown,
    )


def running_clocks(snapshot: Snapshot, cells: Iterable[CellView] = ()) -> Iterator[Countdown]:
    """The clocks that platforms have running for stopped boxes, or may have for those that end themselves; for files
    that lie still, of `cells` that are sealed and not verified; and the ends of contracts with hosts."""
    oldest = _oldest_sealed(snapshot, cells)
    for box_snapshot in snapshot.box_snapshots:
        if box_snapshot.ends_at is not None and not box_snapshot.gone:
            box, ends = box_snapshot.box, box_snapshot.ends_at
            facts = box.teardown
            yield contract_end(facts.clocks, box.name, box.native_id, ends, snapshot.now, facts.kills)
        if snapshot.spent is not None and not box_snapshot.gone and box_snapshot.box.teardown.clocks:
            bill, box = snapshot.spent.of(box_snapshot.box.native_id), box_snapshot.box
            # A box that its platform calls stopped, and the ledger does not: it stopped with no command to see it.
            may_be_off = box_snapshot.seen.stopped or (box_snapshot.phase == "unknown" and box.ends_itself)
            seen = last_seen(box_snapshot.journal, box_snapshot.since)
            off, named = seen if may_be_off else None, {"box": box.name, "native_id": box.native_id}
            clocks, since = box.teardown.clocks, oldest.get(box.name)
            if since is not None:
                now = box_snapshot.there(snapshot.now)
                yield from lying(clocks, box.name, box.native_id, since, now)
                clocks = tuple(clock for clock in clocks if not clock.unused)
            yield from running(clocks, bill, snapshot.now, **named, off=off, seen=seen)


def _oldest_sealed(snapshot: Snapshot, cells: Iterable[CellView]) -> dict[str, datetime]:
    """Box → when the first of its cells was sealed that is not verified."""
    found: dict[str, datetime] = {}
    for cell in cells:
        holder = snapshot.holder_of(cell.name) if cell.state == "sealed" else None
        progress = holder.progress(cell.name) if holder is not None else None
        if holder is not None and progress is not None and progress.ended_at is not None:
            name = holder.box.name
            found[name] = min(found.get(name, progress.ended_at), progress.ended_at)
    return found


def _leases(snapshot: Snapshot) -> Iterator[str]:
    """What the leases of the boxes that run are, each once."""
    told: dict[str, list[str]] = {}
    for box_snapshot in snapshot.box_snapshots:
        box, queue = box_snapshot.box, box_snapshot.queue
        if box_snapshot.gone or box_snapshot.seen.stopped or box.lease is None:
            continue
        if box.lease == NONE:
            words = "lease none: it bills until a person or `sweepctl tend` ends that"
        elif queue is None or queue.job.lease is None:
            words = f"lease {box.lease}: the box was not told yet; `pulumi up` tells it"
        else:
            renewed = "renewed by this look" if box_snapshot.reachable else "not renewed: it was not reached"
            words = f"{queue.job.lease.words}; {renewed}"
        told.setdefault(words, []).append(box.name)
    for words, names in told.items():
        yield f"{', '.join(names)}: {words}"


def _pulls(snapshot: Snapshot) -> Iterator[str]:
    """What it costs to pull what is sealed and not verified here, where the bytes that leave a box are billed."""
    known = snapshot.receipt.cells if snapshot.receipt else ()
    here = frozenset(cell.name for cell in known if cell.has_result and cell.name not in snapshot.broken)
    for one in snapshot.box_snapshots:
        if one.gone or one.journal is None or one.box.native_id not in snapshot.egress:
            continue
        cells, size = sealed_besides(one.journal, here)
        if cells:
            what = "1 sealed cell" if cells == 1 else f"{cells} sealed cells"
            cost = egress_words(size, snapshot.egress[one.box.native_id])
            yield f"a pull of {what} from {one.box.name}, {spell_bytes(size)}, is billed {cost}"


def _stopped(snapshot: Snapshot) -> Iterator[str]:
    """What a box that is stopped still costs."""
    for box_snapshot in snapshot.box_snapshots:
        stop = box_snapshot.box.teardown.stop
        if box_snapshot.gone or not box_snapshot.seen.stopped or stop is None or not stop.bills_after:
            continue
        known = box_snapshot.seen.stopped_per_hour
        price = stop.price_per_hour if known is None else known
        words = f"${spell_rate(price)}/h" if price is not None else "the price per hour is not known"
        yield f"{box_snapshot.box.name} is stopped, and bills on ({words}): {', '.join(stop.bills_after)}"


def runways(snapshot: Snapshot, eta_seconds: float | None) -> Iterator[Runway]:
    """How long the balance of each account lasts that the state's boxes are rented with."""
    needed = None if eta_seconds is None else eta_seconds / HOUR
    for left in snapshot.balances:
        here = [one for one in snapshot.box_snapshots if _payer(one) == left.platform and not one.gone]
        rates = [per_hour(box_snapshot, snapshot.spent) for box_snapshot in here]
        boxes = sum(rate or 0.0 for rate in rates)
        kept = [one.price_per_month or 0.0 for one in snapshot.state.volumes if one.adapter == left.platform]
        rate = left.rate(boxes, sum(kept) / MONTH_HOURS)
        yield Runway(left, rate, snapshot.now, needed, bills=bool(here), unpriced=None in rates)


def _payer(one: BoxSnapshot) -> str:
    return payer(one.box.adapter, one.box.platform or "")


def money_lines(
    snapshot: Snapshot, costs: Meter, budget: BudgetView | None, runways: Iterable[Runway] = ()
) -> Iterator[str]:
    """Warnings about money, one line each."""
    for one in runways:
        yield one.text()
    for volume in snapshot.state.volumes:
        if volume.kept or volume.guarded:
            monthly = cost_words(volume.price_per_month, volume.keep_until, today=snapshot.now.date())
            yield f"volume {volume.name}: {monthly}"
    yield from leftover_lines(snapshot.left)
    yield from _pulls(snapshot)
    yield from _leases(snapshot)
    yield from _stopped(snapshot)
    if snapshot.spent is not None:
        yield from snapshot.spent.problems
    if budget is None or snapshot.budget is None:
        return
    use = BudgetUse(snapshot.budget, budget.spent_usd, budget.spent_hours, budget.unknown, budget.unpriced)
    seen = Forecast(budget.projected_usd, budget.projected_hours, None)
    if use.over:
        goes_on = f"what runs goes on at ${spell_rate(costs.per_hour)}/h" if costs.per_hour else "nothing runs"
        yield f"BUDGET USED UP: {use.text()}; nothing more is rented, {goes_on}"
    elif seen.exceeds(snapshot.budget):
        yield f"the budget runs out before the last cell: {use.text()}, {seen.text(snapshot.budget)}"
    elif use.fraction >= min(snapshot.budget.notify, default=1.0):
        yield f"budget: {use.text()}"
    for why in budget.unknown:
        yield f"not counted: {why}"
