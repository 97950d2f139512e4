"""The screen of `sweepctl status`: a headline, cells, boxes, what is wrong, money, the next command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sweepstack.billing.ledger import without_price
from sweepstack.cli.output import Out, console, money, span
from sweepstack.core.journal import BEGINS
from sweepstack.core.records import SETTLED
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.status.compose import BoxView, CellView, GateView, SweepView

WIDE = 100
"""From this terminal width on all columns of the boxes' table are shown."""
LONG = 40
"""A note of at least so many characters is shown only once."""
SHORT = 0.8
"""Inodes are shown once this part of them is used."""
SHOWN = 60
"""The most cells in the table; of more, finished ones are only counted."""
URGENT = (
    "lost",
    "damaged",
    "suspect",
    "unsupported",
    "unexpected",
    "missing",
    "failed",
    "running",
    "blocked_disk",
    "sealed",
    "pending",
)
"""The states of the cells that are shown first if there is no room for all."""


def render(view: SweepView, out: Out, *, most: int = SHOWN, more: Iterable[tuple[str, str | None]] = ()) -> None:
    """Prints the screen, with at most `most` cells. `more`: further lines, (text, style)."""
    out.line(headline(view), style="bold")
    if view.cells:
        shown = _chosen(view.cells, most)
        if shown:
            _cells(shown, out)
        if len(shown) < len(view.cells):
            out.line(f"… and {count(len(view.cells) - len(shown), 'cell')} more: sweepctl status --json", style="dim")
    if view.boxes:
        _boxes(view.boxes, view.gates, out)
    for line, style in trouble(view):
        out.line(line, style=style)
    out.line(_money(view))
    for text in view.money_lines:
        out.line(f"       {text}")
    for line, style in more:
        out.line(line, style=style)
    out.next(view.next)


