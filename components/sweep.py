"""Sweep: a whole plan as resources: `Identity → Volume → Box → Queue → Gate`.

Before a box is declared, the provider is asked which box is to run which cell (`launch.cell_shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pulumi

from components import screen
from components.approval import approval_to_leave
from components.box import BoxGroup, Code
from components.platforms import ssh
from components.resources import Component, Identity
from components.volume import durable_mount
from sweepstack.config.declared import declared_path
from sweepstack.config.find import SWEEP, line_of
from sweepstack.config.own_files import own_files
from sweepstack.config.project import stack_path
from sweepstack.core import git_source
from sweepstack.core.budget import Outlook
from sweepstack.core.functions import SHARES
from sweepstack.core.job import Smoke
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.core.workdir import NO_CODE, collect, located
from sweepstack.launch import unshipped_files
from sweepstack.launch.cell_shares import AskedBox, Shares, SplitQuestion, by_names_alone
from sweepstack.launch.smoke import preview_line
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, SweepstackError
from sweepstack.onbox.common.units import count, spell_bytes
from sweepstack.profiles.fleet import Fleet
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.plan import BoxPlan, Plan
from sweepstack.profiles.words import told_once


def outlook_of(fleet: Fleet, declared: Sequence[BoxPlan]) -> dict[str, Any]:
    """What is to come, for the preview's line about the budget. On several platforms a box costs the mean."""
    running = [box for box in declared if box.want == "running"]
    prices = [fleet.plan_of(box.name).price_per_hour for box in running] or [fleet.main.price_per_hour]
    known = [price for price in prices if price is not None]
    mean = known[0] if len(set(known)) == 1 else sum(known) / max(1, len(known))
    outlook = Outlook(
        boxes=len(running),
        price_per_hour=mean if len(known) == len(prices) else None,
        slots=sum(box.at_once for box in running),
        cells=len(fleet.main.roster.cells),
        dry_run=pulumi.runtime.is_dry_run(),
    )
    return outlook.model_dump(mode="json", exclude_none=True)


