"""`sweepctl status`: where every cell is, what runs, what it costs, what to type next."""

from __future__ import annotations

from sweep.cli.look import look, open_sources
from sweep.cli.output import NO, UNSURE, YES, Out, count, money, span
from sweep.cli.progress import Progress
from sweep.cli.target import Target
from sweep.model import SETTLED
from sweep.view import SweepView, compose

SHOWN = 60
"""Cells in the table; of more, the settled ones are only counted."""


def status(target: Target, out: Out) -> int:
    """Exit code: 1 when something runs that the state does not know, 2 when that could not be told, else 0."""
    with Progress("looking"):
        sources = open_sources(target)
        scene = look(sources)
        view = compose(scene)
    out.document(view.as_json())
    render(view, out)
    if view.unknown:
        return NO
    untold = view.bills == "unknown" or not scene.searched
    return UNSURE if untold and (sources.evidence or sources.problem) else YES


def render(view: SweepView, out: Out) -> None:
    """The screen for people."""
    out.line(headline(view), style="bold")
    if view.cells:
        shown = list(view.cells)
        if len(shown) > SHOWN:
            shown = [cell for cell in shown if cell.state not in SETTLED][:SHOWN]
        out.table(
            ("CELL", "STATE", "BOX", "TRY", "STEP", "LOSS", "NOTE"),
            (
                (cell.name, cell.state, cell.box or "", str(cell.attempts or ""), cell.step, cell.loss, cell.note)
                for cell in shown
            ),
        )
        if len(shown) < len(view.cells):
            out.line(f"… and {count(len(view.cells) - len(shown), 'cell')} more: sweepctl status --json", style="dim")
    if view.boxes:
        out.table(
            ("BOX", "ID", "PHASE", "GATE", "$/H", "SO FAR", "AGE", "WHERE"),
            (
                (
                    box.name,
                    box.native_id,
                    box.phase + (" (idle)" if box.idle and box.phase == "running" else ""),
                    gate.state,
                    money(box.price_per_hour),
                    money(box.cost),
                    "?" if box.age_seconds is None else span(box.age_seconds),
                    box.where or box.platform,
                )
                for box, gate in zip(view.boxes, view.gates, strict=True)
            ),
        )
    for box in view.boxes:
        if box.note:
            out.line(f"note   box {box.name}: {box.note}")
    for gate in view.gates:
        if gate.state == "locked" and gate.reasons != ("not approved",):
            out.line(f"locked {gate.box}: {'; '.join(gate.reasons)}", style="yellow")
    for note in view.notes:
        out.line(f"note   {note}")
    for stranger in view.unknown:
        name = " ".join(part for part in (stranger.box, stranger.native_id) if part)
        price = "" if stranger.price_per_hour is None else f", ${stranger.price_per_hour:.2f}/h"
        out.line(f"UNKNOWN {name or 'entry'}{price}: {stranger.why}", style="bold red")
    out.line(_money(view))
    out.next(view.next)


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
    else:
        parts.append("nothing is up")
    return "   ".join(parts)


def _money(view: SweepView) -> str:
    bill = {"yes": "", "nothing": "nothing bills; ", "unknown": "what bills is not known; "}[view.bills]
    figures = f"${view.meter.per_hour:.2f}/h, ${view.meter.so_far:.2f} so far"
    if view.meter.idle:
        figures += f", ${view.meter.idle:.2f}/h of it idle"
    if view.meter.incomplete:
        figures += " (at least: some prices or times are not on record)"
    return f"money  {bill}{figures}"