def signed_lines(of: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
    """Which boxes or volumes, and who signed their approval; each text once."""
    named: dict[str, list[str]] = {}
    for name, lines in of:
        for words in lines:
            named.setdefault(words, []).append(name)
    return [(", ".join(names), words) for words, names in named.items()]


def trouble(view: SweepView) -> list[tuple[str, str | None]]:
    """Alarms, notes, why gates are locked, and orphans: (text, style)."""
    lines: list[tuple[str, str | None]] = [(f"ALARM  {alarm}", "bold red") for alarm in view.alarms]
    for box in view.boxes:
        lines += [(f"ALARM  box {box.name}: {alarm}", "bold red") for alarm in box.alarms]
        if box.setup == "running":
            lines.append((f"setup  box {box.name}: running; sweepctl logs --of setup {box.name} -f", "cyan"))
        if box.note:
            lines.append((f"note   box {box.name}: {box.note}", None))
    told = {box.note: box.name for box in view.boxes if len(box.note) >= LONG}
    for gate in view.gates:
        reasons = [reason for reason in gate.reasons if not any(note in reason for note in told)]
        if gate.state == "locked" and reasons not in ([], ["not approved"]):
            lines.append((f"locked {gate.box}: {'; '.join(reasons)}", "yellow"))
    signed = signed_lines([(gate.box, gate.signed) for gate in view.gates])
    lines += [(f"signed {names}: {words}", None) for names, words in signed]
    for note in view.notes:
        for text, name in told.items():
            note = note.replace(text, f"as box {name} above")
        lines.append((f"note   {note}", None))
    for orphan in view.unknown:
        name = " ".join(part for part in (orphan.name, orphan.native_id) if part)
        price = "" if orphan.price_per_hour is None else f", ${spell_rate(orphan.price_per_hour)}/h"
        lines.append((f"UNKNOWN {name or 'entry'}{price}: {orphan.why}", "bold red"))
    return lines


def own_stops(view: SweepView) -> list[str]:
    """A line for each box that should have ended its own bill and could not, so that it still bills."""
    return [f"ALARM  box {box.name}: {alarm}" for box in view.boxes for alarm in box.alarms if alarm.startswith(BEGINS)]


def headline(view: SweepView) -> str:
    """`sweep-a   4/6 verified   1 running   ETA 41 min   LOCKED`."""
    parts = [view.stack]
    if view.cells:
        parts.append(f"{view.verified}/{len(view.cells)} verified")
        parts += [f"{number} {state}" for state, number in view.counts().items() if state != "verified"]
    if view.eta_seconds:
        parts.append(f"ETA {span(view.eta_seconds)}")
    if view.gates:
        parts.append("CLEARED" if all(gate.state == "cleared" for gate in view.gates) else "LOCKED")
    elif any(orphan.kind == "box" for orphan in view.unknown):
        there = sum(orphan.kind == "box" for orphan in view.unknown)
        parts.append(f"{count(there, 'box')} not in this state, and may bill")
    else:
        parts.append("nothing is up")
    return "   ".join(parts)


def _chosen(cells: Sequence[CellView], most: int) -> Sequence[CellView]:
    if len(cells) <= most:
        return cells
    left = [cell for cell in cells if cell.state not in SETTLED]
    urgency = {state: index for index, state in enumerate(URGENT)}
    return sorted(left, key=lambda cell: urgency.get(cell.state, len(URGENT)))[: max(most, 0)]


def _cells(cells: Sequence[CellView], out: Out) -> None:
    """Prints the cells' table; a column that is empty for all cells is left out."""
    columns = {
        "CELL": [cell.name for cell in cells],
        "STATE": [cell.state for cell in cells],
        "BOX": [cell.box or "" for cell in cells],
        "TRY": [str(cell.attempts or "") for cell in cells],
        "STEP": [cell.step for cell in cells],
        "LOSS": [cell.loss for cell in cells],
        "ETA": [span(cell.eta_seconds) if cell.eta_seconds is not None else "" for cell in cells],
        "NOTE": [cell.note for cell in cells],
    }
    shown = {heading: texts for heading, texts in columns.items() if any(texts) or heading == "NOTE"}
    out.table(list(shown), zip(*shown.values(), strict=True))


def _boxes(boxes: Sequence[BoxView], gates: Sequence[GateView], out: Out) -> None:
    """Prints the boxes' table.

    Ids are left out on a narrow terminal, and if WHERE shows them for all boxes; `--json` has them. Inodes are shown
    when few are left.
    """
    columns = {
        "BOX": [box.name for box in boxes],
        "ID": [box.native_id for box in boxes],
        "PHASE": [
            box.phase + (f" (setup {box.setup})" if box.setup in ("running", "failed", "cut off") else "")
            for box in boxes
        ],
        "GATE": [gate.state for gate in gates],
        "$/H": ["?" if box.price_per_hour is None else spell_rate(box.price_per_hour) for box in boxes],
        "SO FAR": [money(box.cost) for box in boxes],
        "IDLE": [_idle(box) for box in boxes],
        "DISK": [_part(box.disk_used, box.disk_free) for box in boxes],
        "INODES": [_part(box.inodes_used, None) for box in boxes],
        "AGE": ["?" if box.age_seconds is None else span(box.age_seconds) for box in boxes],
        "WHERE": [_where(box) for box in boxes],
    }
    if console().width < WIDE or all(box.native_id in _where(box) for box in boxes):
        del columns["ID"]
    if not any((box.inodes_used or 0) >= SHORT for box in boxes):
        del columns["INODES"]
    out.table(list(columns), zip(*columns.values(), strict=True))


def _where(box: BoxView) -> str:
    """Where the platform says that the box is; a path on this machine is shortened to its first and last part."""
    text = box.where or box.platform
    before, slash, _ = text.partition("/")
    return f"{before}…/{box.native_id}" if slash and text.endswith(f"/{box.native_id}") else text


def _idle(box: BoxView) -> str:
    if box.phase in ("stopped", "gone"):
        return box.phase
    if box.idle_seconds is None:
        return "?"
    return "0 min" if box.idle_seconds == 0 else span(box.idle_seconds)


def _part(used: float | None, free: int | None) -> str:
    """`61%`; if the total is not known, what is free."""
    if used is not None:
        return f"{used:.0%}"
    return f"{free / 1e9:.1f} GB free" if free is not None else ""


def _money(view: SweepView) -> str:
    if view.never_up:
        return f"money  nothing was rented from this backend: it never made an update of {view.stack}"
    bill = {"yes": "", "nothing": "nothing bills; ", "unknown": "what bills is not known; "}[view.bills]
    limits = view.budget
    of = "" if limits is None or limits.usd is None else f" of ${limits.usd:.2f}"
    parts = [
        f"${spell_rate(view.meter.per_hour)}/h",
        f"${view.meter.so_far:.2f}{of or ' so far'}{without_price(view.meter.unpriced)}",
    ]
    if limits is not None and limits.hours is not None:
        parts.append(f"{limits.spent_hours:.1f} of {limits.hours:g} box-hours")
    if view.meter.projected is not None:
        parts.append(f"about ${view.meter.projected:.2f} at the end")
    if view.meter.idle:
        parts.append(f"${spell_rate(view.meter.idle)}/h of it idle")
    figures = ", ".join(parts)
    if view.meter.incomplete:
        figures += " (at least: some prices or times are not on record)"
    return f"money  {bill}{figures}"
