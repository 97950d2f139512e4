"""What a person reads when a teardown is refused: what is not safe, would die, waiting costs, and what to type."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sweep.evidence.unclaimed import lock_reason
from sweep.teardown import BoxFacts, CellLine, Verdict

SHOWN = 12
"""Cells listed one by one; the rest are counted."""


def refusal_text(facts: BoxFacts, verdict: Verdict, *, stack: str, now: datetime | None = None) -> str:
    """The refusal for one box, as lines of text. First line: nothing was deleted, and how far the box is."""
    settled = len(verdict.cells) - len(verdict.unsettled)
    far = "its cells are not known" if verdict.launched is None else f"{settled} of {len(verdict.cells)} cells verified"
    head = f"REFUSED. Nothing was deleted. Box {facts.name}: {far}."
    rows: list[tuple[str, str]] = []
    why = "; ".join(verdict.reasons)
    if why:
        rows.append(("locked because", why))
    rows += _cell_rows(verdict.unsettled)
    dying = ", ".join(facts.kills) or "nothing"
    count = len(verdict.unsettled)
    rows.append(
        ("would die", f"box {facts.name} ({facts.native_id}), its {dying}" + (f": {_cells(count)}" if count else ""))
    )
    if verdict.unclaimed:
        rows.append(("unclaimed", verdict.unclaimed.words))
    if facts.keeps:
        rows.append(("would survive", f"{', '.join(facts.keeps)}; the evidence at {facts.evidence}"))
    rows.append(("waiting costs", waiting_cost(facts, now=now)))
    rows += next_commands(facts, verdict, stack=stack)
    width = max(len(label) for label, _ in rows)
    body = [f"{label:<{width}}  {text}" for label, text in rows]
    return "\n".join([head, "", *body])


def next_commands(facts: BoxFacts, verdict: Verdict, *, stack: str) -> list[tuple[str, str]]:
    """The commands that lead from here to "nothing bills any more"."""
    abandon = f'sweepctl approve --stack {stack} --abandon {facts.name} --reason "…" && pulumi up --stack {stack}'
    let_go = []
    if lock_reason(verdict.unclaimed, None):
        command = f'sweepctl approve --stack {stack} --waive-unclaimed {facts.name} --reason "…"'
        let_go = [("let go", f"{command}    (the unclaimed bytes)")]
        if verdict.held_by_unclaimed:
            return [("next", f"{command} && sweepctl finish --stack {stack}"), ("give up", abandon)]
    if verdict.launched is None:
        return [("next", f"mend what is in the way, then pulumi destroy --stack {stack}"), ("give up", abandon)]
    if not verdict.launched:
        return [
            ("next", f"sweepctl approve --stack {stack} --box {facts.name} && pulumi up --stack {stack}"),
            *let_go,
            ("give up", abandon),
        ]
    rows = []
    if any(cell.state in ("running", "pending") for cell in verdict.unsettled):
        rows.append(("next", f"sweepctl wait --stack {stack} --for done && sweepctl finish --stack {stack}"))
    else:
        rows.append(("next", f"sweepctl finish --stack {stack}    (pull, verify, approve, up, destroy)"))
    bad = next((cell for cell in verdict.unsettled if cell.state in ("damaged", "failed", "missing")), None)
    if bad:
        rows.append((f"accept {bad.state}", f'sweepctl approve --stack {stack} --waive {bad.name} --reason "…"'))
    return [*rows, *let_go, ("give up", abandon)]


def waiting_cost(facts: BoxFacts, *, now: datetime | None = None) -> str:
    """Price per hour and day, and what was spent so far; says so where the price is unknown."""
    if facts.price_per_hour is None:
        return "unknown: the box has no price on record"
    text = f"${facts.price_per_hour:.2f}/h, ${facts.price_per_hour * 24:.2f}/day"
    if facts.created_at is not None:
        hours = ((now or datetime.now(UTC)) - facts.created_at).total_seconds() / 3600
        text += f"; ${max(hours, 0) * facts.price_per_hour:.2f} so far"
    return text


def _cell_rows(unsettled: Sequence[CellLine]) -> list[tuple[str, str]]:
    rows = []
    for index, cell in enumerate(unsettled[:SHOWN]):
        rows.append(("not safe yet" if index == 0 else "", f"{cell.name}  {cell.state}  {cell.reason}".rstrip()))
    if len(unsettled) > SHOWN:
        rows.append(("", f"… and {len(unsettled) - SHOWN} more"))
    return rows


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'} without a verified copy"
