"""What `sweepctl approve` asks for in a stack of volumes: what is on each, and whether it may end.

It reads from every stack of this backend which sweeps mounted the volumes. What it shows is stored by its digest, and
the approval names that digest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial

from sweepstack.billing.cost import cost_words
from sweepstack.cli.commands.approve.options import ApprovalRequest, ApproveOptions
from sweepstack.cli.output import Out
from sweepstack.cli.progress import Progress
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.project import project_name
from sweepstack.core.records import Abandonment, Action, Approval
from sweepstack.core.signature import SweepName
from sweepstack.core.suggest import did_you_mean
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import ConfigError, No, Unsure
from sweepstack.operations.sweep.accepted_facts import Relied, relied
from sweepstack.operations.sweep.sources import Sources, open_sources, usable
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.volumes.end_check import (
    VolumeContext,
    VolumeEnding,
    VolumeFacts,
    VolumeVerdict,
    observe_volume,
    policies,
    take_inventory,
)
from sweepstack.operations.volumes.mounting_sweeps import (
    VERB,
    Inventory,
    Survey,
    read_inventory,
    survey,
    write_inventory,
)
from sweepstack.teardown.approval import Given
from sweepstack.teardown.check import may_end
from sweepstack.teardown.ownership import who
from sweepstack.teardown.policy_check import longest
from sweepstack.teardown.refusal import revoked_again
from sweepstack.teardown.revocation import WRITTEN_AGAIN, given_at

Checked = Sequence[tuple[VolumeContext, VolumeVerdict]]


def ask_for_volumes(target: Target, options: ApproveOptions, out: Out) -> ApprovalRequest | None:
    """What is asked for, checked. None, and said so, where all of it is gone. Raises No with every reason."""
    if options.waive or options.unclaimed or options.verb != "destroy":
        raise Unsure(
            "a volume has no cells: cell/, unclaimed/ and --verb are for sweeps. A cell of one that used it is given "
            "up there (sweepctl give-up --stack SWEEP cell/CELL); a volume is given up by data/NAME"
        )
    sources = open_sources(target)
    volumes = _chosen(sources, options)
    facts = [volume.facts for volume in volumes]
    found = _survey(target, sources, volumes)
    identity = sources.state.identity.identity if sources.state.identity else facts[0].identity
    inventory = take_inventory(identity, facts, found, _approvals(target))
    digest = _kept(sources, inventory, options, facts)
    now = given_at(sources.store, datetime.now(UTC), [one.native_id for one in facts])
    lasts = options.lasts(longest(policies(volume)) for volume in volumes)
    approval = _build(options, facts, digest, now, now + lasts)
    with Progress("checking"):
        checked = _checked(volumes, approval, found, "now")
    if not checked:
        out.document({"approved": [], "file": target.file.shown, "next": [f"pulumi up --stack {target.stack}"]})
        out.line("every volume named is gone already: nothing to approve")
        out.next([f"pulumi up --stack {target.stack}"])
        return None
    asked = _asked(target, options, checked, approval, inventory)
    changed = options.receipt is not None and options.receipt != digest
    if asked.reasons or changed:
        asked.show(out)
        words, following = f"what is on them has changed since {options.receipt} was shown", target.stack
        raise _refusal(asked, checked) if asked.reasons else No(words, [f"sweepctl approve --stack {following}"])
    asked.facts = volume_facts_relied_on(target, options, volumes)
    return asked


def volumes_to_sign(target: Target, approval: Approval) -> ApprovalRequest:
    """What this approval names, for one more signature. Raises No if none of it is there."""
    sources = open_sources(target)
    named = {action.native_id for action in approval.actions}
    volumes = [VolumeContext.of_entry(one) for one in sources.state.volumes if one.guarded and one.native_id in named]
    if not volumes:
        raise No("no volume that this approval names is in the state: there is nothing to sign")
    checked = _checked(volumes, approval, _survey(target, sources, volumes), "cosigned")
    if not checked:
        raise No("every volume that this approval names is gone already: there is nothing to sign")
    shown = read_inventory(usable(sources, "approve"), approval.receipt) if approval.receipt is not None else None
    return _asked(target, ApproveOptions(), checked, approval, shown)


def _asked(
    target: Target, options: ApproveOptions, checked: Checked, approval: Approval, shown: Inventory | None
) -> ApprovalRequest:
    stack, names = target.stack, [volume.facts.name for volume, _ in checked]
    given_up = [volume.facts.name for volume, verdict in checked if verdict.way == "abandoned"]

    def sweep() -> SweepName:
        identity = checked[0][0].facts.identity
        return SweepName(project=project_name(target.root), stack=stack.split("/")[-1], identity=identity)

    def record(approval: Approval, facts: Relied) -> tuple[list[str], list[str]]:
        facts.write(target)
        target.file.write_approval(approval)
        return [target.file.shown], []

    again = replace(
        options,
        receipt=approval.receipt,
        boxes=tuple(name for name in names if name not in given_up),
        abandon={name: options.abandon.get(name, "…") for name in given_up},
    )
    return ApprovalRequest(
        target,
        "volume",
        approval,
        names,
        given_up,
        [f"volume {one.facts.name}: {'; '.join(why.reasons)}" for one, why in checked if not why.allowed],
        sweep,
        lambda out: _show(checked, shown, approval.receipt, out),
        record,
        lambda: [
            f"pulumi up --stack {stack}    (clears the volumes)",
            f"pulumi destroy --stack {stack}    (or volumes.NAME.want: gone, for one of them)",
        ],
        given=options.receipt is not None or (not sys.stdin.isatty() and set(names) <= set(given_up)),
        question=f"let {', '.join(names)} be deleted with all that is on {'it' if len(names) == 1 else 'them'}?",
        instead=("to approve, give the whole digest of what was shown", again.spelled(stack)),
    )


def _show(checked: Checked, shown: Inventory | None, digest: str | None, out: Out) -> None:
    """Prints what is on each volume by the records, which receipts prove that copies exist elsewhere, and the cost."""
    if shown is None:
        return
    out.line(f"inventory  {digest or 'none: it could not be stored'}", style="bold")
    rows = []
    for volume, verdict in checked:
        facts = volume.facts
        size = f"{facts.size_gb} GB" if facts.size_gb else "-"
        cost = cost_words(facts.price_per_month, facts.keep_until, today=date.today())
        rows.append((facts.name, facts.native_id, size, str(verdict.way or "locked"), facts.where, cost))
    out.table(("VOLUME", "ID", "SIZE", "WAY", "WHERE", "COST"), rows)
    for volume, verdict in checked:
        name, uses = volume.facts.name, shown.volumes.get(volume.facts.native_id, ())
        if not uses:
            out.line(f"on it      {name}: no sweep on record ever mounted it")
        for use in uses:
            waived = f", {len(use.waived)} waived" if use.waived else ""
            safe = f"{use.verified} of {use.total} verified{waived}, {use.receipt}" if use.receipt else "no receipt"
            out.line(f"on it      {name}: {use.stack} ({use.identity}): {safe}")
        if verdict.way == "abandoned":
            out.line(f"ABANDONED  {name}: what is on it may be lost", style="bold red")
    for words in dict.fromkeys(words for _, verdict in checked for words in verdict.unsigned):
        out.line(f"unsigned   {words}; it counts once they signed it", style="yellow")


def volume_facts_relied_on(
    target: Target, options: ApproveOptions, volumes: Sequence[VolumeContext], by: str = ""
) -> Relied:
    """The old facts that the end of these volumes relies on. Raises No if one is not accepted. An abandonment relies on
    none."""
    whose = [(None, volume.adapter) for volume in volumes if volume.facts.name not in options.abandon]
    return relied(target, whose, "volume", options.accept_facts, partial(options.spelled, target.stack, verb=by))


def _chosen(sources: Sources, options: ApproveOptions) -> list[VolumeContext]:
    """The volumes asked for: those named, else all."""
    kept = {entry.name: entry for entry in sources.state.volumes if entry.guarded}
    if not kept:
        raise No(f"there is no volume in the state of {sources.state.stack}: nothing to approve")
    for name in (*options.boxes, *options.abandon):
        if name not in kept:
            raise No(
                f"there is no volume {name} in the state (there: {', '.join(kept)}){did_you_mean(name, kept)}",
                [f"sweepctl status --stack {sources.target.stack}"],
            )
    wanted = {*options.boxes, *options.abandon} or set(kept)
    return [VolumeContext.of_entry(entry) for name, entry in kept.items() if name in wanted]


def _approvals(target: Target) -> dict[str, Approval]:
    """The approvals in the stack files of sweeps, as far as the files can be read."""
    said: dict[str, Approval] = {}
    for name in StackFile.stacks(target.root):
        try:
            approval = StackFile.locate(target.root, name).approval()
        except ConfigError:
            continue
        if approval is not None:
            said[name] = approval
    return said


def _kept(
    sources: Sources, inventory: Inventory, options: ApproveOptions, volumes: Sequence[VolumeFacts]
) -> str | None:
    """Stores the inventory that is shown. Its digest; None if all volumes are given up and there is no evidence."""
    store: EvidenceStore | None = sources.store
    if store is not None:
        return write_inventory(store, inventory)
    if {facts.name for facts in volumes} <= set(options.abandon):
        return None
    raise Unsure(
        f"the inventory to approve can't be stored: {sources.problem or 'the evidence of this stack is not known'}"
    )


def _build(
    options: ApproveOptions, volumes: Sequence[VolumeFacts], digest: str | None, now: datetime, expires: datetime
) -> Approval:
    abandon = tuple(
        Abandonment(box=facts.name, native_id=facts.native_id, reason=options.abandon[facts.name], verb=VERB)
        for facts in volumes
        if facts.name in options.abandon
    )
    return Approval(
        receipt=digest,
        actions=tuple(Action(verb=VERB, box=facts.name, native_id=facts.native_id) for facts in volumes),
        abandon=abandon,
        waivers_digest=Approval.digest_waivers((), abandon),
        by=who(),
        at=now,
        expires=expires,
    )


def _survey(target: Target, sources: Sources, volumes: Sequence[VolumeContext]) -> Survey:
    with Progress("reading from every stack which sweeps mounted them"):
        return survey(target.root, sources.store, [one.facts.native_id for one in volumes], but=target.stack)


def _checked(volumes: Sequence[VolumeContext], approval: Approval, found: Survey, given: Given) -> Checked:
    """The check's answer for each that is not gone."""
    checked = []
    for volume in volumes:
        seen, _ = observe_volume(volume, found.of(volume.facts.native_id))
        verdict = may_end(VolumeEnding(volume, approval, seen, found, given), full=False)
        checked += [(volume, verdict)] if verdict.way != "gone" else []
    return checked


def _refusal(asked: ApprovalRequest, checked: Checked) -> No:
    stack, refused = asked.target.stack, [one for one in checked if not one[1].allowed]
    lines = ["not approved; nothing was written"]
    lines += [f"  volume {volume.facts.name}: {reason}" for volume, verdict in refused for reason in verdict.reasons]
    users = dict.fromkeys(user.stack for _, verdict in refused for user in verdict.users)
    following = [f"sweepctl finish --stack {user}    (pull, verify, approve, up, destroy)" for user in list(users)[:3]]
    if any(WRITTEN_AGAIN in reason for reason in asked.reasons):
        following = [revoked_again(stack)]
    name = refused[0][0].facts.name
    following.append(f'sweepctl give-up --stack {stack} data/{name} --reason "…"    (what is on it may be lost)')
    return No("\n".join(lines), following)
