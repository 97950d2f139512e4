"""`sweepctl status --next`: the phase, its proofs, and the first of the next lines of `status`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sweepstack.billing.cost import cost_words
from sweepstack.cli.commands.status.store import next_of
from sweepstack.cli.commands.status.sweep import exit_code, picture
from sweepstack.cli.output import NO, UNSURE, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import NeverUp, Target
from sweepstack.operations.volumes.volumes_now import Holding, holding
from sweepstack.profiles.dates import today
from sweepstack.status.engine.call import ExportCall
from sweepstack.status.lifecycle import FIRST, PHASES, Fact, PhaseReport, State, never_up, of_volumes, phase_report


def show_phase(target: Target, out: Out, begun: ExportCall | None = None) -> int:
    """Exit code: as `status` for the same stack; 0 for a stack that was never up."""
    with Progress("looking"):
        where, code = _looked(target, begun)
    return _shown(where, out, code)


def _looked(target: Target, begun: ExportCall | None) -> tuple[PhaseReport, int]:
    try:
        sources = open_sources(target, begun)
    except NeverUp as error:
        return never_up(target.stack, str(error), error.next), YES
    if target.is_store or any(volume.guarded for volume in sources.state.volumes):
        held = holding(sources)
        return _of_store(sources, held), NO if held.orphans else UNSURE if held.problems else YES
    snapshot, view = picture(sources, files=False)
    return phase_report(snapshot, view), exit_code(sources, snapshot, view)


def _of_store(sources: Sources, held: Holding) -> PhaseReport:
    facts = []
    for one in held.volumes:
        cost = cost_words(one.facts.price_per_month, one.facts.keep_until, today=today())
        state: State = "proved" if one.state == "gone" else "unknown" if one.state == "unknown" else "open"
        facts.append(Fact(5, f"volume {one.facts.name} bills nothing", state, f"{one.state}; {cost}"))
    facts += [Fact(1, "the volumes are known", "unknown", problem) for problem in held.problems]
    return of_volumes(sources.state.stack, facts, held.bills, next_of(sources, held))


def _rows(facts: Sequence[Fact]) -> Iterator[tuple[str, str, str]]:
    """The facts of each phase below its name."""
    for number, of_phase in groupby(facts, key=lambda fact: fact.phase):
        yield f"phase {number}", PHASES[number - FIRST].name, ""
        for fact in of_phase:
            at = f"{fact.at:%m-%d %H:%M} UTC" if fact.at else ""
            yield fact.state, fact.what, "; ".join(filter(None, (at, fact.by)))


def _shown(where: PhaseReport, out: Out, code: int) -> int:
    out.document(where.as_json())
    bill = {"nothing": "nothing bills", "unknown": "what bills is not known"}.get(where.bills, "it bills")
    out.line(f"{where.stack}   phase {where.phase.number}: {where.phase.name}   {bill}", style="bold")
    out.table(("", "WHAT", "BY"), _rows(where.facts))
    out.line(f"verify   {where.verify}")
    if where.over:
        out.line("over     nothing has to be typed any more; what follows goes on, or looks")
    out.next([where.next] if where.next else [])
    if where.otherwise:
        out.line(f"         where that fails: sweepctl status --stack {where.stack}", style="dim")
    return code
