"""The page of a sweep: its sections, in the order in which a person asks."""

from __future__ import annotations

from collections.abc import Sequence

from sweepstack.onbox.common.units import spell_rate
from sweepstack.report.blocks import Block, Code, Facts, Section, Text, Tone
from sweepstack.report.curves import metrics
from sweepstack.report.facts import SweepFacts
from sweepstack.report.machines import machines
from sweepstack.report.money import money
from sweepstack.report.page import page
from sweepstack.report.tables import cells, decisions, evidence, results
from sweepstack.report.timeline import timeline


def sweep_page(facts: SweepFacts) -> str:
    """The whole page, as text of UTF-8. Raises SweepstackError where the plotting library is not installed."""
    now = facts.snapshot.now
    how = "over: nothing of it bills" if facts.view.bills == "nothing" else "as it was then"
    subtitle = f"{how}; made {now:%Y-%m-%d %H:%M} UTC from {facts.view.evidence or 'no evidence'}"
    return page(f"Sweep {facts.view.stack}", sections(facts), subtitle=subtitle, find="Find a cell")


def sections(facts: SweepFacts) -> list[Section]:
    """All sections; none is left out, so that a reader sees what is not there, and why."""
    ran = timeline(facts)
    where: Sequence[Block] = [ran] if ran.spans else [Text("Nothing was ever started, or no journal can be read.")]
    return [
        Section("Overview", _overview(facts)),
        Section("Results", results(facts)),
        Section("Metrics", metrics(facts)),
        Section("Cells on boxes", [*where, *_unread(facts), cells(facts)]),
        Section("Money", money(facts)),
        Section("Machines", machines(facts)),
        Section("Evidence", evidence(facts)),
        Section("Decisions", decisions(facts)),
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
