"""Says which policy binds in previews and creates, refuses what it forbids, and writes its copies.

The provider reads `policy.yaml` itself, and what was in force before from state and evidence. So no flag, no stack
file and no program goes round it (docs/adr/018). What reads policies is imported only where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sweepstack.buckets.address import SCHEME
from sweepstack.core.local_decisions import Decision, record_decision
from sweepstack.evidence.lazy import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, PlatformError, SweepstackError
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.provider.models import BoxInputs, VolumeInputs
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.resources.teardown import Judgement, birth_of
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.policy_copies import (
    Found,
    SetAside,
    forget_proposed,
    in_evidence,
    in_state,
    keep,
    keep_on_box,
    record_set_aside,
)
from sweepstack.volumes.end_check import VolumeContext, VolumeVerdict
from sweepstack.volumes.records import VERB

if TYPE_CHECKING:
    from sweepstack.config.policy import ReadPolicy

FILE = "policy.yaml"
_NOT_RENTED = ". Nothing is rented."
READ_SECONDS = 10.0
"""What was read of the evidence's copy may be this old, within one command of the engine."""


@dataclass(frozen=True)
class Bound:
    """What binds from this change on. `copy`: the text for the state, None if there is no policy. `file_problem`: why
    the project's file can't be read; `unreadable`: why a policy in force can't. `notes`: for people."""

    copy: str | None = None
    rules: Sequence[ReadPolicy] = ()
    file_problem: str = ""
    unreadable: str = ""
    notes: Sequence[str] = ()


def bound(
    op: Operation, evidence: Evidence | None, before: str | None, identity: str = "", *, had_none: bool = False
) -> Bound:
    """What binds, by the copy in the state (`before`), that in the evidence, and the project's file. If the evidence is
    there and can't be opened, what the state has binds on. `identity`: of the sweep, if it is known. `had_none`: the
    state has this sweep, without a policy; said by the Identity for all resources that are checked after it, of which a
    new one has no state. Raises nothing."""
    key = f"no policy in the state of {evidence.uri if evidence is not None else ''}"
    if had_none:
        op.session.shared[key] = True
    store = evidence.usable if evidence is not None and evidence.uri else None
    places = [in_state(before), *([_recorded(op, store)] if store is not None else [])]
    there = any(place.problem or (place.copy is not None and place.copy.chains) for place in places)
    if not there and not (op.session.project_root / FILE).exists():
        return Bound()
    from sweepstack.teardown.policy_change import change, copy_text

    identity = identity or (store.marker.identity if store is not None else "")
    found = change(op.session.project_root, places, store, identity)
    had_none = before is None and key in op.session.shared
    taken = found.for_state(in_state(before).copy, had_none=had_none)
    copy, notes = copy_text(taken) or before, list(found.notes)
    if had_none and (left := [chain.head.short for chain in found.after.copy.chains if chain not in taken.chains]):
        notes.append(
            f"only {places[-1].where} has a policy ({', '.join(left)}): the engine's state has none, and {FILE} says "
            f"another or none. It binds, and is written nowhere else. Next: if it is not yours, delete "
            f"{places[-1].path}; else put {FILE} back"
        )
    if before is not None and not identity:  # an approval of a change names the sweep, which is not known here
        copy = before
    return Bound(copy, found.after.rules, found.problem, found.after.unreadable, notes)


def _recorded(op: Operation, store: EvidenceStore) -> Found:
    """The copy in the evidence, read once for all resources that are checked together. `write` forgets it."""
    asked: SingleFlight[Found] = op.session.shared.setdefault(_key(store), SingleFlight())
    return asked.get(lambda: in_evidence(store), max_age=READ_SECONDS)


def _key(store: EvidenceStore) -> str:
    return f"policy of {store.objects.uri}"


def box_problems(now: Bound, inputs: Mapping[str, Any], priced: bool) -> list[Failure]:
    """What the policy has against renting a box with these inputs; some may not be known yet. `priced`: its platform
    bills, so that a box without any price counts as too dear."""
    found = [Failure("policy", why) for why in (now.file_problem, now.unreadable) if why]
    for rule in now.rules:
        found += _box_problems(rule, inputs, priced=priced)
        evidence = inputs.get("evidence")
        if isinstance(evidence, str):
            found += place_problems(rule, evidence, "evidence")
        found += budget_problems(rule, inputs.get("budget"))
    return found


