"""Whether one policy is weaker than another, in words, and whether its people signed.

A policy is weaker when it allows something that the other one does not. A field that is left out allows all. What can't
be compared counts as weaker. Who signed an approval is compared with whom the policy asks for: one key or one name is
one person.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sweepstack.config.policy import Policy, ReadPolicy
from sweepstack.config.project import SIGNERS
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName


def _less(old: Any, new: Any) -> bool:
    """Of a highest value: lower is stricter."""
    return bool(new <= old)


def _fewer(old: Any, new: Any) -> bool:
    """Of a list of what is allowed: fewer is stricter."""
    return set(new) <= set(old)


def _more(old: Any, new: Any) -> bool:
    """Of a number that is needed: higher is stricter."""
    return bool(new >= old)


_AS_STRICT: dict[str, Callable[[Any, Any], bool]] = {
    "approvers": _fewer,
    "abandoners": _fewer,
    "abandon_needs": _more,
    "max_price_per_hour": _less,
    "platforms": _fewer,
    "regions": _fewer,
    "evidence": _fewer,
    "max_expiry": _less,
}
"""Key → whether its new value is as strict as the old one, where both stand in the file. Of a word that demands or
refuses something, another value never is."""


def weaker(old: ReadPolicy, new: ReadPolicy) -> list[str]:
    """What `new` allows and `old` does not, a line for each key; empty if it is as strict, or stricter."""
    found = []
    for key in Policy.model_fields:
        before, after = _value(old.rules, key), _value(new.rules, key)
        if before is None or before == after:
            continue
        as_strict = _AS_STRICT.get(key)
        if after is None:
            found.append(f"{key}: {_shown(old.rules, key)} is left out")
        elif as_strict is None or not as_strict(before, after):
            found.append(f"{key}: {_shown(old.rules, key)} becomes {_shown(new.rules, key)}")
    if old.rules.may_abandon is not None:  # whose signatures count: any line that is new may be another person's
        known, lines = _lines(old), _lines(new)
        added = sorted(line for line in lines if line not in known)
        found += [f"{SIGNERS}: a line for {line.split()[0]} is new or was changed" for line in added]
    return found


def _lines(policy: ReadPolicy) -> set[str]:
    """The lines of the list of allowed signers, without comments."""
    lines = (" ".join(line.split()) for line in policy.source.signers.splitlines())
    return {line for line in lines if line and not line.startswith("#")}


def stricter(old: ReadPolicy, new: ReadPolicy) -> list[str]:
    """The keys in which `new` is stricter than `old`."""
    return [line.partition(":")[0] for line in weaker(new, old)]


def _value(rules: Policy, key: str) -> Any:
    """What is compared; None where the key allows all."""
    if key == "max_expiry":
        return rules.max_expiry_seconds
    if key == "abandoners":
        return rules.may_abandon
    value = getattr(rules, key)
    return None if value == Policy.model_fields[key].default else value


def _shown(rules: Policy, key: str) -> str:
    value = rules.may_abandon if key == "abandoners" else getattr(rules, key)
    return (
        f"[{', '.join(value)}]"
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


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
