"""Volume: storage that outlives the boxes.

A sweep never deletes one. The stack that keeps it does, after a check of its own: what it costs, who mounts it, and
whether it may end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, ClassVar

from sweepstack.billing.cost import cost_words, overdue
from sweepstack.billing.egress import GB
from sweepstack.billing.stray import end_command, not_taken, takes_words
from sweepstack.core.paths import docs_page
from sweepstack.core.records import Approval
from sweepstack.core.resources import VolumeInputs, VolumeSeen, VolumeState
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import volume_of, volume_tag
from sweepstack.onbox.common.errors import (
    EvidenceError,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    SweepstackError,
    TeardownRefused,
    Unsupported,
)
from sweepstack.onbox.host.capabilities import HasVolumes, NamesVolumes
from sweepstack.onbox.host.platform import Platform, VolumeRecord
from sweepstack.operations.volumes.end_check import (
    VolumeContext,
    VolumeEnding,
    VolumeVerdict,
    end_refusal,
    find_kept,
    observe_volume,
)
from sweepstack.operations.volumes.mounting_sweeps import VERB, Mounting, Survey, recorded, survey, write_mounting
from sweepstack.platforms.registry import load_platform, need
from sweepstack.provider.resources import held_by_another, policy_limits
from sweepstack.provider.resources.base import Checked, Decision, Failure, Gone, Handler, ReadAnswer
from sweepstack.provider.resources.error_context import became
from sweepstack.provider.resources.founding import founded
from sweepstack.provider.resources.teardown import policies_of_state
from sweepstack.provider.resources.want_gone import for_this_change
from sweepstack.provider.session import Operation
from sweepstack.status.engine.state import read_state
from sweepstack.teardown.box_context import in_entry
from sweepstack.teardown.check import may_end

GONE_SECONDS = 300.0
POLL_SECONDS = 0.5


class VolumeHandler(Handler[VolumeInputs, VolumeState]):
    """Finds a volume by its tag, so that a second create adopts it with all that is on it."""

    token = "sweepstack:index:Volume"
    inputs_type = VolumeInputs
    state_type = VolumeState
    decisions: ClassVar[dict[str, Decision]] = {
        "identity": Decision.REFUSE,
        "evidence": Decision.REFUSE,
        "adapter": Decision.REFUSE,
        "name": Decision.REFUSE,
        "kept": Decision.REFUSE,
        "keep_until": Decision.UPDATE,
        "guarded": Decision.REFUSE,
        "size_gb": Decision.UPDATE,  # it grows; Check refuses to shrink it
        "region": Decision.REFUSE,
        "price_per_gb_month": Decision.UPDATE,
        "least_bytes": Decision.IGNORE,  # it changes with every cell, and a volume does not
        "approval": Decision.UPDATE,
        "clearance": Decision.UPDATE,
        "policy": Decision.UPDATE,
        "live": Decision.IGNORE,
        "imported": Decision.UPDATE,
    }
    refusals: ClassVar[dict[str, str]] = {
        "adapter": "a volume stays on its platform: make another, under a new name, and copy what you need",
        "region": "a volume stays where it was made: make another, under a new name, and copy what you need",
        "name": "a volume is found by its name: another name is another volume",
        "guarded": f"a volume that a stack keeps is ended by its check alone ({docs_page('volumes.md')})",
        "kept": "whether this stack keeps the volume or only mounts it may not change: it would be another volume",
    }

    def check(self, op: Operation, old: VolumeInputs | None, new: VolumeInputs) -> Checked[VolumeInputs]:
        """Says what it costs, and writes `clearance`. Refuses to shrink it."""
        if new.imported:  # the engine checks what an import answered
            return Checked(new)
        binds = policy_limits.bound(op, Evidence(new.evidence), old.policy if old is not None else None, new.identity)
        new = new.model_copy(update={"policy": binds.copy})
        failures = policy_limits.volume_problems(binds, new.model_dump(mode="json")) if old is None else []
        if new.guarded:
            failures += size_problems(old, new)
            new = new.model_copy(update={"clearance": clearance_of(op, old, new)})
        return Checked(new, [*failures, *say(op, new.model_dump(), new=old is None)])

    def check_early(self, op: Operation, old: dict[str, Any], new: dict[str, Any]) -> list[Failure]:
        binds = policy_limits.bound(op, None, None) if not old else policy_limits.Bound()
        return [*policy_limits.volume_problems(binds, new), *say(op, new, new=not old)]

    def find(self, op: Operation, asked: str) -> ReadAnswer[VolumeInputs, VolumeState]:
        """Of a stack of volumes. Names nothing on the platform: the `up` that takes it gives it our tag."""
        from sweepstack.provider.resources.import_plans import plan_of_volume

        named, _, known = asked.partition(":")
        plan = plan_of_volume(op, asked)
        platform = need(load_platform(plan.adapter), NamesVolumes)
        ids = {known, f"{platform.account()}.{known}"}
        record = next((one for one in platform.list_volumes("") if one.native_id in ids), None)
        if record is None:
            raise SweepstackError(f"{named} has no volume {known} in the account {platform.account()}")
        if volume_of(record.tag) is not None:
            raise SweepstackError(f"{known} carries the mark {record.tag}: the stack that keeps it ends it")
        store, _, _ = founded(op, op.project, op.stack, plan.pull_to)
        inputs = VolumeInputs(
            identity=store.marker.identity,
            evidence=store.objects.uri,
            adapter=plan.adapter,
            name=op.name,
            guarded=True,
            size_gb=record.size_gb,
            region=record.region or None,
            imported=True,
        )
        return ReadAnswer(inputs, VolumeState(**inputs.model_dump(), **seen_of(record, inputs)))

    def create(self, op: Operation, inputs: VolumeInputs) -> tuple[str, VolumeState]:
        platform = load_platform(inputs.adapter)
        if not inputs.guarded:  # the stack that keeps it has no boxes
            held_by_another.refuse_volume(op, platform, EvidenceStore.open(inputs.evidence), inputs.name)
        if inputs.kept:
            record = find_kept(platform, inputs.name)
            register(op, inputs, record)
        else:
            policy_limits.require_volume(op, Evidence(inputs.evidence), inputs)
            record = self._ensured(platform, inputs)
            if not record.created:
                op.info(f"volume {inputs.name} was there already ({record.location}): adopted with what is on it")
            require_as_wanted(inputs, record)
        return record.native_id, VolumeState(**inputs.model_dump(), **seen_of(record, inputs))

    def _ensured(self, platform: Platform, inputs: VolumeInputs) -> VolumeRecord:
        tag, able = volume_tag(inputs.identity, inputs.name), with_volumes(platform)
        return able.ensure_volume(tag, inputs.name, size_gb=inputs.size_gb, region=inputs.region or "")

    def read(self, op: Operation, identifier: str, state: VolumeState) -> ReadAnswer[VolumeInputs, VolumeState] | Gone:
        inputs = VolumeInputs.model_validate(state.model_dump(include=set(VolumeInputs.model_fields)))
        try:
            record = need(load_platform(state.adapter), HasVolumes).get_volume(state.native_id)
        except PlatformError as error:
            return ReadAnswer(inputs, state, (f"volume {state.name}: unknown, {error}",))
        if record is None:
            op.warn(f"volume {state.name} ({state.native_id}) is gone, with all that was on it")
            return Gone()
        now = state.model_copy(update=seen_of(record, inputs))
        if state.imported:
            op.of_stack(_in_the_way(op, state))
        live = live_facts(op, context_of(now), now) if state.guarded else survivor(op, now)
        return ReadAnswer(inputs.model_copy(update={"live": live}), now)

    def update(self, op: Operation, identifier: str, old: VolumeState, new: VolumeInputs) -> VolumeState:
        """Grows the volume if more is wanted, which costs more. Raises SweepstackError if the platform did not grow
        it."""
        if old.imported:
            tag, able = volume_tag(old.identity, old.name), need(load_platform(old.adapter), NamesVolumes)
            able.name_volume(old.native_id, old.account or "", tag)
            op.info(f"volume {old.name}: {old.native_id} is called {tag} now, so that sweeps find it")
        state = VolumeState.model_validate({**old.model_dump(), **new.model_dump()})
        if new.kept:
            register(op, new, find_kept(load_platform(new.adapter), new.name))
        if new.guarded and new.size_gb is not None and new.size_gb > (old.actual_size_gb or 0):
            record = self._ensured(load_platform(new.adapter), new)
            if record.native_id != old.native_id:
                raise SweepstackError(
                    f"volume {new.name}: its tag leads to {record.native_id}, and the state has {old.native_id}: "
                    f"nothing was changed. Next: sweepctl audit"
                )
            require_as_wanted(new, record)
            state = state.model_copy(update=seen_of(record, new))
        return state.model_copy(update={"price_per_month": price(new, state)})

    def delete(self, op: Operation, identifier: str, state: VolumeState) -> None:
        if state.imported:
            raise TeardownRefused(f"REFUSED. {_in_the_way(op, state)}")
        if state.guarded:
            end_volume(op, context_of(state), state)
            return
        if state.kept:
            where = f"{state.location}. The stack that keeps it ends it"
            op.info(f"volume {state.name} survives with all that is on it: {where}")
            return
        cost = takes_words(state.price_per_month, state.actual_size_gb, None)
        command = end_command(state.adapter, state.native_id)
        said = f"volume {state.name} survives with all that is on it ({cost}): {state.location}. To end it: {command}"
        (op.info if state.price_per_month == 0 else op.warn)(said)


def _in_the_way(op: Operation, state: VolumeState) -> str:
    what = f"volume {state.name} ({state.native_id})"
    return not_taken(what, "it bills", f"{state.name} below volumes", op.stack, op.urn)


def seen_of(record: VolumeRecord, inputs: VolumeInputs) -> dict[str, Any]:
    """What the platform says of a volume, as outputs. What it does not say is left out."""
    facts = {
        "native_id": record.native_id,
        "location": record.location,
        "account": record.account,
        "actual_region": record.region,
        "actual_size_gb": record.size_gb,
        "price_per_month": month(record.price_per_month, inputs.price_per_gb_month, record.size_gb or inputs.size_gb),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def month(told: float | None, per_gb: float | None, size_gb: int | None) -> float | None:
    """USD a month: as the platform says, else by the price of a GB; None if neither is known."""
    if told is not None:
        return told
    if per_gb == 0:
        return 0.0
    return per_gb * size_gb if per_gb is not None and size_gb is not None else None


def price(inputs: VolumeInputs, state: VolumeState) -> float | None:
    """The same by a state whose inputs an update may have changed."""
    return month(state.price_per_month, inputs.price_per_gb_month, state.actual_size_gb or inputs.size_gb)


def with_volumes(platform: Platform) -> HasVolumes:
    """The same platform, typed. Raises Unsupported if it has no volumes."""
    if not isinstance(platform, HasVolumes):
        raise Unsupported(f"{platform.name} has no volumes: keep them on another platform (platform: …)")
    return platform


def size_problems(old: VolumeInputs | None, new: VolumeInputs) -> list[Failure]:
    """The failure if a volume is to be smaller than it is: no platform can shrink one."""
    before, after = old.size_gb if old is not None else None, new.size_gb
    if before is None or after is None or after >= before:
        return []
    fix = f"it holds {before} GB, and no volume can be made smaller: write {before}GB, or make another under a new name"
    return [Failure("size_gb", fix)]


def require_as_wanted(inputs: VolumeInputs, record: VolumeRecord) -> None:
    """Raises SweepstackError if the volume is not what was asked for: the platform could not grow it, or it was made
    earlier in another region."""
    if not inputs.guarded:
        return
    if inputs.size_gb is not None and record.size_gb is not None and record.size_gb < inputs.size_gb:
        raise SweepstackError(
            f"volume {inputs.name} ({record.native_id}) holds {record.size_gb} GB and can't grow there. Next: write "
            f"size: {record.size_gb}GB, or make another volume under a new name"
        )
    if inputs.region and record.region and inputs.region.casefold() != record.region.casefold():
        raise SweepstackError(
            f"volume {inputs.name} ({record.native_id}) is in {record.region}, and not in {inputs.region}: a volume "
            f"stays where it was made. Next: write region: {record.region}, or give the new one another name"
        )


def say(op: Operation, inputs: Mapping[str, Any], *, new: bool) -> list[Failure]:
    """One line in every preview: size, region, cost a month, and until when it is wanted. A warning once that day is
    past.

    Refuses, before anything is rented, to mount a volume that is proved not to exist.
    """
    name, adapter, until = inputs.get("name"), inputs.get("adapter"), inputs.get("keep_until")
    if not isinstance(name, str) or not isinstance(adapter, str):
        return []
    until = until if isinstance(until, str) else None
    if inputs.get("guarded"):
        size, region = inputs.get("size_gb"), inputs.get("region")
        seen, failures = _price_now(op, inputs, new=new)
        if failures:
            return failures
        per_month = month(seen, inputs.get("price_per_gb_month"), size if isinstance(size, int) else None)
    elif inputs.get("kept"):
        try:
            record = find_kept(load_platform(adapter), name)
        except SweepstackError as error:
            if new and (isinstance(error, Unsupported) or not isinstance(error, PlatformError)):
                return [Failure("name", str(error))]
            op.warn(f"volume {name}: {error}")
            return []
        size, region = record.size_gb, record.region
        if lack := _too_small(record, inputs):
            if new:
                return [Failure("least_bytes", lack)]
            op.warn(f"volume {name}: {lack}")
        per_month = month(record.price_per_month, inputs.get("price_per_gb_month"), size)
    else:
        return []
    what = " in ".join(str(part) for part in (f"{size:g} GB" if size else "", region) if part)
    line = f"volume {name}: {what + ', ' if what else ''}{cost_words(per_month, until)}"
    (op.warn if overdue(until, date.today()) else op.info)(line)
    return []


def _too_small(record: VolumeRecord, inputs: Mapping[str, Any]) -> str:
    """Why the volume can't hold what the sweep leaves behind at least; "" where it can, or its size is not known."""
    least = inputs.get("least_bytes")
    if record.size_gb is None or not isinstance(least, int | float) or least <= record.size_gb * GB:
        return ""
    return (
        f"it holds {record.size_gb:g} GB, and the artifacts of all cells have {least / GB:.3g} GB at least, by their "
        "min. Next: a larger size in the stack that keeps it, and pulumi up there; or let the job keep less"
    )


