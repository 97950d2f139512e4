"""Compares who signed an approval with whom the policy asks for. One key or one name is one person."""

from __future__ import annotations

from datetime import datetime

from sweepstack.config.policy import ReadPolicy
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName


def missing_signatures(
    policy: ReadPolicy, approval: Approval, sweep: SweepName, *, given_up: bool, at: datetime
) -> str:
    """Which signatures the policy still asks for on this approval, in one line; "" if none. `given_up`: it abandons a
    box, or lets a weaker policy follow. `sweep`: "" in it is not compared. `at`: when the keys have to be good: now, or
    when an approval that was used before was given. Only signatures that verify count. Runs ssh-keygen; raises
    nothing."""
    rules = policy.rules
    people = rules.may_abandon if given_up else rules.approvers
    if people is None:
        return ""
    from sweepstack.teardown.signatures import verified_signers

    needs = rules.abandon_needs if given_up else 1
    found = verified_signers(approval, sweep, policy.source.signers, at=at)
    ours = sorted(name for name in found.valid if name in people)  # a key under two names is there once
    if len(ours) >= needs:
        return ""
    key = "abandoners" if given_up and rules.abandoners is not None else "approvers"
    others = [name for name in people if name not in set(ours)]
    who = f"{needs - len(ours)} of {', '.join(others)}" if needs > 1 else f"one of {', '.join(others)}"
    what = "giving it up" if given_up else "the approval"
    signed = f"; {', '.join(ours)} signed it" if ours else ""
    why = f"; {found.problems[0]}" if found.problems else ""
    return f"the policy asks for the signature of {who} for {what} ({policy.at(key)}){signed}{why}"