def volume_problems(now: Bound, inputs: Mapping[str, Any]) -> list[Failure]:
    """What the policy has against making a volume with these inputs; some may not be known yet."""
    found = [Failure("policy", why) for why in (now.file_problem, now.unreadable) if why]
    for rule in now.rules:
        found += _platform_problems(rule, inputs)
        allowed, region = rule.rules.regions, inputs.get("region")
        if allowed is not None and isinstance(region, str) and region not in allowed:
            limit, fix = f"allows the regions {', '.join(allowed)}", "make it in one of them"
            found.append(_failure(rule, "regions", limit, f"region is {region}", fix, "region"))
        evidence = inputs.get("evidence")
        found += place_problems(rule, evidence, "evidence") if isinstance(evidence, str) else []
    return found


def _platform_problems(rule: ReadPolicy, inputs: Mapping[str, Any]) -> list[Failure]:
    adapter, allowed = inputs.get("adapter"), rule.rules.platforms
    name, _, host = adapter.partition(":") if isinstance(adapter, str) else ("", "", "")
    # `platform` is a program's word, and counts only where the adapter is named with a host.
    platform = (inputs.get("platform") or name) if host or not name else name
    if allowed is None or not isinstance(platform, str) or not platform or platform in allowed:
        return []
    limit = f"allows the platforms {', '.join(allowed)}"
    return [_failure(rule, "platforms", limit, f"this is {platform}", "take another candidate", "adapter")]


def _box_problems(rule: ReadPolicy, inputs: Mapping[str, Any], *, priced: bool) -> list[Failure]:
    rules, resources, found = rule.rules, inputs.get("resources"), _platform_problems(rule, inputs)
    if rules.regions is not None:
        asked = resources.get("regions") if isinstance(resources, Mapping) else None
        named = [asked] if isinstance(asked, str) else list(asked or ())
        others = [region for region in named if region not in rules.regions]
        if others or not named:
            value = f"resources.regions has {', '.join(map(str, others))}" if others else "resources.regions is missing"
            limit, fix = f"allows the regions {', '.join(rules.regions)}", "name only these in resources.regions"
            found.append(_failure(rule, "regions", limit, value, fix, "resources"))
    return found + _price_problems(rule, inputs, priced=priced)


def _price_problems(rule: ReadPolicy, inputs: Mapping[str, Any], *, priced: bool) -> list[Failure]:
    most = rule.rules.max_price_per_hour
    if most is None:
        return []
    price, ceiling = inputs.get("price_per_hour"), inputs.get("max_price")
    # On a market, `price_per_hour` is only what a stack file says (`overrides`): what is rented keeps to `max_price`.
    market = priced or price is None
    known = {"the bid": inputs.get("bid"), "the price": price, "max_price": ceiling if market else None}
    values = [
        f"{what} is ${value:g}/h" for what, value in known.items() if isinstance(value, int | float) and value > most
    ]
    if priced and ceiling is None:
        values.append("the stack file has no max_price")
    fix, limit = f"set max_price: {most:g} or less", f"allows ${most:g}/h at most"
    return [_failure(rule, "max_price_per_hour", limit, value, fix, "max_price") for value in values]


def place_problems(rule: ReadPolicy, evidence: str, name: str) -> list[Failure]:
    """What the policy has against evidence at this address. `name`: of the input that gave it."""
    kind = "s3" if evidence.startswith(SCHEME) else "folder"
    if rule.rules.evidence is None or kind in rule.rules.evidence:
        return []
    limit = f"allows evidence in {' or '.join(rule.rules.evidence)}"
    fix = "pull_to: s3://bucket/prefix" if kind == "folder" else "pull_to: a folder"
    return [_failure(rule, "evidence", limit, f"pull_to is {'a folder' if kind == 'folder' else 's3'}", fix, name)]


def budget_problems(rule: ReadPolicy, budget: object) -> list[Failure]:
    """What the policy has against a sweep with this budget, None if it has none."""
    if rule.rules.budget != "required" or budget is not None:
        return []
    return [_failure(rule, "budget", "asks for a budget", "the stack file has none", "add budget: {usd: …}")]


def _failure(rule: ReadPolicy, key: str, limit: str, value: str, fix: str, name: str = "") -> Failure:
    words = f"the policy {limit} ({rule.at(key)}), and {value}{_NOT_RENTED} Next: {fix}"
    return Failure(name or key, words)


def bid_problems(now: Bound, bid: float) -> list[Failure]:
    """What the policy has against a changed bid for a box that is there."""
    return [problem for rule in now.rules for problem in _price_problems(rule, {"bid": bid}, priced=False)]


