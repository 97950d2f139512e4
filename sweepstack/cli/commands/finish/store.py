"""`sweepctl finish` of a stack of volumes: approve, `pulumi up`, `pulumi destroy`, last check."""

from __future__ import annotations

from collections.abc import Sequence

from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.cli.commands.approve.store import approve_store, volume_facts_relied_on
from sweepstack.cli.commands.finish.sweep import Steps, Stop, ask_once, engine, spelled
from sweepstack.cli.output import NO, UNSURE, YES, No, Out
from sweepstack.cli.progress import Progress
from sweepstack.cli.sources import Sources, open_sources
from sweepstack.cli.target import Target
from sweepstack.cli.volume_status import guarded, holding
from sweepstack.operations.volumes.end_check import VolumeContext
from sweepstack.operations.volumes.users import Survey, survey


def finish_store(target: Target, options: ApproveOptions, out: Out) -> int:
    """Exit 0 only if the platform proves that no volume of the stack is left.

    The data of all sweeps on them must be safe elsewhere: the first step names the sweeps with data that is not.
    """
    stack, steps = target.stack, Steps(target.stack, out)
    sources = open_sources(target)
    if not guarded(sources):
        raise No(f"there is no volume in the state of {stack}: nothing to finish", [f"sweepctl status --stack {stack}"])
    try:
        if _approved(sources):
            ask_once(target)
        else:
            volumes = [VolumeContext.of(entry) for entry in sources.state.volumes if entry.guarded]
            volume_facts_relied_on(target, options, volumes, spelled(stack, options, "finish")).write(target)
            steps.take(spelled(stack, options), lambda: approve_store(target, options, steps.quiet))
        steps.take(f"pulumi up --stack {stack} --yes", lambda: engine(target, "up", out))
        steps.take(f"pulumi destroy --stack {stack} --yes", lambda: engine(target, "destroy", out))
    except Stop as stop:
        return stop.code
    with Progress("looking"):
        held = holding(open_sources(target))
    left = [one.facts.native_id for one in held.volumes if one.state != "gone"]
    left += [record.native_id for record in held.orphans]
    code = NO if left else UNSURE if held.problems else YES
    out.document({"stack": stack, "finished": code == YES, "bills": held.bills, "left": left, "steps": steps.done})
    if left:
        out.line(f"still there: {', '.join(left)}")
    elif held.problems:
        out.line(f"whether one is left is not known: {'; '.join(held.problems)}")
    else:
        out.line(f"no volume of {stack} is left, and nothing of it bills; the records stay at {sources.evidence}")
    if code != YES:
        out.next([f"sweepctl status --stack {stack}"])
    return code


def _approved(sources: Sources) -> bool:
    """Whether the approval in the stack file lets every volume end, by what all stacks of the backend use."""

    def all_stacks(native_ids: Sequence[str]) -> Survey:
        return survey(sources.target.root, sources.store, native_ids, but=sources.target.stack)

    if not sources.target.file.path.exists() or sources.target.file.approval() is None:
        return False
    with Progress("reading from every stack which sweeps mounted them"):
        held = holding(sources, all_stacks)
    return all(one.verdict.allowed for one in held.volumes)
