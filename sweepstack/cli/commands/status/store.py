"""`sweepctl status` of a stack of volumes: its volumes, their users and costs, what to type next."""

from __future__ import annotations

from datetime import date

from sweepstack.billing.cost import cost_words, overdue
from sweepstack.cli.output import NO, UNSURE, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.cli.render import signed_lines
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.volumes.volumes_now import Holding, VolumeOfState, as_json, holding


def status_store(sources: Sources, out: Out) -> int:
    """Exit code: 1 if a volume of this stack exists that is not in its state, 2 if that is not known, else 0."""
    with Progress("looking"):
        held = holding(sources)
    following = next_of(sources, held)
    out.document(
        {
            "stack": sources.state.stack,
            "volumes": [as_json(one) for one in held.volumes],
            "unknown": [
                {"native_id": record.native_id, "tag": record.tag, "where": record.location} for record in held.orphans
            ],
            "problems": held.problems,
            "bills": held.bills,
            "next": following,
        }
    )
    render(sources, held, out)
    out.next(following)
    return NO if held.orphans else UNSURE if held.problems else YES


def render(sources: Sources, held: Holding, out: Out) -> None:
    """Prints the table."""
    there = [one for one in held.volumes if one.state != "gone"]
    parts = [sources.state.stack, count(len(there), "volume")]
    if there:
        parts += [monthly(there), "CLEARED" if all(one.state == "cleared" for one in there) else "LOCKED"]
    out.line("   ".join(parts), style="bold")
    if held.volumes:
        rows = [
            (
                one.facts.name,
                one.facts.native_id,
                f"{one.facts.size_gb} GB" if one.facts.size_gb else "-",
                one.state,
                ", ".join(one.users) or "no sweep so far",
                one.facts.where,
                cost_words(one.facts.price_per_month, one.facts.keep_until, today=date.today()),
            )
            for one in held.volumes
        ]
        out.table(("VOLUME", "ID", "SIZE", "STATE", "USED BY", "WHERE", "COST"), rows)
    for one in held.volumes:
        reasons = [reason for reason in one.verdict.reasons if reason != "not approved"]
        if one.state == "locked" and reasons:
            out.line(f"locked {one.facts.name}: {'; '.join(reasons)}", style="yellow")
    for names, words in signed_lines([(one.facts.name, one.signed) for one in held.volumes]):
        out.line(f"signed {names}: {words}")
    for problem in held.problems:
        out.line(f"note   {problem}", style="yellow")
    for record in held.orphans:
        where = f"{record.tag}, {record.location}"
        out.line(
            f"UNKNOWN {record.native_id} ({where}): it exists, may bill, and is not in the state", style="bold red"
        )


def monthly(volumes: list[VolumeOfState]) -> str:
    """The monthly cost of all volumes; "at least" if a price is not known."""
    prices = [one.facts.price_per_month for one in volumes]
    known = sum(price for price in prices if price is not None)
    return f"{'at least ' if None in prices else ''}${known:.2f}/month"


def next_of(sources: Sources, held: Holding) -> list[str]:
    """The commands to type next."""
    stack = sources.state.stack
    if held.orphans:
        return [f"pulumi up --stack {stack}    (adopts what its file names)", "sweepctl audit    (for the rest)"]
    if held.problems:
        return [f"sweepctl doctor --stack {stack}"]
    if not held.volumes:
        return [f"{'' if sources.known else f'pulumi stack init {stack} && '}pulumi up --stack {stack}"]
    if any(one.state == "gone" for one in held.volumes):
        return [f"pulumi up --stack {stack}    (makes what is gone again; or want: gone in the stack file)"]
    late = [one.facts.name for one in held.volumes if overdue(one.facts.keep_until, date.today())]
    ends = f"sweepctl finish --stack {stack}    (approve, up, destroy: when they are not needed any more)"
    if late or all(one.state == "cleared" for one in held.volumes):
        return [ends]
    unused = next((one.facts.name for one in held.volumes if not one.users), None)
    if unused is not None:
        return [f"mounts: {{/ckpt: {{source: {unused}}}}} in the stack file of a sweep, then pulumi preview", ends]
    return [ends]