def start_problems(now: Bound, new: BoxInputs, judgement: Judgement, stack: str) -> list[Failure]:
    """What the policy has against starting a box again that is stopped: it was rented under an earlier one."""
    if not now.rules or new.want != "running" or judgement.record is None or not judgement.record.phase.at_rest:
        return []
    inputs = new.model_dump(mode="json")
    if new.price_per_hour is None and (birth := birth_of(judgement.box)) is not None:
        inputs["price_per_hour"] = birth.price_per_hour
    found = [problem for rule in now.rules for problem in _box_problems(rule, inputs, priced=False)]
    way = f"keep it stopped (boxes.{new.name}: {{want: stopped}}), or end it: sweepctl finish --stack {stack}"
    return [
        Failure(one.property, f"{one.reason.partition(_NOT_RENTED)[0]}. Box {new.name} stays stopped. Next: {way}")
        for one in found
    ]


def require(op: Operation, evidence: Evidence, inputs: BoxInputs, priced: bool) -> BoxInputs:
    """The inputs with the copy that binds. Raises SweepstackError, before anything is rented, if the policy does not
    allow this box."""
    now = bound(op, evidence, inputs.policy, inputs.identity)
    failures = box_problems(now, inputs.model_dump(mode="json"), priced)
    if failures:
        raise SweepstackError("\n".join(f"box {inputs.name} is not rented: {failure.reason}" for failure in failures))
    if now.copy is not None:
        write(op, evidence.store, now.copy)
    return inputs.model_copy(update={"policy": now.copy})


def require_volume(op: Operation, evidence: Evidence, inputs: VolumeInputs) -> None:
    """Raises SweepstackError, before the volume is made, if the policy does not allow it."""
    failures = volume_problems(bound(op, evidence, inputs.policy, inputs.identity), inputs.model_dump(mode="json"))
    if failures:
        raise SweepstackError("\n".join(f"volume {inputs.name} is not made: {failure.reason}" for failure in failures))


def write(op: Operation, store: EvidenceStore, text: str | None) -> None:
    """Writes the copy of the state into the evidence. Raises EvidenceError."""
    copy = in_state(text).copy
    if copy is not None:
        keep(store, copy)
        forget_proposed(store, copy)
        op.session.shared.pop(_key(store), None)


def write_on_box(box: BoxContext, text: str | None) -> None:
    """Writes the copy of the state on the box. Raises nothing: the other copies bind without it."""
    with suppress(PlatformError):
        keep_on_box(box.channel(), text, box.facts.name)


def announce_set_aside(op: Operation, judgement: Judgement) -> None:
    """Says, and puts on record in the evidence and on this computer, that a box is given up although its policy was set
    aside. Raises nothing: the way out is open."""
    why, facts, approval = judgement.verdict.policy_set_aside, judgement.facts, judgement.approval
    if why and approval is not None:
        found = SetAside(box=facts.name, native_id=facts.native_id, by=approval.by, at=_now(), why=why)
        _announce(op, found, judgement.box.evidence, judgement.box.adapter, facts.account, facts.identity)


def announce_volume_set_aside(op: Operation, volume: VolumeContext, verdict: VolumeVerdict, by: str) -> None:
    """The same for a volume."""
    if verdict.policy_set_aside:
        facts, why = volume.facts, verdict.policy_set_aside
        found = SetAside(what="volume", box=facts.name, native_id=facts.native_id, by=by, at=_now(), why=why)
        _announce(op, found, volume.evidence, volume.adapter, facts.account, facts.identity, VERB)


def _announce(
    op: Operation,
    found: SetAside,
    evidence: Evidence,
    platform: str,
    account: str,
    identity: str,
    verb: str = "destroy",
) -> None:
    op.warn(f"POLICY SET ASIDE  {found.words}")
    with suppress(EvidenceError):
        record_set_aside(evidence.store, found)
    here = Decision(
        what="policy set aside",
        by=found.by,
        at=found.at,
        reason=found.why,
        platform=platform,
        native_id=found.native_id,
        verb=verb,
        box=found.box if found.what == "box" else "",
        account=account,
        stack=op.stack,
        identity=identity,
        evidence=evidence.uri,
    )
    with suppress(SweepstackError):
        record_decision(here)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def missing_in_evidence(store: EvidenceStore, text: str | None) -> str:
    """Why the next `pulumi up` has to write the copy into the evidence again; "" if it is there, or if there is
    none."""
    copy = in_state(text).copy
    if copy is None or not copy.chains:
        return ""
    there = in_evidence(store)
    if there.problem or there.copy is None or not there.copy.chains:
        how = "damaged" if there.problem else "missing"
        return f"the policy's copy in {there.where} is {how}; `pulumi up` writes it again"
    return ""
