"""Says which policy binds in previews and creates, and refuses what it forbids.

The provider reads `policy.yaml` itself, and what is in force from the engine's state. So no flag, no stack file and no
program goes round it (docs/adr/018). What reads policies is imported only where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sweepstack.config.project import has_policy
from sweepstack.core.bucket_address import SCHEME
from sweepstack.core.resources import BoxInputs, VolumeInputs
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.resources.teardown import Judgement, birth_of, policies_of_state, policy_digest
from sweepstack.provider.session import Operation
from sweepstack.status.engine.state import StackMissing
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.policy_check import WRITTEN, births_in, named_by

if TYPE_CHECKING:
    from sweepstack.config.policy import ReadPolicy

_NOT_RENTED = ". Nothing is rented."
_HELD = "policies that the state has"
IDENTITY_SEEN = "the identity was checked"
"""Set in the session once the Identity was checked: its policy is known then, also to what is new."""


@dataclass(frozen=True)
class Bound:
    """What binds from this change on. `copy`: the text for the state, None if there is no policy. `file_problem`: why
    the project's file can't be read; `unreadable`: why a policy in force can't. `notes`: for people."""

    copy: str | None = None
    rules: Sequence[ReadPolicy] = ()
    file_problem: str = ""
    unreadable: str = ""
    notes: Sequence[str] = ()


def bound(op: Operation, evidence: Evidence | None, before: str | None, identity: str = "") -> Bound:
    """What binds, by the policies that the entries of the state have which were checked so far (`before`: that of this
    one), and the project's file. `identity`: of the sweep, if it is known. Raises nothing."""
    held: dict[str, None] = op.session.shared.setdefault(_HELD, {})
    if before is not None:
        held[before] = None
    if not held and not has_policy(op.session.project_root):
        return Bound()
    from sweepstack.teardown.policy_in_force import change, text_for_state

    store = evidence.usable if evidence is not None and evidence.uri else None
    identity = identity or (store.marker.identity if store is not None else "")
    found = change(op.session.project_root, tuple(held), store, identity)
    copy, binds = before if found.file_problem else text_for_state(before, found.after), found.binding
    return Bound(
        copy,
        [one.rule for one in binds if one.rule is not None],
        found.file_problem,
        "; ".join(one.problem for one in binds if one.problem),
        found.notes,
    )


def seen_identity(op: Operation) -> None:
    """Says that the Identity was checked in this command of the engine."""
    op.session.shared[IDENTITY_SEEN] = True


def without_text(evidence: Evidence, copy: str | None) -> str:
    """Why a state that is new may not take over what lives: its records name a policy that `copy` does not have. ""
    where it may, or as far as the records can't be read: the end of a box asks again."""
    births = births_in([store]) if (store := evidence.usable) is not None else []
    named = named_by(birth for birth in births if birth.ended_at is None)
    named.pop(policy_digest(copy), None)
    if not named:
        return ""
    from sweepstack.teardown.policy_in_force import missing_words

    return missing_words(min(named), named[min(named)], WRITTEN)


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


def require_policy(op: Operation, evidence: Evidence, inputs: BoxInputs, priced: bool) -> BoxInputs:
    """The inputs with the policy that binds. Raises SweepstackError, before anything is rented, if the policy does not
    allow this box. Where the Identity is no part of this command (`--target`), the engine is asked for its state."""
    if IDENTITY_SEEN not in op.session.shared:
        held: dict[str, None] = op.session.shared.setdefault(_HELD, {})
        with suppress(StackMissing):
            held |= dict.fromkeys(policies_of_state(op))
        seen_identity(op)
    now = bound(op, evidence, inputs.policy, inputs.identity)
    failures = box_problems(now, inputs.model_dump(mode="json"), priced)
    if failures:
        raise SweepstackError("\n".join(f"box {inputs.name} is not rented: {failure.reason}" for failure in failures))
    return inputs.model_copy(update={"policy": now.copy})


def require_volume(op: Operation, evidence: Evidence, inputs: VolumeInputs) -> None:
    """Raises SweepstackError, before the volume is made, if the policy does not allow it."""
    failures = volume_problems(bound(op, evidence, inputs.policy, inputs.identity), inputs.model_dump(mode="json"))
    if failures:
        raise SweepstackError("\n".join(f"volume {inputs.name} is not made: {failure.reason}" for failure in failures))


def is_stray(op: Operation, box: BoxContext, entry: str | None) -> bool:
    """Whether the birth record of a box of this state names a policy of which no text is here. Then an `up` names the
    policy of `entry` in its place: else who writes the evidence could lock the box in for ever. False where that is not
    known. Asks the engine for its state where the entry has another policy than the record. Raises nothing."""
    birth = birth_of(box)
    if birth is None or birth.native_id != box.facts.native_id or birth.policy in ("", policy_digest(entry)):
        return False
    from sweepstack.teardown.policy_in_force import RECORDS, binding

    try:
        found = binding(policies_of_state(op), named_by([birth]), op.session.project_root)
    except SweepstackError:
        return False
    return any(one.where == RECORDS for one in found)


def keep_birth(store: EvidenceStore, box: BoxContext, copy: str | None) -> None:
    """Names the policy that binds the box from now on in its birth record. Raises EvidenceError."""
    birth = store.birth(box.facts.name, box.facts.generation)
    if birth is not None and birth.ended_at is None and birth.policy != policy_digest(copy):
        store.write_birth(birth.model_copy(update={"policy": policy_digest(copy)}))