def _price_now(op: Operation, inputs: Mapping[str, Any], *, new: bool) -> tuple[float | None, list[Failure]]:
    """USD a month by the platform, and the failure if the volume can't be made there. For a new volume it is a quote,
    else what Read saw."""
    if not new:
        seen = (inputs.get("live") or {}).get("usd_per_month")
        return (seen if isinstance(seen, int | float) else None), []
    size, region = inputs.get("size_gb"), inputs.get("region")
    if not isinstance(size, int) or not isinstance(region, str):
        return None, []
    try:
        return with_volumes(load_platform(str(inputs["adapter"]))).quote_volume(size, region), []
    except RequestRefused as error:
        return None, [Failure("region", str(error))]
    except PlatformError as error:
        op.warn(f"volume {inputs['name']}: what it would cost is not known ({error})")
        return None, []


def register(op: Operation, inputs: VolumeInputs, record: VolumeRecord) -> None:
    """Writes into the evidence of the stack that keeps the volume that this sweep mounts it: so the check before its
    end asks about this sweep.

    That stack is looked for among those of this backend. If it is not found, a warning says what that means.
    """
    from sweepstack.config.edit.stack_file import StackFile

    owner, _ = volume_of(record.tag) or ("", "")
    said = Mounting(
        stack=op.stack,
        identity=inputs.identity,
        evidence=inputs.evidence,
        native_id=record.native_id,
        at=datetime.now(UTC),
    )
    problem = "it is not among this project's stacks"
    for name in StackFile.stacks(op.session.project_root):
        if not StackFile.locate(op.session.project_root, name).is_store:
            continue
        try:
            keeper = read_state(name, op.session.project_root).identity
            if keeper is None or keeper.identity != owner:
                continue
            write_mounting(Evidence(keeper.evidence).store, said)
            return
        except SweepstackError as error:
            problem = f"{name}: {error}"
    op.warn(
        f"volume {inputs.name}: the stack that keeps it could not be told that {op.stack} mounts it ({problem}). Its "
        f"end finds this sweep by its stack file alone: keep that file while the volume is kept"
    )