class Sweep(Component):
    """One sweep. Hashes the files that will ship; raises ConfigError when they can't."""

    key = SWEEP
    identity: Identity
    boxes: dict[str, BoxGroup]

    def __init__(
        self, fleet: Fleet, project_root: Path, name: str = "", opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """`name`: in the engine's list; the stack's where it is empty."""
        super().__init__(name or pulumi.get_stack(), opts, called=pulumi.get_stack())
        for one in fleet.plans:
            if one.boxes and (told := told_once(load_profile(one.platform))):
                screen.say("\n".join(told))
        fleet, shares = shared(fleet, pulumi.InvokeOptions(parent=self))
        _refuse_new(fleet.main, begun=shares.begun)
        _refuse_counts(fleet.main, shares.refused, project_root)
        declared = tuple(box for box in fleet.boxes if box.name in shares.cells)
        over = bool(fleet.boxes) and not declared
        fleet, code, left = _code(fleet, project_root)
        for note in fleet.each("notes"):
            screen.warn(note)
        plan = fleet.main
        smoke = plan.smoke.model_copy(update={"code": code.digest}) if plan.smoke is not None else None
        if pulumi.runtime.is_dry_run() and declared:
            _tell_smoke(plan, smoke, code)
        if pulumi.runtime.is_dry_run() or over:
            _tell(fleet, shares, code, left())
        child = pulumi.ResourceOptions(parent=self)
        self.identity = Identity(
            "identity",
            child,
            project=pulumi.get_project(),
            stack=pulumi.get_stack(),
            pull_to=plan.pull_to,
            leaving=approval_to_leave(plan.approval, fleet.staying),
            roster_digest=plan.roster.digest,
            artifacts_digest=artifacts_digest(plan.artifacts),
            budget=plan.budget.model_dump(mode="json", exclude_none=True) if plan.budget is not None else None,
            outlook=outlook_of(fleet, declared) if plan.budget is not None else None,
            search=plan.search or None,
        )
        if not pulumi.runtime.is_dry_run():
            file = stack_path(project_root, pulumi.get_stack())
            self.identity.evidence.apply(lambda evidence: _keep(str(evidence), file))
        # A volume may cost money, too; one that is there survives without its entry, and is found again by its tag.
        mounts = {
            one.platform: mount
            for one in fleet.plans
            if not one.boxes or any(box.name in shares.cells for box in one.boxes)
            if (mount := durable_mount(one, self.identity, child)) is not None
        }
        self.boxes = {}
        for box in declared:
            mount = mounts.get(fleet.plan_of(box.name).platform)
            mine = [mount] if mount is not None else []
            self.boxes[box.name] = BoxGroup(fleet, box, self.identity, mine, code, smoke, child)
        hosts = {name: ssh.facts_of(group.setup) for name, group in self.boxes.items() if group.setup is not None}
        self.declared(
            identity=self.identity.identity,
            evidence=self.identity.evidence,
            boxes={name: group.box.native_id for name, group in self.boxes.items()},
            **({"hosts": hosts} if hosts else {}),
            next=f"sweepctl {'results' if over else 'status'} --stack {pulumi.get_stack()}",
        )


def _tell(fleet: Fleet, shares: Shares, code: Code, left: Sequence[str]) -> None:
    """What a preview says of the sweep as a whole. `left`: files that stay here."""
    for line in (
        *words(fleet, shares),
        *(f"placement: {why}" for why in fleet.each("reasons")),
        *fleet.each("lease_words"),
        *fleet.each("checked"),
        f"ships {code.words}",
        *left,
    ):
        screen.say(line)


def _tell_smoke(plan: Plan, smoke: Smoke | None, code: Code) -> None:
    """The lines of a preview about the smoke run."""
    if smoke is not None and not code.lack:
        screen.say(preview_line(smoke))
    if plan.job.smoke:
        screen.say(f"smoke run: on each box before its first cell with new code ({plan.job.smoke.run})")


def _refuse_new(plan: Plan, *, begun: bool) -> None:
    """Raises ConfigError for what no cell may start with, unless cells have: then it is told, and they stay as they
    are. An approval in the stack file is for boxes that are to end, and nothing of this is in their way."""
    if plan.refused_new is None:
        return
    if not begun and plan.approval is None:
        raise plan.refused_new
    why = "cells of this sweep have started" if begun else "the stack file has an approval"
    screen.warn("\n".join([f"told and not refused, since {why}:", *plan.refused_new.problems]))


def _refuse_counts(plan: Plan, refused: Sequence[str], project_root: Path) -> None:
    """Raises ConfigError for counts of `cells.retry` that are lower than what was brought up; with an approval in the
    stack file they are told, and ask for nothing."""
    if refused:
        lines = "\n".join(f"  {line}" for line in refused)
        text = f"{stack_path(project_root, pulumi.get_stack()).name}: nothing was started\n\n{lines}"
        if plan.approval is None:
            raise ConfigError(text, list(refused))
        screen.warn(text)


def _keep(evidence: str, file: Path) -> None:
    """Keeps a copy of the stack file in the evidence: `pulumi stack rm` deletes the file. No reason to end an `up`."""
    from sweepstack.evidence.stack_copy import keep_stack_file  # with all of the evidence, which no preview opens

    try:
        keep_stack_file(evidence, file, declared_path(file))
    except (EvidenceError, OSError) as error:
        screen.warn(f"no copy of {file.name} was kept in the evidence: {error}")


def _code(fleet: Fleet, project_root: Path) -> tuple[Fleet, Code, Callable[[], list[str]]]:
    """The code; the plans with a git URL at its commit; and a function that tells which files stay here. Raises
    ConfigError for files that can't be had, unless an approval stands in the stack file: a box must be able to end
    where its code is not, on another machine or after years. Nothing is started with code that is not here, and what
    runs keeps its own."""
    try:
        fleet = _pinned(fleet)
        job = fleet.main.job
        workdir, own = located(project_root, job.workdir, screen.say), own_files(project_root)
        shipment = collect(workdir, job.include, own)
    except ConfigError as error:
        if fleet.main.approval is None:
            key = str(error).partition(":")[0].split(".")  # job.workdir, job.include
            where = line_of(project_root, pulumi.get_stack(), *key)
            raise ConfigError(f"{where}: {error}", error.problems) from error
        screen.warn(f"{error}\nThe teardown goes on without it: nothing new is started, and what runs keeps its code")
        return fleet, Code(NO_CODE, "unknown: the work dir can't be had here", str(error)), list
    words = f"{count(len(shipment.files), 'file')}, {spell_bytes(shipment.bytes)}"
    return fleet, Code(shipment.digest, words), partial(unshipped_files.words, workdir, shipment, own)


def _pinned(fleet: Fleet) -> Fleet:
    """A git URL at the commit that its branch or tag is now: what is reviewed is what runs."""
    source = git_source.parse(fleet.main.job.workdir)
    if source is None:
        return fleet
    workdir = str(git_source.pinned(source))

    def at_commit(plan: Plan) -> Plan:
        smoke = plan.smoke.model_copy(update={"workdir": workdir}) if plan.smoke is not None else None
        return replace(plan, job=plan.job.model_copy(update={"workdir": workdir}), smoke=smoke)

    return replace(fleet, plans=tuple(at_commit(plan) for plan in fleet.plans))


def shared(fleet: Fleet, opts: pulumi.InvokeOptions) -> tuple[Fleet, Shares]:
    """The plans with their cells as the provider splits them, over the boxes of all platforms, and that answer. Blocks
    while boxes are asked, 20 s at most.

    All boxes of the stack file stay in the plans; those that `Shares.cells` does not name are not to be declared.
    """
    roster = fleet.main.roster
    asked = SplitQuestion(
        project=pulumi.get_project(),
        stack=pulumi.get_stack(),
        pull_to=fleet.main.pull_to,
        cells=roster.cells,
        boxes={box.name: AskedBox(want=box.want, slots=box.at_once) for box in fleet.boxes},
        up=not pulumi.runtime.is_dry_run(),
        retry=roster.retry,
    )
    found = pulumi.runtime.invoke(SHARES, {"asked": asked.model_dump_json()}, opts).value
    text = found.get("shares") if isinstance(found, Mapping) else None
    shares = Shares.model_validate_json(text) if text else by_names_alone(asked, "the provider did not say")
    if shares.stop:
        raise SweepstackError(shares.stop)
    cells = {cell.name: cell for cell in roster.cells}
    fleet = fleet.with_cells({box: [cells[name] for name in names] for box, names in shares.cells.items()})
    return fleet.with_retries(shares.retries), shares


def words(fleet: Fleet, shares: Shares) -> list[str]:
    """What to say of it: the cells of each box, boxes that are not rented, and what to type where nothing is left."""
    each = [f"{box} {_count(len(shares.cells.get(box, ())), left)}" for box, left in shares.left.items()]
    lines = [f"cells of each box: {', '.join(each)}"] if each else []
    idle = [box.name for box in fleet.boxes if box.name not in shares.cells]
    if shares.cells:
        lines += [f"box {name}: not rented: no cell" for name in idle]
    elif idle:
        cells = len(fleet.main.roster.cells)
        lines.append(
            f"nothing is left to train: {'the one cell is' if cells == 1 else f'all {cells} cells are'} verified, and "
            f"no box is rented. Next: sweepctl results --stack {pulumi.get_stack()}"
        )
    return lines


def _count(cells: int, left: int) -> str:
    """`3`, or `3 (1 left to train)`."""
    return str(cells) if cells == left else f"{cells} ({left} left to train)"
