"""Shows a person what an approval would allow, before asking for it."""

from __future__ import annotations

from collections.abc import Sequence

from sweepstack.billing.cost import BoxCosts, box_costs
from sweepstack.billing.deadlines import starting
from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.cli.output import Out, console
from sweepstack.cli.render import WIDE
from sweepstack.core.observation import Existence
from sweepstack.core.records import ENDED, SETTLED, Approval
from sweepstack.core.search_log import PRUNED
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.operations.strays.other_backends import adopt_command, held_by_another
from sweepstack.operations.sweep.collect import unrented
from sweepstack.operations.sweep.target import Target
from sweepstack.platforms.registry import has_address
from sweepstack.status.engine.state import STOP
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.abandonment import VERB
from sweepstack.teardown.box_check import Verdict
from sweepstack.teardown.refusal import waiting_cost
from sweepstack.teardown.stop_check import AtRisk

SHOWN = 8
"""The most names of cells on one line."""


@dataclass
class ApprovalDraft:
    """What is about to be approved: the boxes asked for now, and those that an earlier approval still covers."""

    approval: Approval
    asked: list[tuple[BoxSnapshot, Verdict]] = field(default_factory=list)
    kept: list[tuple[BoxSnapshot, Verdict]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    risks: dict[str, AtRisk] = field(default_factory=dict)
    dying: dict[str, str] = field(default_factory=dict)
    """box → files of attempts without a seal that are in no copy"""

    @property
    def ends_alone(self) -> bool:
        """Whether a destroy works without an `up` before it: all boxes are in the state, and recorded as given up."""
        every = (*self.asked, *self.kept)
        given_up = {entry.native_id for entry in self.approval.abandon if entry.verb == VERB}
        return all(box_snapshot.box.native_id in given_up and box_snapshot.box.urn for box_snapshot, _ in every)

    @property
    def abandoned(self) -> list[BoxSnapshot]:
        """The boxes asked for now with data that may be lost."""
        return [box_snapshot for box_snapshot, verdict in self.asked if verdict.way == "abandoned"]


def print_draft(plan: ApprovalDraft, snapshot: Snapshot, target: Target, out: Out) -> None:
    """Prints what would be approved: receipt, boxes, verbs, what is lost, what survives, what it costs."""
    approval = plan.approval
    receipt = snapshot.receipt if approval.receipt == snapshot.receipt_digest else None
    out.line(f"receipt  {approval.receipt or 'none: none is needed'}", style="bold")  # 80 columns wide with a digest
    if receipt is not None:
        out.line(f"          {receipt.verified} of {receipt.total} verified", style="bold")
    rows: list[tuple[str, ...]] = []
    verbs = {action.native_id: action.verb for action in approval.actions}
    for box_snapshot, verdict in (*plan.asked, *plan.kept):
        facts = box_snapshot.box.facts(verbs[box_snapshot.box.native_id])
        rows.append(
            (
                facts.name + (" (kept)" if (box_snapshot, verdict) in plan.kept else ""),
                facts.native_id,
                facts.verb,
                str(verdict.way),
                ", ".join(facts.kills),
                ", ".join(facts.keeps),
                waiting_cost(replace(facts, costs=_costs(snapshot, box_snapshot)), short=True),
            )
        )
    headers = ["BOX", "ID", "VERB", "WAY", "DIES", "SURVIVES", "COST"]
    screen = console()
    if screen.width < WIDE or not screen.is_terminal:  # the approval in the stack file has the ids
        rows, headers = [(row[0], *row[2:]) for row in rows], [headers[0], *headers[2:]]
    out.table(headers, rows)
    if snapshot.spent is not None and len(rows) > 1:
        per_hour, so_far = snapshot.spent.per_hour, snapshot.spent.text
        out.line(f"cost      the sweep ${spell_rate(per_hour)}/h, ${per_hour * 24:.2f}/day; {so_far} so far")
    for box_snapshot, _ in plan.asked:
        clocks = starting(box_snapshot.box.teardown.clocks, snapshot.now)
        if clocks and verbs[box_snapshot.box.native_id] == STOP:
            out.line(f"clock     {box_snapshot.box.name}: {clocks}", style="yellow")
    for waiver in approval.waive:
        out.line(f"waived    {waiver.cell}: {waiver.reason}", style="yellow")
    for box_snapshot, verdict in (*plan.asked, *plan.kept):
        if verdict.unclaimed and verdict.way != "gone":
            out.line(f"unclaimed {box_snapshot.box.name}: {verdict.unclaimed.words}", style="yellow")
    for box_snapshot, verdict in (*plan.asked, *plan.kept):
        ended = _ended_and_dropped(snapshot, box_snapshot) if verdict.way == "cleared" else []
        for name in ended:
            out.line(
                f"dropped   {name} was sealed on {box_snapshot.box.name} and dropped later: no copy of it is verified"
            )
    for name, reason in sorted(snapshot.dropped.items()) if not plan.abandoned else ():
        if name in snapshot.pruned:
            out.line(f"pruned    {name}: {reason.removeprefix(PRUNED)}; never verified", style="yellow")
    for box, words in plan.dying.items():
        out.line(f"in no copy {box}: {words}", style="yellow")
    for entry in approval.unclaimed:
        out.line(f"          {entry.box}: may be lost: {entry.reason}", style="yellow")
    for box_snapshot in plan.abandoned:
        if verbs[box_snapshot.box.native_id] == STOP:
            words = plan.risks[box_snapshot.box.name].words(box_snapshot.box.facts(STOP).kills)
            out.line(f"ABANDONED {box_snapshot.box.name}: {words}", style="bold red")
            continue
        losing = [line for line in (box_snapshot.verdict.cells or []) if line.state not in ("verified", "waived")]
        states: dict[str, int] = {}
        for line in losing:
            states[line.state] = states.get(line.state, 0) + 1
        kinds = ", ".join(f"{number} {state}" for state, number in states.items()) or "no cell without a verified copy"
        finished = sum(line.state in ENDED for line in losing)
        lost = f"{count(len(losing), 'cell')} may be lost{f', {finished} of them finished' if finished else ''}"
        out.line(f"ABANDONED {box_snapshot.box.name}: {lost}: {kinds}", style="bold red")
        for line in losing[:20]:
            out.line(f"          {line.name}  {line.state}  {line.reason}".rstrip())
        if losing[20:]:
            out.line(f"          … and {len(losing) - 20} more")
    waived = {waiver.cell for waiver in approval.waive}
    open_cells = [cell for cell in (receipt.cells if receipt else ()) if cell.state not in SETTLED]
    missing = [f"{cell.name} ({cell.state})" for cell in open_cells if cell.name not in waived]
    if missing and not plan.abandoned:
        more = f", and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        out.line(f"not there {', '.join(missing[:SHOWN])}{more}: on no box named here; without them", style="yellow")
        out.line("          the sweep is not whole. Its boxes go on, or `pulumi up` runs them with the same config")
    for words in dict.fromkeys(words for _, verdict in plan.asked for words in verdict.unsigned):
        out.line(f"unsigned  {words}; it counts once they signed it", style="yellow")
    for name in plan.gone:
        out.line(f"note      box {name} is gone already and needs no approval")
    out.line(f"survives  the evidence at {snapshot.evidence}")


def _ended_and_dropped(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> list[str]:
    """Cells that were sealed on the box and dropped later, so that no receipt counts them."""
    dropped = {*snapshot.dropped, *(box_snapshot.launch.dropped if box_snapshot.launch else ())}
    cells = box_snapshot.journal.cells if box_snapshot.journal is not None else {}
    return sorted(name for name, progress in cells.items() if progress.manifest is not None and name in dropped)


def _costs(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> BoxCosts | None:
    return box_costs(snapshot.spent, box_snapshot.box.native_id) if snapshot.spent is not None else None


def what_next(
    plan: ApprovalDraft, target: Target, options: ApproveOptions, snapshot: Snapshot, store: EvidenceStore | None
) -> list[str]:
    """The commands to type once the approval is written."""
    stack = target.stack
    if options.verb == STOP:
        asked = [box_snapshot.box.name for box_snapshot, _ in plan.asked]
        return [stops(stack, asked)]
    destroy = f"pulumi destroy --stack {stack}"
    if untold := [one.box.name for one, _ in plan.asked if _untold(one)]:
        others = len(plan.asked) + len(plan.kept) > len(untold)
        up = [f"pulumi up --stack {stack}    (clears the other boxes)"] if others else []
        confirm = f"sweepctl confirm gone --stack {stack}"
        seen = [f'{confirm} {name} --saw "…"    (once you saw that it is gone)' for name in untold]
        return [*seen, *up, destroy]
    all_of_them = len(plan.asked) + len(plan.kept) >= sum(
        not box_snapshot.gone for box_snapshot in snapshot.box_snapshots
    )
    if all_of_them and plan.ends_alone:
        return [destroy]
    if held_by_another(store, target.root):  # an `up` would be refused
        init = "" if snapshot.known else f"pulumi stack init {stack} && "
        return [adopt_command(stack), f"{init}pulumi up --stack {stack}    (finds the boxes by their tags)", destroy]
    names = unrented(target, snapshot) if all_of_them else []
    wants = ", ".join(f"boxes.{name}.want" for name in names)
    first = f"after {wants} is set to gone, or it rents {', '.join(names)}: " if names else ""
    return [f"pulumi up --stack {stack}    ({first}clears the boxes)", destroy]


def _untold(one: BoxSnapshot) -> bool:
    """Whether a person's word has to come first: a host can't tell of a box that is on record alone, so that no delete
    will ask for it; or it has lost the folder of the box."""
    if one.seen.folder_lost:
        return True
    return not one.box.urn and one.seen.existence is Existence.UNKNOWN and has_address(one.box.adapter)


def stops(stack: str, names: Sequence[str]) -> str:
    """The command that stops these boxes, and the lines of the stack file that it needs."""
    return f"pulumi up --stack {stack}    (after {', '.join(f'boxes.{name}.want' for name in names)} is set to stopped)"
