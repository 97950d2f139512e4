"""Sweep: a whole plan as resources: `Identity → Volume → Box → Queue → Gate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi

from components import screen
from components.approval import approval_to_leave
from components.box import BoxComponent, Code
from components.platforms import ssh
from components.resources import Identity, IdentityArgs
from components.shares import shared, words
from components.volume import durable_mount
from sweepstack.billing.forecast import Outlook
from sweepstack.config.project import stack_path
from sweepstack.core import git_source
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.core.workdir import NO_CODE, Shipment, collect, located
from sweepstack.evidence.stack_copy import keep_stack_file
from sweepstack.launch.smoke import standing
from sweepstack.onbox.common.errors import ConfigError, EvidenceError
from sweepstack.onbox.common.units import spell_bytes
from sweepstack.profiles import first_contact
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.plan import BoxPlan, Plan


def outlook_of(plan: Plan, declared: Sequence[BoxPlan]) -> dict[str, Any]:
    """What is to come, for the preview's line about the budget."""
    running = [box for box in declared if box.want == "running"]
    outlook = Outlook(
        boxes=len(running),
        price_per_hour=plan.price_per_hour,
        slots=sum(box.slots for box in running),
        cells=len(plan.roster.cells),
        dry_run=pulumi.runtime.is_dry_run(),
    )
    return outlook.model_dump(mode="json", exclude_none=True)


class Sweep(pulumi.ComponentResource):
    """One sweep. Hashes the files that will ship; raises ConfigError when they can't."""

    identity: Identity
    boxes: dict[str, BoxComponent]

    def __init__(self, plan: Plan, project_root: Path, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("sweepstack:components:Sweep", pulumi.get_stack(), None, opts)
        if plan.boxes and (told := first_contact.once(load_profile(plan.platform))):
            screen.say("\n".join(told))
        plan, shares = shared(plan)
        declared = tuple(box for box in plan.boxes if box.name in shares.cells)
        self._over = bool(plan.boxes) and not declared
        plan, code = _code(plan, project_root)
        for note in plan.notes:
            screen.warn(note)
        smoke = plan.smoke.model_copy(update={"code": code.digest}) if plan.smoke is not None else None
        if smoke is not None and not code.lack and pulumi.runtime.is_dry_run() and declared:
            screen.say(standing(smoke))
        if plan.job.smoke and pulumi.runtime.is_dry_run() and declared:
            screen.say(f"smoke run: on each box before its first cell with new code ({plan.job.smoke['run']})")
        if pulumi.runtime.is_dry_run() or self._over:
            for line in (
                *words(plan, shares),
                *(f"placement: {why}" for why in plan.reasons),
                *plan.lease_words,
                *plan.checked,
                f"ships {code.words}",
            ):
                screen.say(line)
        child = pulumi.ResourceOptions(parent=self)
        args = IdentityArgs(
            project=pulumi.get_project(),
            stack=pulumi.get_stack(),
            pull_to=plan.pull_to,
            leaving=approval_to_leave(plan),
            roster_digest=plan.roster.digest,
            artifacts_digest=artifacts_digest(plan.artifacts),
            budget=plan.budget.model_dump(mode="json", exclude_none=True) if plan.budget is not None else None,
            outlook=outlook_of(plan, declared) if plan.budget is not None else None,
        )
        self.identity = Identity("identity", args, child)
        if not pulumi.runtime.is_dry_run():
            file = stack_path(project_root, pulumi.get_stack())
            self.identity.evidence.apply(lambda evidence: _keep(str(evidence), file))
        # A volume may cost money, too; one that is there survives without its entry, and is found again by its tag.
        mount = durable_mount(plan, self.identity, child) if declared or not plan.boxes else None
        self.boxes = {
            box.name: BoxComponent(plan, box, self.identity, [mount] if mount else [], code, smoke, child)
            for box in declared
        }
        self.register_outputs({})

    def export(self) -> None:
        """The stack's outputs: who it is, where the evidence lies, which boxes there are, what to type next."""
        pulumi.export("identity", self.identity.identity)
        pulumi.export("evidence", self.identity.evidence)
        pulumi.export("boxes", {name: component.box.native_id for name, component in self.boxes.items()})
        hosts = {name: ssh.facts_of(box.setup) for name, box in self.boxes.items() if box.setup is not None}
        if hosts:
            pulumi.export("hosts", hosts)
        pulumi.export("next", f"sweepctl {'results' if self._over else 'status'} --stack {pulumi.get_stack()}")


def _keep(evidence: str, file: Path) -> None:
    """Keeps a copy of the stack file in the evidence: `pulumi stack rm` deletes the file. No reason to end an `up`."""
    try:
        keep_stack_file(evidence, file)
    except (EvidenceError, OSError) as error:
        screen.warn(f"no copy of {file.name} was kept in the evidence: {error}")


def _code(plan: Plan, project_root: Path) -> tuple[Plan, Code]:
    """The code, and the plan with a git URL at its commit. Raises ConfigError for files that can't be had, unless an
    approval stands in the stack file: a box must be able to end where its code is not, on another machine or after
    years. Nothing is started with code that is not here, and what runs keeps its own."""
    try:
        plan = _pinned(plan)
        shipment = collect(located(project_root, plan.job.workdir, screen.say), plan.job.include)
    except ConfigError as error:
        if plan.approval is None:
            raise
        screen.warn(f"{error}\nThe teardown goes on without it: nothing new is started, and what runs keeps its code")
        return plan, Code(NO_CODE, "unknown: the work dir can't be had here", str(error))
    return plan, Code(shipment.digest, _described(shipment))


def _pinned(plan: Plan) -> Plan:
    """A git URL at the commit that its branch or tag is now: what is reviewed is what runs."""
    source = git_source.parse(plan.job.workdir)
    if source is None:
        return plan
    workdir = str(git_source.pinned(source))
    smoke = plan.smoke.model_copy(update={"workdir": workdir}) if plan.smoke is not None else None
    return replace(plan, job=replace(plan.job, workdir=workdir), smoke=smoke)


def _described(shipment: Shipment) -> str:
    """How much ships, and which files may have been forgotten to track."""
    count = len(shipment.files)
    text = f"{count} file{'' if count == 1 else 's'}, {spell_bytes(shipment.bytes)}"
    if not shipment.left_behind:
        return text
    shown = ", ".join(shipment.left_behind[:3]) + (" …" if len(shipment.left_behind) > 3 else "")
    return f"{text}; not tracked by git and left behind: {shown}"
