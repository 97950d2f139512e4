"""Shows a person what an approval would allow, before asking for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sweepstack.billing.cost import BoxCosts, box_costs
from sweepstack.billing.deadlines import starting
from sweepstack.cli.collect import unrented
from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.cli.held_by import adopt_command, held_by_another
from sweepstack.cli.output import Out, console, count
from sweepstack.cli.render import WIDE
from sweepstack.cli.target import Target
from sweepstack.core.records import SETTLED, Approval
from sweepstack.evidence import unsealed
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.status.engine.state import STOP
from sweepstack.status.snapshot import Scene, Sight
from sweepstack.teardown.abandonment import VERB
from sweepstack.teardown.check import Verdict
from sweepstack.teardown.refusal import waiting_cost
from sweepstack.teardown.stop_check import AtRisk

SHOWN = 8
"""The most names of cells on one line."""


@dataclass
class Plan:
    """What is about to be approved: the boxes asked for now, and those that an earlier approval still covers."""

    approval: Approval
    asked: list[tuple[Sight, Verdict]] = field(default_factory=list)
    kept: list[tuple[Sight, Verdict]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    risks: dict[str, AtRisk] = field(default_factory=dict)
    dying: dict[str, str] = field(default_factory=dict)
    """box → files of attempts without a seal that are in no copy"""

    @property
    def ends_alone(self) -> bool:
        """Whether a destroy works without an `up` before it: all boxes are in the state, and recorded as given up."""
        every = (*self.asked, *self.kept)
        given_up = {entry.native_id for entry in self.approval.abandon if entry.verb == VERB}
        return all(sight.box.native_id in given_up and sight.box.urn for sight, _ in every)

    @property
    def abandoned(self) -> list[Sight]:
        """The boxes asked for now with data that may be lost."""
        return [sight for sight, verdict in self.asked if verdict.way == "abandoned"]


def show(plan: Plan, scene: Scene, target: Target, out: Out) -> None:
    """Prints what would be approved: receipt, boxes, verbs, what is lost, what survives, what it costs."""
    approval = plan.approval
    receipt = scene.receipt if approval.receipt == scene.receipt_digest else None
    out.line(f"receipt  {approval.receipt or 'none: none is needed'}", style="bold")  # 80 columns wide with a digest
    if receipt is not None:
        out.line(f"          {receipt.verified} of {receipt.total} verified", style="bold")
    rows: list[tuple[str, ...]] = []
    verbs = {action.native_id: action.verb for action in approval.actions}
    for sight, verdict in (*plan.asked, *plan.kept):
        facts = sight.box.facts(verbs[sight.box.native_id])
        rows.append(
            (
                facts.name + (" (kept)" if (sight, verdict) in plan.kept else ""),
                facts.native_id,
                facts.verb,
                str(verdict.way),
                ", ".join(facts.kills),
                ", ".join(facts.keeps),
                waiting_cost(replace(facts, costs=_costs(scene, sight)), short=True),
            )
        )
    headers = ["BOX", "ID", "VERB", "WAY", "DIES", "SURVIVES", "COST"]
    screen = console()
    if screen.width < WIDE or not screen.is_terminal:  # the approval in the stack file has the ids
        rows, headers = [(row[0], *row[2:]) for row in rows], [headers[0], *headers[2:]]
    out.table(headers, rows)
    if scene.spent is not None and len(rows) > 1:
        per_hour, so_far = scene.spent.per_hour, scene.spent.usd
        out.line(f"cost      the sweep ${per_hour:.2f}/h, ${per_hour * 24:.2f}/day; ${so_far:.2f} so far")
    for sight, _ in plan.asked:
        clocks = starting(sight.box.teardown.clocks, scene.now)
        if clocks and verbs[sight.box.native_id] == STOP:
            out.line(f"clock     {sight.box.name}: {clocks}", style="yellow")
    for waiver in approval.waive:
        out.line(f"waived    {waiver.cell}: {waiver.reason}", style="yellow")
    for sight, verdict in (*plan.asked, *plan.kept):
        if verdict.unclaimed and verdict.way != "gone":
            out.line(f"unclaimed {sight.box.name}: {verdict.unclaimed.words}", style="yellow")
    for sight, verdict in (*plan.asked, *plan.kept):
        ended = _ended_and_dropped(scene, sight) if verdict.way == "cleared" else []
        for name in ended:
            out.line(f"dropped   {name} was sealed on {sight.box.name} and dropped later: no copy of it is verified")
    for box, words in plan.dying.items():
        out.line(f"in no copy {box}: {words}", style="yellow")
    for entry in approval.unclaimed:
        out.line(f"          {entry.box}: may be lost: {entry.reason}", style="yellow")
    for sight in plan.abandoned:
        if verbs[sight.box.native_id] == STOP:
            words = plan.risks[sight.box.name].words(sight.box.facts(STOP).kills)
            out.line(f"ABANDONED {sight.box.name}: {words}", style="bold red")
            continue
        losing = [line for line in (sight.verdict.cells or []) if line.state not in ("verified", "waived")]
        states: dict[str, int] = {}
        for line in losing:
            states[line.state] = states.get(line.state, 0) + 1
        kinds = ", ".join(f"{number} {state}" for state, number in states.items()) or "no cell without a verified copy"
        out.line(f"ABANDONED {sight.box.name}: {count(len(losing), 'cell')} may be lost: {kinds}", style="bold red")
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
    for name in plan.gone:
        out.line(f"note      box {name} is gone already and needs no approval")
    out.line(f"survives  the evidence at {scene.evidence}")


def _ended_and_dropped(scene: Scene, sight: Sight) -> list[str]:
    """Cells that were sealed on the box and dropped later, so that no receipt counts them."""
    dropped = {*scene.dropped, *(sight.launch.dropped if sight.launch else ())}
    cells = sight.journal.cells if sight.journal is not None else {}
    return sorted(name for name, progress in cells.items() if progress.manifest is not None and name in dropped)


def _costs(scene: Scene, sight: Sight) -> BoxCosts | None:
    return box_costs(scene.spent, sight.box.native_id) if scene.spent is not None else None


def dying(store: EvidenceStore | None, named: Sequence[Sight], verb: str) -> dict[str, str]:
    """box → files of attempts without a seal that are in no copy and that this verb deletes."""
    found = {}
    for sight in named:
        kills = sight.box.facts(verb).kills
        if kills and box_layout.HOME.split("/")[0] not in kills:
            continue
        dead = sight.seen.runner_alive is False
        try:
            if store is None:
                raise EvidenceError("the evidence can't be read")
            words = unsealed.dying(store, sight.box.name, sight.box.generation, sight.journal, dead=dead)
        except EvidenceError as error:
            words = f"logs of failed attempts, if there are any: {error}"
        if words:
            found[sight.box.name] = words
    return found


def what_next(
    plan: Plan, target: Target, options: ApproveOptions, scene: Scene, store: EvidenceStore | None
) -> list[str]:
    """The commands to type once the approval is written."""
    stack = target.stack
    if options.verb == STOP:
        asked = [sight.box.name for sight, _ in plan.asked]
        return [f"{stop_hint(asked)}, then pulumi up --stack {stack}"]
    destroy = f"pulumi destroy --stack {stack}"
    all_of_them = len(plan.asked) + len(plan.kept) >= sum(not sight.gone for sight in scene.sights)
    if all_of_them and plan.ends_alone:
        return [destroy]
    if held_by_another(store, target.root):  # an `up` would be refused
        init = "" if scene.known else f"pulumi stack init {stack} && "
        return [adopt_command(stack), f"{init}pulumi up --stack {stack}    (finds the boxes by their tags)", destroy]
    following = [f"pulumi up --stack {stack}    (clears the boxes)", destroy]
    if all_of_them and (names := unrented(target, scene)):
        first = ", ".join(f"boxes.{name}.want: gone" for name in names)
        following.insert(0, f"{first} in {target.file.shown}    (else pulumi up rents {', '.join(names)})")
    return following


def stop_hint(names: Sequence[str]) -> str:
    """The lines of the stack file that make these boxes stop."""
    return ", ".join(f"boxes.{name}.want: stopped" for name in names)