def context_of(state: VolumeState) -> VolumeContext:
    """The volume, with nothing opened yet. The handler makes it once for each request."""
    return VolumeContext.of(state, state.actual_size_gb or state.size_gb, in_entry(state.policy))


def _recorded(volume: VolumeContext) -> Survey:
    try:
        return recorded(volume.store, [volume.facts.native_id])
    except EvidenceError as error:
        return Survey(problems=[str(error)])


def _judge(volume: VolumeContext, approval: Approval | None, users: Survey, *, full: bool) -> VolumeVerdict:
    seen, _ = observe_volume(volume, users.of(volume.facts.native_id))
    return may_end(VolumeEnding(volume, approval, seen, users), full=full)


def clearance_of(op: Operation, old: VolumeInputs | None, new: VolumeInputs) -> str:
    """The value of `clearance`, for the diff, by the records of this stack alone; the delete asks every stack again."""
    approval = new.approval
    ours = [action for action in approval.actions if action.box == new.name] if approval is not None else []
    if old is None or not ours:
        return "locked"
    volume = context_of(VolumeState(**new.model_dump(), native_id=ours[0].native_id, location=""))
    verdict = _judge(volume, approval, _recorded(volume), full=False)
    if verdict.headline != old.clearance:
        op.info(f"volume {new.name}: {became(old.clearance or 'locked', verdict.headline)}")
    return verdict.headline


