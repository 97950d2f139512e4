"""Asks the policies that bind about an approval: the one function that each check of an end calls.

What reads policies is imported only where there is one: most sweeps have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sweepstack.config.project import has_policy, project_root
from sweepstack.core.records import Approval, Birth
from sweepstack.core.signature import SweepName
from sweepstack.evidence.store import EvidenceStore, record_file
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.teardown.box_context import BoxFacts

if TYPE_CHECKING:
    from sweepstack.config.policy import ReadPolicy
    from sweepstack.teardown.policy_in_force import Binding


MENDED = "pulumi up, which takes it out of the birth record"
WRITTEN = (
    "another person wrote it there: put that record back from a backup of the evidence; or end the box in its "
    "platform's console, then sweepctl confirm gone BOX"
)
BACK = "bring it back into a state first (pulumi stack init S && pulumi up adopts it), and approve and sign there"


@dataclass(frozen=True)
class PolicyAnswer:
    """`problems`: why the policy does not let this approval end the box. `unsigned`: whose signatures an approval that
    is given just now needs, and does not have yet."""

    problems: tuple[str, ...] = ()
    unsigned: tuple[str, ...] = ()


def binds(facts: BoxFacts, store: EvidenceStore | None) -> tuple[Binding, ...]:
    """The policies that bind the end of this box: the state's, the project's file, and the one that its birth record
    names. Raises nothing."""
    birth = None
    with suppress(EvidenceError):
        birth = store.birth(facts.name, facts.generation) if store is not None else None
    births = [birth] if birth is not None and birth.native_id == facts.native_id else []
    return binding(facts.policies, births, never=MENDED)


def births_in(stores: Iterable[EvidenceStore]) -> list[Birth]:
    """All birth records there that can be read. Raises nothing: what binds does not hang on the evidence alone."""
    found: list[Birth] = []
    for store in stores:
        with suppress(EvidenceError):
            found += store.readable("births", Birth)[0]
    return found


def named_by(births: Iterable[Birth]) -> dict[str, str]:
    """The digests of policies that these records name: digest → the file of a record."""
    return {one.policy: record_file("births", one.box, one.generation) for one in births if one.policy}


def binding(texts: Sequence[str], births: Iterable[Birth], *, never: str = WRITTEN) -> tuple[Binding, ...]:
    """The policies that bind an end: those of the state (`texts`), that of the project around the working folder, and
    those that the birth records name. `never`: what to do where the text of such a one never was. Reads files; raises
    nothing."""
    named = named_by(births)
    root = project_root(Path.cwd())
    if not texts and not named and not has_policy(root):
        return ()
    from sweepstack.teardown.policy_in_force import binding

    return binding(texts, named, root, never=never)


def ask_policy(
    binds: Sequence[Binding],
    sweep: SweepName,
    approval: Approval,
    *,
    given_up: bool,
    now: datetime,
    to_sign: bool = False,
) -> PolicyAnswer:
    """What these policies say of an end by `approval`. `given_up`: the approval abandons the box. `to_sign`: a person
    signs it after this, and signatures that it misses are no reason to refuse. `sweep`: "" in it is
    not compared. Runs ssh-keygen where a policy names people. Raises nothing."""
    rules = [one.rule for one in binds if one.rule is not None]
    problems = [one.problem for one in binds if one.problem]
    problems += [problem for rule in rules for problem in _problems(rule, approval, now)]
    asked = (_unsigned(rule, approval, sweep, given_up=given_up, now=now) for rule in rules)
    unsigned = tuple(dict.fromkeys(filter(None, asked)))
    problems += () if to_sign else unsigned
    return PolicyAnswer(tuple(dict.fromkeys(problems)), unsigned)


def longest(binds: Sequence[Binding]) -> timedelta | None:
    """The longest time for which an approval may hold, by these policies; None if they set none."""
    known = (one.rule.rules.max_expiry_seconds for one in binds if one.rule is not None)
    return min((timedelta(seconds=seconds) for seconds in known if seconds is not None), default=None)


def orphan_problems(
    binds: Sequence[Binding], identity: str, approvals: Sequence[Approval], *, given_up: bool, now: datetime
) -> tuple[str, ...]:
    """Why a box or a volume that no state has, which a person ends without an approval, may not end: a policy that
    names people lets it go only by one of `approvals` (of this very end, on record in the evidence), all of which
    hold."""
    problems = [one.problem for one in binds if one.problem]
    epoch, empty = datetime.fromtimestamp(0, UTC), Approval.digest_waivers((), ())
    none = Approval(actions=(), waivers_digest=empty, by="", at=epoch, expires=epoch)
    sweep = SweepName(project="", stack="", identity=identity)
    for rule in (one.rule for one in binds if one.rule is not None and not approvals):
        asked = _unsigned(rule, none, sweep, given_up=given_up, now=now)
        problems += [f"{asked}: {BACK}"] if asked else []
    return tuple(dict.fromkeys(problems))


def _unsigned(policy: ReadPolicy, approval: Approval, sweep: SweepName, *, given_up: bool, now: datetime) -> str:
    """Which signatures the policy misses on the approval; "" if none."""
    from sweepstack.teardown.policy_strictness import missing_signatures

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
