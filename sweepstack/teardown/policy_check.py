"""Asks the policy in force about an approval: the one function that each check of an end calls.

What reads policies is imported only where there is a copy of one: most sweeps have none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.policy_copies import Found, in_evidence, in_state, on_box

if TYPE_CHECKING:
    from sweepstack.config.policy import ReadPolicy


BACK = "bring it back into a state first (pulumi stack init S && pulumi up adopts it), and approve and sign there"


@dataclass(frozen=True)
class PolicyAnswer:
    """`problems`: why the policy in force does not let this approval end the box. `set_aside`: where an abandonment
    goes through without any copy that can be read, or against one that was begun anew, why; "" otherwise.
    `unsigned`: whose signatures an approval that is given just now needs, and does not have yet."""

    problems: tuple[str, ...] = ()
    set_aside: str = ""
    unsigned: tuple[str, ...] = ()


def copies_of(box: BoxContext, store: EvidenceStore | None, seen: Observation) -> list[Found]:
    """What state, evidence and box hold. Asks the box only if it answered just now. Raises nothing."""
    places = [in_state(box.facts.policy)]
    if store is not None:
        places.append(in_evidence(store))
    if seen.existence is Existence.EXISTS and seen.journal is not None:
        with contextlib.suppress(PlatformError):
            places.append(on_box(box.channel(), box.facts.name))
    return places


def ask_policy(
    places: Sequence[Found],
    sweep: SweepName,
    approval: Approval,
    *,
    given_up: bool,
    now: datetime,
    given_now: bool = False,
) -> PolicyAnswer:
    """What the policy in force says of an end by `approval`. `given_up`: the approval abandons the box. Then the last
    policy that can be read rules; if none can, the way out is open. `given_now`: a person gives it just now, and
    signatures that it misses are no reason to refuse: they come after that. `sweep`: "" in it is not compared. Runs
    ssh-keygen where the policy names people. Raises nothing."""
    if not any(place.problem or (place.copy is not None and place.copy.chains) for place in places):
        return PolicyAnswer()
    from sweepstack.teardown.policy_in_force import in_force

    now_binds = in_force(places, sweep.identity)
    rules = now_binds.way_out if given_up else now_binds.rules
    if given_up and not rules:
        return PolicyAnswer(set_aside=now_binds.foreign or now_binds.unreadable)
    problems = [problem for rule in rules for problem in _problems(rule, approval, now)]
    asked = (_unsigned(rule, approval, sweep, given_up=given_up, now=now) for rule in rules)
    unsigned = tuple(dict.fromkeys(filter(None, asked)))
    problems += () if given_now else unsigned
    if now_binds.unreadable and not given_up:
        problems.insert(0, f"{now_binds.unreadable}. A newer sweepstack may read it (git pull && make setup)")
    return PolicyAnswer(tuple(dict.fromkeys(problems)), now_binds.foreign if given_up else "", unsigned)


def longest(places: Sequence[Found], identity: str) -> timedelta | None:
    """The longest time for which an approval may hold, by the policy in force; None if it sets none. Raises nothing."""
    if not any(place.copy is not None and place.copy.chains for place in places):
        return None
    from sweepstack.teardown.policy_in_force import in_force

    known = (rule.rules.max_expiry_seconds for rule in in_force(places, identity).rules)
    return min((timedelta(seconds=seconds) for seconds in known if seconds is not None), default=None)


def orphan_problems(
    places: Sequence[Found], identity: str, approvals: Sequence[Approval], *, given_up: bool, now: datetime
) -> PolicyAnswer:
    """The same for a box that no state has, which a person ends without an approval: a policy that names people lets it
    go only by one of `approvals` (of this box, on record in the evidence) that these people signed."""
    if not any(place.problem or (place.copy is not None and place.copy.chains) for place in places):
        return PolicyAnswer()
    from sweepstack.teardown.policy_in_force import in_force

    now_binds = in_force(places, identity)
    if given_up and not now_binds.rules:
        return PolicyAnswer(set_aside=now_binds.unreadable)
    problems = [now_binds.unreadable] if now_binds.unreadable and not given_up else []
    epoch, empty = datetime.fromtimestamp(0, UTC), Approval.digest_waivers((), ())
    none = Approval(actions=(), waivers_digest=empty, by="", at=epoch, expires=epoch)
    sweep = SweepName(project="", stack="", identity=identity)
    for rule in now_binds.rules:
        asked = [_unsigned(rule, one, sweep, given_up=given_up, now=now) for one in (*approvals, none)]
        problems += [f"{asked[-1]}: {BACK}"] if all(asked) else []
    return PolicyAnswer(tuple(dict.fromkeys(problems)))


def _unsigned(policy: ReadPolicy, approval: Approval, sweep: SweepName, *, given_up: bool, now: datetime) -> str:
    """Which signatures the policy misses on the approval; "" if none."""
    from sweepstack.teardown.policy_people import missing_signatures

    return missing_signatures(policy, approval, sweep, given_up=given_up, at=now)


def _problems(policy: ReadPolicy, approval: Approval, now: datetime) -> list[str]:
    """What one policy has against the approval, without a look at who signed it."""
    found, rules = [], policy.rules
    if rules.waivers == "refused" and (approval.waive or approval.unclaimed):
        waived = [waiver.cell for waiver in approval.waive] or ["files that belong to no cell"]
        more = f" and {len(waived) - 3} more" if len(waived) > 3 else ""
        found.append(f"the policy refuses waivers ({policy.at('waivers')}): {', '.join(waived[:3])}{more}")
    longest = rules.max_expiry_seconds
    if longest is not None:
        most = timedelta(seconds=longest)
        if approval.expires - approval.at > most or approval.expires > now + most:
            found.append(
                f"the approval may hold for {rules.max_expiry} at most ({policy.at('max_expiry')}), and expires at "
                f"{approval.expires:%Y-%m-%d %H:%M} UTC: approve again with --expires {rules.max_expiry}"
            )
    return found