def live_facts(op: Operation, volume: VolumeContext, state: VolumeState) -> VolumeSeen:
    """What the delete step of `pulumi destroy --preview-only --diff` shows of the volume. Says one line about it,
    too."""
    users = _recorded(volume)
    verdict = _judge(volume, state.approval, users, full=False)
    word = "CLEARED" if verdict.allowed else "LOCKED"
    op.of_stack(f"volume {state.name} {word}: {cost_words(state.price_per_month, state.keep_until)}")
    return VolumeSeen(
        used_by=tuple(user.stack for user in users.of(state.native_id)),
        cost=cost_words(state.price_per_month, state.keep_until),
        usd_per_month=state.price_per_month,
        state=word.lower(),
        because=verdict.way or "; ".join(verdict.reasons),
    )


def survivor(op: Operation, state: VolumeState) -> VolumeSeen:
    """What the delete step of a preview shows of a volume that this stack does not end. Says it on the volume's row,
    too, where the engine keeps it beside its own word `delete`."""
    words = "survives a destroy, with all that is on it"
    cost = "" if state.kept else f" ({takes_words(state.price_per_month, state.actual_size_gb, None)})"
    op.survives(f"volume {state.name} {words}{cost}")
    return VolumeSeen(survives=words, usd_per_month=state.price_per_month)


