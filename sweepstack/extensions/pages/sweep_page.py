"""The page of a sweep: its sections, in the order in which a person asks.

Its plots are of what the boxes' patrols measured (GPUs, memory, disk, inodes) and of what was paid for over time (boxes
at work, idle, stopped); its tables of cells, results, and the evidence with digests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from sweepstack.billing.ledger import HOUR, Bill, Span
from sweepstack.cli.commands.results.order import LineT, Wanted, best_first, value_of
from sweepstack.core.heartbeat import Patrol
from sweepstack.core.results import (
    SEED,
    Group,
    axes_of,
    columns_of,
    groups,
    mean_text,
    n_text,
    short_codes,
    text,
    with_mean,
)
from sweepstack.extensions.pages.curves import metrics
from sweepstack.extensions.pages.page_data import BoxStory, SweepFacts
from sweepstack.extensions.pages.parallel import parallel
from sweepstack.extensions.pages.plots import Areas, Curve, Lines, Part, Shown, page
from sweepstack.extensions.pages.timeline import attempts_of, busy, millis, timeline
from sweepstack.onbox.common.dataclass import replace
from sweepstack.onbox.common.errors import No
from sweepstack.onbox.common.units import spell_rate
from sweepstack.report.blocks import Block, Code, Facts, Table, Text, Tone
from sweepstack.teardown.signatures import given_by

WORK, IDLE, STOPPED, UNKNOWN = "at work", "idle", "stopped", "not known whether it worked"
TONES = {WORK: "work", IDLE: "bad", STOPPED: "still", UNKNOWN: "warn"}
MOST_POINTS = 1500
MOST_ROWS = 5000
"""Of a table; a browser lays out more in seconds."""
MOST_MARKED = 10
"""Rows that are as good as the best; what marks more of them marks none."""

Change = tuple[datetime, str, float]
"""From this moment on, so many USD an hour more (or less) are paid for this."""


def sweep_page(facts: SweepFacts) -> str:
    """The whole page, as text of UTF-8. Raises SweepstackError where the plotting library is not installed."""
    now = facts.snapshot.now
    how = "over: nothing of it bills" if facts.view.bills == "nothing" else "as it was then"
    subtitle = f"{how}; made {now:%Y-%m-%d %H:%M} UTC from {facts.view.evidence or 'no evidence'}"
    return page(f"Sweep {facts.view.stack}", sections(facts), subtitle=subtitle, find="Find a cell")


def sections(facts: SweepFacts) -> list[Part]:
    """All sections; none is left out, so that a reader sees what is not there, and why."""
    ran, found = timeline(facts), facts.cells.results
    where: Sequence[Shown] = [ran] if ran.spans else [Text("Nothing was ever started, or no journal can be read.")]
    return [
        ("Overview", _overview(facts)),
        ("Results", results(facts)),
        ("Metrics", metrics(facts, [found[number].name for number in best_of(found, facts.wanted)[0]])),
        ("Cells on boxes", [*where, *_unread(facts), *bounded(cells(facts), "status --json")]),
        ("Money", money(facts)),
        ("Machines", machines(facts)),
        ("Evidence", evidence(facts)),
        ("Decisions", decisions(facts)),
    ]


def _overview(facts: SweepFacts) -> list[Block]:
    view = facts.view
    counts = ", ".join(f"{number} {state}" for state, number in view.counts().items()) or "no cells"
    bills: dict[str, tuple[str, Tone]] = {
        "yes": (f"Something bills: ${spell_rate(view.meter.per_hour)} an hour.", "warn"),
        "nothing": ("Nothing bills any more.", "good"),
        "unknown": ("Whether something bills is not known.", "bad"),
    }
    said, tone = bills[view.bills]
    blocks: list[Block] = [Text(said, tone)]
    if view.settled:
        blocks.append(Text("Every cell is verified or waived.", "good"))
    spent = facts.snapshot.spent
    pairs = [("cells", counts), ("verified", f"{view.verified} of {len(facts.snapshot.roster)}")]
    if spent is not None:
        pairs.append(("cost", f"{spent.text}, {spent.hours:.2f} hours of running boxes"))
    pairs.append(("boxes ever rented", str(len(facts.boxes))))
    if view.receipt:
        pairs.append(("latest receipt", view.receipt))
    pairs += [("tracker", words) for words in facts.trackers]
    blocks.append(Facts(pairs))
    alarms = [*view.alarms, *(f"box {box.name}: {alarm}" for box in view.boxes for alarm in box.alarms)]
    blocks += [Text(f"Alarm: {alarm}", "bad") for alarm in alarms]
    blocks += [Text(f"Unknown: {orphan.why}", "bad") for orphan in view.unknown]
    blocks += [Text(f"Note: {note}") for note in (*view.notes, *facts.notes)]
    if view.next:
        blocks += [Text("Next:"), Code(view.next)]
    return blocks


def _unread(facts: SweepFacts) -> list[Block]:
    unread = [story.label for story in facts.boxes if story.journal is None]
    return (
        [Text(f"No journal can be read of {', '.join(unread)}: what ran there is not shown.", "warn")] if unread else []
    )


Measure = Callable[[Patrol], dict[str, float | None]]
"""One line of a patrol → name of the curve, after that of its box ("" for the box's own) → value."""


def machines(facts: SweepFacts) -> list[Shown]:
    """The section on what the machines did: a plot a measure, and what the patrols raised."""
    stories = [story for story in facts.boxes if story.patrols or story.workers]
    if not stories:
        return [Text("No line of a patrol could be read: boxes that are gone had their logs not copied, or none ran.")]
    sources = [source for story in stories for source in _sources(story)]
    boxes = [_Source(story.label, story.label, _lines(story)) for story in stories]
    blocks: list[Shown] = []
    for title, unit, measure in _MEASURES:
        of = boxes if title in _SHARED else sources
        curves = [curve for source in of for curve in _curves(source, measure)]
        if curves:
            blocks.append(
                Lines(title, "time (UTC)", unit, ["box"], curves, times=True, find=False, percent="%" in unit)
            )
    raised = [row for source in sources for row in _raised(source)]
    if raised:
        blocks.append(Table("What the patrols raised", ("box", "alarm", "first", "last"), raised, find=False))
    missing = [story.label for story in facts.boxes if story not in stories]
    if missing:
        blocks.append(Text(f"Without a reading: {', '.join(missing)}."))
    left_out = [f"{story.others} of {story.label}" for story in stories if story.others]
    if left_out:
        blocks.append(Text(f"Workers that are not shown, those that began first: {', '.join(left_out)}."))
    return blocks


class _Source(NamedTuple):
    """Whose patrol it was: of a box (`box`), or of one of its workers."""

    box: str
    label: str
    patrols: Sequence[Patrol]


def _sources(story: BoxStory) -> Iterator[_Source]:
    if story.patrols:
        yield _Source(story.label, story.label, story.patrols)
    for name, patrols in story.workers.items():
        yield _Source(story.label, f"{story.label} {name}", patrols)


def _lines(story: BoxStory) -> list[Patrol]:
    """All lines of a box, by time."""
    return sorted(chain(story.patrols, *story.workers.values()), key=lambda patrol: patrol.time)


def _curves(source: _Source, measure: Measure) -> Iterator[Curve]:
    rows = [measure(patrol) for patrol in source.patrols]
    times = [millis(patrol.time) for patrol in source.patrols]
    for name in dict.fromkeys(name for values in rows for name, value in values.items() if value is not None):
        ys = [math.nan if (value := values.get(name)) is None else value for values in rows]
        yield Curve(f"{source.label} {name}".strip(), times, ys, {"box": source.box})


def _gpus(key: str) -> Measure:
    return lambda patrol: {f"GPU {gpu.get('index', '?')}": _number(gpu.get(key)) for gpu in patrol.gpus}


def _gpu_memory(patrol: Patrol) -> dict[str, float | None]:
    return {
        f"GPU {gpu.get('index', '?')}": _share(_number(gpu.get("memory_used")), _number(gpu.get("memory_total")))
        for gpu in patrol.gpus
    }


def _memory(patrol: Patrol) -> dict[str, float | None]:
    return {"": _share(patrol.memory.get("used"), patrol.memory.get("limit"))}


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _share(used: float | None, total: float | None) -> float | None:
    return None if used is None or not total else 100 * used / total


def _number(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None


_MEASURES: tuple[tuple[str, str, Measure], ...] = (
    ("GPU in use", "% of the time", _gpus("util")),
    ("GPU memory", "% of it", _gpu_memory),
    ("GPU temperature", "degrees C", _gpus("temperature")),
    ("Memory", "% of the limit", _memory),
    ("Disk", "% used", lambda patrol: {"": _percent(patrol.disk.used)}),
    ("Inodes", "% used", lambda patrol: {"": _percent(patrol.inodes.used)}),
)
_SHARED = ("Disk", "Inodes")
"""Of a box that several workers share, these are those of one tier: each worker sees the same."""


def _raised(source: _Source) -> Iterator[tuple[str, ...]]:
    """Each alarm once, with the first and the last line that has it."""
    seen: dict[str, list[Patrol]] = {}
    for patrol in source.patrols:
        for alarm in patrol.alarms:
            seen.setdefault(alarm, []).append(patrol)
    for alarm, patrols in seen.items():
        yield source.label, alarm, f"{patrols[0].time:%Y-%m-%d %H:%M}", f"{patrols[-1].time:%Y-%m-%d %H:%M}"


def cells(facts: SweepFacts) -> Table:
    """Every cell of the roster, and those that were dropped, with what became of it."""
    rows = [
        (
            cell.name,
            cell.state,
            cell.box or "",
            str(cell.attempts),
            cell.step,
            cell.loss,
            "" if cell.elapsed_seconds is None else f"{cell.elapsed_seconds / 60:.1f}",
            cell.note,
        )
        for cell in facts.view.cells
    ]
    headers = ("cell", "state", "box", "tries", "step", "loss", "minutes", "note")
    return Table(f"All {len(rows)} cells", headers, rows, right=frozenset({3, 4, 5, 6}))


def results(facts: SweepFacts) -> list[Shown]:
    """The section on results: means over seeds where there are seeds, a row for each cell, the best of both marked, and
    the cells over their axes."""
    found, roster = facts.cells.results, facts.snapshot.roster
    if not found:
        return [Text("No cell that is verified left a value.")]
    axes, columns, codes = axes_of(roster), columns_of(found), short_codes(one.code for one in found if one.code)
    blocks: list[Shown] = []
    over = [SEED] if SEED in axes else []
    made = groups(roster, found, over)
    if over:
        blocks += _means(made, columns, codes, facts.wanted)
    blocks += [
        Text(
            f"{_named(group)}: averaged over different code, {', '.join(codes[code] for code in group.codes)}.", "warn"
        )
        for group in made
        if group.mixed
    ]
    marked, said = best_of(found, facts.wanted)
    rows = [
        (
            one.name,
            *(text(one.params.get(axis)) for axis in axes),
            *(text(one.values.get(name)) for name in columns),
            codes.get(one.code or "", "?"),
            *(["best" if number in marked else ""] if marked else []),
        )
        for number, one in enumerate(found)
    ]
    first = 1 + len(axes)
    right = frozenset(range(first, first + len(columns)))
    keys = {first + at: [_full(one.values.get(name)) for one in found] for at, name in enumerate(columns)}
    headers = ("cell", *axes, *columns, "code", *(["mark"] if marked else []))
    blocks += bounded(
        Table("Values of each verified cell", headers, rows, right=right, keys=keys, marked=marked), "results --as csv"
    )
    blocks += said
    blocks += parallel(roster, found, facts.pruned, facts.wanted, [found[number].name for number in marked])
    blocks += [Text(f"{one.name} is {one.state}: {one.note}.", "warn") for one in found if one.note]
    blocks += [Text(f"{one.name}: {one.problem}.", "warn") for one in found if one.problem][:MOST_MARKED]
    missing = len(roster) - len({one.name for one in found})
    if missing:
        blocks.append(
            Text(f"{missing} of {len(roster)} cells are not here: they are not verified, or were waived.", "warn")
        )
    return blocks


def best_of(lines: Sequence[LineT], wanted: Wanted | None) -> tuple[frozenset[int], list[Block]]:
    """The numbers of the rows that are marked, and words, by the rule of `results --best`. Nothing is marked where the
    stack names no metric, or none is finite."""
    if wanted is None:
        return frozenset(), [Text("No row is marked as the best: the stack file names no metric.")]
    names = list(dict.fromkeys(name for one in lines for name in one.values))
    try:
        _, best = best_first(lines, wanted, names)
    except No as error:
        return frozenset(), [Text(f"No row is marked as the best: {error}.")]
    same = [number for number, one in enumerate(lines) if value_of(one, wanted.name).mean == best.value.mean]
    same = same[:MOST_MARKED]
    words = [" ".join(line.split()).removeprefix("best ") for line in best.lines()]
    said: list[Block] = [Text(f"Best by {wanted.name}: {'; '.join(words)}.", "good")]
    return frozenset(same), said


def bounded(table: Table, command: str) -> list[Block]:
    """The table with `MOST_ROWS` rows at most, those that are marked among them; and what has the others."""
    if len(table.rows) <= MOST_ROWS:
        return [table]
    marked = sorted(table.marked)
    kept = sorted({*range(MOST_ROWS - len(marked)), *marked})
    shown = replace(
        table,
        rows=[table.rows[number] for number in kept],
        keys={column: [keys[number] for number in kept] for column, keys in table.keys.items()},
        marked=frozenset(kept.index(number) for number in marked),
    )
    left = len(table.rows) - len(kept)
    return [shown, Text(f"{left} of {len(table.rows)} rows are left out: `sweepctl {command}` has all.", "warn")]


def _full(value: Any) -> str | None:
    """What a row is sorted by: all digits of a number; None where that is its text."""
    return repr(value) if isinstance(value, float) else None


def _means(made: list[Group], columns: list[str], codes: dict[str, str], wanted: Wanted | None) -> list[Block]:
    shown_columns = with_mean(made, columns)
    axes = list(made[0].axes)
    marked, said = best_of(made, wanted)
    rows = [
        (
            *([text(group.axes[axis]) for axis in axes] or ["all cells"]),
            n_text(group),
            *(mean_text(group.values.get(name)) for name in shown_columns),
            *(["best" if number in marked else ""] if marked else []),
        )
        for number, group in enumerate(made)
    ]
    named = axes or ["cells"]
    first = len(named) + 1
    headers = (*named, "n", *shown_columns, *(["mark"] if marked else []))
    right = frozenset(range(first - 1, first + len(shown_columns)))
    means = {name: [group.values.get(name) for group in made] for name in shown_columns}
    keys: dict[int, Sequence[Any]] = {
        first + at: [_full(mean.mean) if mean is not None else None for mean in means[name]]
        for at, name in enumerate(shown_columns)
    }
    keys[first - 1] = [len(group.cells) for group in made]
    table = Table("Mean ± std over seeds (n - 1)", headers, rows, right=right, find=False, keys=keys, marked=marked)
    return [*bounded(table, "results --as csv"), *said]


def _named(group: Group) -> str:
    return ", ".join(f"{axis} {text(value)}" for axis, value in group.axes.items()) or "all cells"


def evidence(facts: SweepFacts) -> list[Block]:
    """The section on evidence: the receipt, what it says of each cell, and the journals' heads."""
    receipt = facts.snapshot.receipt
    where = facts.view.evidence or "not known"
    if receipt is None:
        why = facts.snapshot.evidence_problem or "`sweepctl pull --verify` writes the first one"
        return [Facts([("place", where)]), Text(f"There is no receipt: {why}.", "warn")]
    state = {cell.name: cell.state for cell in facts.view.cells}
    rows = []
    for cell in receipt.cells:
        broken, now = facts.snapshot.broken.get(cell.name), state.get(cell.name, cell.state)
        size = sum(file.size for file in cell.files)
        rows.append(
            (
                cell.name,
                cell.state if now == cell.state else f"{cell.state}, now {now}",
                "" if cell.box is None else f"{cell.box} g{cell.generation} #{cell.attempt}",
                str(len(cell.files)),
                f"{size / 1e6:.3f}",
                cell.manifest or "",
                cell.config_digest,
                "; ".join([*cell.reasons, *([broken] if broken else [])]),
            )
        )
    boxes = [
        (one.box, one.native_id, str(one.generation), str(len(one.cells)), one.journal_head) for one in receipt.boxes
    ]
    pairs = [
        ("place", where),
        ("receipt", facts.snapshot.receipt_digest or receipt.digest),
        ("verified", f"{receipt.verified} of {receipt.total} cells, by this receipt"),
        ("roster", receipt.roster_digest),
        ("artifacts", receipt.artifacts_digest),
    ]
    headers = ("cell", "state", "sealed by", "files", "MB", "manifest", "config", "why")
    return [
        Facts(pairs),
        *bounded(
            Table(
                "What was verified, by the latest receipt",
                headers,
                rows,
                right=frozenset({3, 4}),
                mono=frozenset({5, 6}),
            ),
            "show RECEIPT --json",
        ),
        Table(
            "Journals that it rests on",
            ("box", "id", "generation", "cells", "head"),
            boxes,
            mono=frozenset({4}),
            find=False,
        ),
    ]


def decisions(facts: SweepFacts) -> list[Block]:
    """The section on what people decided, and what was refused."""
    rows = [row for row in _approved(facts) if row]
    for name, reason in sorted(facts.snapshot.dropped.items()):
        rows.append(("dropped", name, "by the stack file", "", reason))
    for name, retry in sorted(facts.retries.items()):
        rows.append(("retry", name, retry.by, stamp(retry.at), retry.reason))
    for loss in facts.snapshot.losses:
        rows.append(
            (
                "lost",
                f"{len(loss.cells)} cells of {loss.box}: {', '.join(loss.cells)}",
                "",
                stamp(loss.at),
                loss.why,
            )
        )
    for story in facts.boxes:
        for entry in story.journal.entries if story.journal else ():
            if entry["event"] == "cell-refused":
                what = f"{entry.get('cell')} on {story.label}"
                rows.append(("refused", what, "the runner", str(entry["time"])[:16], str(entry.get("reason", ""))))
    blocks: list[Block] = []
    if rows:
        headers = ("what", "of what", "by whom", "when (UTC)", "why")
        blocks.append(Table("Approved, waived, abandoned, dropped, retried, lost, refused", headers, rows))
    locked = [(gate.box, reason) for gate in facts.view.gates if gate.state == "locked" for reason in gate.reasons]
    if locked:
        blocks.append(Table("Why the end of a box is refused now", ("box", "why"), locked, find=False))
    return blocks or [Text("Nothing was waived, abandoned, dropped or refused, and no approval was given.")]


def _approved(facts: SweepFacts) -> list[tuple[str, ...]]:
    """Each approval once, with all that it allows, waives and abandons."""
    given = {}
    found = [approval for approval in (facts.snapshot.approval, *facts.clearances.values()) if approval is not None]
    for approval in sorted(found, key=lambda one: len(one.signatures)):  # of one signed in turn, that with most
        given[approval.at, approval.by, approval.waivers_digest, approval.receipt] = approval
    rows: list[tuple[str, ...]] = []
    for approval in sorted(given.values(), key=lambda one: one.at):
        who = (given_by(approval), stamp(approval.at))
        actions = ", ".join(f"{action.verb} {action.box} ({action.native_id})" for action in approval.actions)
        ground = f"receipt {approval.receipt}" if approval.receipt else "without a receipt"
        rows.append(("approved", actions, *who, f"{ground}; until {stamp(approval.expires)}"))
        rows += [("waived", one.cell, *who, one.reason) for one in approval.waive]
        rows += [
            ("abandoned", f"{one.box} ({one.native_id}), {one.verb}", *who, one.reason) for one in approval.abandon
        ]
        rows += [
            ("waived", f"{one.files} files ({one.bytes} bytes) of no cell on {one.box}", *who, one.reason)
            for one in approval.unclaimed
        ]
    return rows


def money(facts: SweepFacts) -> list[Shown]:
    """The section on money: the sums, the plot, a row for each box."""
    spent = facts.snapshot.spent
    if spent is None or not spent.bills:
        return [Text("No ledger can be read: what was paid is not known." if spent is None else "Nothing was rented.")]
    now = spent.at
    changes = sorted(_changes(facts), key=lambda change: change[0])
    sums = {name: sum(rate * _hours(at, now) for at, one, rate in changes if one == name) for name in TONES}
    pairs = [
        ("so far", f"{spent.text}, {spent.hours:.2f} hours of running boxes"),
        *((name, f"${usd:.2f} ({usd / spent.usd:.0%})") for name, usd in sums.items() if usd >= 0.005 and spent.usd),
        ("an hour now", f"${spell_rate(spent.per_hour)}"),
    ]
    blocks: list[Shown] = [Facts(pairs)]
    blocks += [Text(problem, "warn") for problem in spent.problems]
    blocks += [Text(line) for line in facts.view.money_lines]
    blocks.append(_plot(changes, now))
    rows = [_row(bill, now) for bill in spent.bills]
    headers = ("box", "id", "platform", "from", "to", "hours", "USD", "end")
    blocks.append(Table("Every box that was rented", headers, rows, right=frozenset({5, 6})))
    return blocks


def _plot(changes: list[Change], now: datetime) -> Areas:
    """The rates, added up over time. `changes`: by time."""
    sums, rates = dict.fromkeys(TONES, 0.0), dict.fromkeys(TONES, 0.0)
    times: list[float] = []
    layers: dict[str, list[float]] = {name: [] for name in sums}
    before: datetime | None = None
    for at, name, rate in [*(change for change in changes if change[0] <= now), (now, WORK, 0.0)]:
        if before is None or at > before:
            for one in sums:
                sums[one] += rates[one] * (_hours(before, at) if before is not None else 0.0)
            times.append(millis(at))
            for one, total in sums.items():
                layers[one].append(round(total, 6))
            before = at
        rates[name] += rate
    keep = range(0, len(times), len(times) // MOST_POINTS + 1)
    kept = sorted({*keep, len(times) - 1})
    shown = {name: [values[index] for index in kept] for name, values in layers.items() if values[-1] > 0}
    return Areas("Cost so far, by what the boxes did", "USD", [times[index] for index in kept], shown, TONES)


def _changes(facts: SweepFacts) -> Iterator[Change]:
    """When each box began and ceased to cost something for this."""
    stories = {story.native_id: story for story in facts.boxes}
    assert facts.snapshot.spent is not None
    now = facts.snapshot.spent.at
    for bill in facts.snapshot.spent.bills:
        story = stories.get(bill.native_id)
        known = story is not None and story.journal is not None
        worked = busy(attempts_of(facts, story)) if story is not None and known else []
        for span in bill.spans:
            if span.price_per_hour is None:
                continue
            for name, begin, end in _parts(span, worked, known, now):
                if end > begin:
                    yield begin, name, span.price_per_hour
                    yield end, name, -span.price_per_hour


def _parts(
    span: Span, worked: list[tuple[datetime, datetime]], known: bool, now: datetime
) -> Iterator[tuple[str, datetime, datetime]]:
    """The span, cut at what ran meanwhile."""
    begin, end = span.begin, span.end or now
    if span.phase != "running" or not known:
        yield (STOPPED if span.phase != "running" else UNKNOWN), begin, end
        return
    at = begin
    for first, last in worked:
        first, last = max(first, at), min(last, end)
        if first < last:
            yield IDLE, at, first
            yield WORK, first, last
            at = last
    yield IDLE, at, end


def _hours(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds() / HOUR


def _row(bill: Bill, now: datetime) -> tuple[str, ...]:
    usd = bill.usd(now)
    return (
        bill.box,
        bill.native_id,
        bill.platform,
        stamp(bill.begin),
        stamp(bill.ended_at) if bill.ended_at else "goes on" if bill.open else "not known",
        f"{bill.hours(now):.2f}",
        "not known" if usd is None else f"{'' if bill.whole else 'at least '}{usd:.2f}",
        bill.problem or bill.ended_how,
    )


def stamp(moment: datetime | None) -> str:
    """A time in UTC, for people."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}" if moment is not None else "not known"
