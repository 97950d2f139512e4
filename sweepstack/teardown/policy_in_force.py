"""Finds which policy binds a sweep: the newest that was accepted, by all copies that can be read.

State, evidence and box each hold a copy. Each is a chain: a policy follows another one if it is as strict, or if those
who may approve that did. So a copy that was edited, or replaced by a weaker text, ends where it stops to hold; and
where two copies differ, both bind. A copy that is deleted changes nothing while another one is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sweepstack.config import policy as policy_file
from sweepstack.config.policy import ReadPolicy
from sweepstack.core.policy_chain import NONE, PolicyChain, PolicyCopy, PolicyLink, PolicyText, united
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.teardown.policy_copies import Found, begun_anew, only_on_boxes, roots_of_state
from sweepstack.teardown.policy_order import weaker
from sweepstack.teardown.policy_people import missing_signatures

FROM, TO = "end-policy", "begin-policy"
"""The two actions of an approval of a weaker policy: `box` is the sweep's identity, `native_id` a digest."""


@dataclass(frozen=True)
class InForce:
    """What binds. `copy`: all chains that hold; `rules`: their heads, read.

    `unreadable`: why a policy that binds can't be read by this version, "" if all can; then `rules` has the last one
    before it that can. `way_out`: the rules that an abandonment keeps to: not those of a chain that was begun anew
    beside one that the state and a second place have, nor of one that only a box has; then `foreign` says which.
    `places`: what was found where.
    `notes`: for people, what is wrong with a copy.
    """

    copy: PolicyCopy
    rules: tuple[ReadPolicy, ...] = ()
    unreadable: str = ""
    way_out: tuple[ReadPolicy, ...] = ()
    foreign: str = ""
    places: tuple[Found, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def any(self) -> bool:
        """Whether there is a copy of a policy anywhere, readable or not."""
        return bool(self.copy.chains) or any(place.problem for place in self.places)

    @property
    def heads(self) -> tuple[PolicyText, ...]:
        """The policies that bind, each once."""
        return tuple({chain.head.digest: chain.head for chain in self.copy.chains}.values())


def in_force(places: Sequence[Found], identity: str) -> InForce:
    """What binds the sweep, by these copies. Starts ssh-keygen where an approval of a weaker policy is signed. Raises
    nothing."""
    held, notes = [], []
    for place in places:
        if place.problem:
            notes.append(f"the policy's copy in {place.where} can't be read: {place.problem}")
        if place.copy is None:
            continue
        chains = []
        for chain in place.copy.chains:
            chain, why = _as_far_as_it_holds(chain, identity)
            chains.append(chain)
            notes += [f"the policy's copy in {place.where}: {why}"] if why else []
        held.append(PolicyCopy(chains=tuple(chains)))
    copy = united(held)
    ours = roots_of_state(places)
    seconded = ours & {r for place in places if place.kind != "state" and place.copy for r in place.copy.roots}
    rules: dict[str, ReadPolicy] = {}
    way_out: dict[str, ReadPolicy] = {}
    unreadable = ""
    for chain in copy.chains:
        rule, why = _last_readable(chain)
        unreadable = unreadable or why
        if rule is not None:
            rules.setdefault(rule.source.digest, rule)
            if not seconded or chain.root in ours:
                way_out.setdefault(rule.source.digest, rule)
    if not copy.chains and notes:
        unreadable = notes[0]
    anew = begun_anew(places)
    held_out = anew[0] if anew and len(way_out) < len(rules) and way_out else ""
    way_out = way_out or rules
    if alone := only_on_boxes(places):
        anew, held_out, way_out = [*anew, *alone], alone[0], {}
    return InForce(
        copy,
        tuple(rules.values()),
        unreadable,
        tuple(way_out.values()),
        held_out,
        tuple(places),
        (*notes, *anew),
    )


def _last_readable(chain: PolicyChain) -> tuple[ReadPolicy | None, str]:
    """The newest policy of the chain that can be read, and why its head can't; "" if it can."""
    why = ""
    for link in reversed(chain.links):
        try:
            return policy_file.read(link.policy), why
        except ConfigError as error:
            why = why or unread_words(link.policy, error)
    return None, why


def unread_words(policy: PolicyText, error: ConfigError) -> str:
    """Why a policy that binds can't be read here, in one line: a newer version may have written it."""
    what = error.problems[0] if error.problems else str(error)
    return f"the policy in force ({policy.short}) can't be read by this sweepstack: {what}"


def _as_far_as_it_holds(chain: PolicyChain, identity: str) -> tuple[PolicyChain, str]:
    """The links up to the first that does not follow from the one before it, and why it does not."""
    used: list[dict[str, Any]] = []  # by what was said: other signatures under it make it no other approval
    for number, new in enumerate(chain.links[1:], start=1):
        why = step_problem(PolicyChain(links=chain.links[:number]), new, identity)
        if new.approval is not None and not why:
            why = "its approval was used before" if new.approval.unsigned in used else ""
            used.append(new.approval.unsigned)
        if why:
            return PolicyChain(links=chain.links[:number]), f"{new.policy.short} does not count: {why}"
    return chain, ""


def step_problem(before: PolicyChain, new: PolicyLink, identity: str) -> str:
    """Why a policy may not follow these; "" if it may: it is as strict as the last one, or it was approved."""
    lost = what_is_lost(before.head, new.policy)
    if not lost:
        return ""
    if new.approval is None:
        return f"it is weaker, and was not approved ({lost[0]})"
    return change_problem(before, new.policy, new.approval, identity, at=new.approval.at)


def what_is_lost(old: PolicyText, new: PolicyText) -> list[str]:
    """In which way `new` is weaker than `old`; empty if it is not. What can't be read is not weaker than anything, and
    everything is weaker than it."""
    if old.digest == new.digest:
        return []
    try:
        before = policy_file.read(old)
    except ConfigError:
        return [f"{old.short} can't be read by this sweepstack, so nothing is known to be as strict"]
    try:
        return weaker(before, policy_file.read(new))
    except ConfigError:
        return []


def change_problem(before: PolicyChain, new: PolicyText, approval: Approval, identity: str, *, at: datetime) -> str:
    """Why this approval does not let `new` follow these in this sweep; "" if it does. Where the last of them can't be
    read, the people of the last one that can decide: else nothing could follow it. `at`: when the keys of those who
    signed it have to be good: for a change that was accepted before, when it was approved. A stack may have been
    renamed since then, so the sweep is known by its identity alone."""
    old = before.head
    named = {(action.verb, action.box, action.native_id) for action in approval.actions}
    if not {(FROM, identity, old.digest), (TO, identity, new.digest)} <= named:
        return "its approval is for another change, or for another sweep"
    rules, why = _last_readable(before)
    if rules is None:
        return why
    sweep = SweepName(project="", stack="", identity=identity)
    return missing_signatures(rules, approval, sweep, given_up=True, at=at)


def _new_change_problem(before: PolicyChain, new: PolicyText, approval: Approval, identity: str) -> str:
    """The same for a change that comes into force now. Its keys have to be good now, and when it was approved: that is
    when the chain is read again."""
    found = (change_problem(before, new, approval, identity, at=at) for at in (datetime.now(UTC), approval.at))
    return next(filter(None, found), "")


def followed(
    now: InForce, wanted: PolicyText, approval: Approval | None, identity: str
) -> tuple[PolicyCopy, list[str]]:
    """The copy after `wanted` came into force, where it may, and in which ways it is weaker than a policy that it may
    not follow. The first policy of a sweep may be any."""
    if not now.copy.chains:
        first = () if now.any or wanted == NONE else (PolicyChain(links=(PolicyLink(policy=wanted),)),)
        return PolicyCopy(chains=first), []
    chains, refused = [], []
    for chain in now.copy.chains:
        if chain.head.digest == wanted.digest:
            chains.append(chain)
            continue
        lost = what_is_lost(chain.head, wanted)
        link = PolicyLink(policy=wanted, approval=approval if lost else None)
        if lost and (approval is None or _new_change_problem(chain, wanted, approval, identity)):
            refused += lost
            chains.append(chain)
        else:
            chains.append(PolicyChain(links=(*chain.links, link)))
    return PolicyCopy(chains=tuple(chains)), list(dict.fromkeys(refused))