def end_volume(op: Operation, volume: VolumeContext, state: VolumeState) -> None:
    """Asks the check, deletes the volume, and returns only when the platform proves that it is gone. Blocks.

    Raises TeardownRefused, and then nothing was deleted; NotYetGone if it may still bill.
    """
    op.progress("asking every stack whether it uses the volume")
    users = _all_users(op, volume)
    facts = replace(volume.facts, policies=policies_of_state(op))  # its own entry may have been edited
    volume = VolumeContext(facts, volume.adapter)
    verdict = _judge(volume, state.approval, users, full=True)
    if not verdict.allowed:
        cleared = _clearance_on_record(volume)
        if cleared is not None and cleared != state.approval:  # a volume that the program does not name any more
            by_record = _judge(volume, cleared, users, full=True)
            if by_record.allowed or state.approval is None:  # else why the state's does not count is told
                verdict = by_record
    if not verdict.allowed:
        raise TeardownRefused(end_refusal(volume.facts, verdict, stack=op.stack))
    if verdict.way == "gone":
        return
    problem = _delete(op, volume, state)
    if problem:
        raise NotYetGone(
            f"volume {state.name} ({state.native_id}): its end was asked for, but that it is gone is not proved: "
            f"{problem}. May still bill {cost_words(state.price_per_month, None)}. "
            f"Next: pulumi destroy --stack {op.stack}"
        )
    op.info(f"volume {state.name} is gone ({verdict.way}); it was {cost_words(state.price_per_month, None)}")


def _all_users(op: Operation, volume: VolumeContext) -> Survey:
    try:
        store: EvidenceStore | None = volume.store
        problem = ""
    except EvidenceError as error:
        store, problem = None, str(error)
    found = survey(op.session.project_root, store, [volume.facts.native_id], but=op.stack)
    if problem:
        found.problems.append(problem)
    return found


def _clearance_on_record(volume: VolumeContext) -> Approval | None:
    try:
        return volume.store.clearance(volume.facts.native_id)
    except EvidenceError:
        return None


def _delete(op: Operation, volume: VolumeContext, state: VolumeState) -> str:
    """Asks for the delete until the platform proves that the volume is gone. Returns why that is not proved, "" if it
    is."""
    platform = with_volumes(volume.platform)
    deadline = time.monotonic() + op.seconds(GONE_SECONDS)
    problem = "the platform still lists it"
    op.progress(f"waiting for proof that {state.native_id} is gone")
    while True:
        try:
            platform.delete_volume(state.native_id, state.account or "")
            if platform.get_volume(state.native_id) is None:
                return ""
        except (NotYetGone, OutcomeUnknown) as error:
            problem = str(error)
        except PlatformError as error:
            return str(error)
        if time.monotonic() >= deadline:
            return problem
        if op.session.cancelled.wait(POLL_SECONDS):
            return f"{problem}; the wait was cancelled"


def leaving_words(approval: Approval) -> dict[str, str]:
    """What the preview says of volumes that leave the program: volume → that its delete asks the full check."""
    return {action.box: "to be checked by its delete" for action in approval.actions if action.verb == VERB}


def clear_leaving(evidence: Evidence, approval: Approval) -> None:
    """Keeps the approval of volumes that leave the program with this change: their deletes find it there, and check it.

    The deletes come within minutes. It holds for an hour, so that an interrupted change leaves no approval that counts
    for days.
    """
    ids = [action.native_id for action in approval.actions if action.verb == VERB]
    if ids:
        store = evidence.store
        for native_id in ids:
            store.write_clearance(native_id, for_this_change(approval))
