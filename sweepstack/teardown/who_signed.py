"""Names who signed the approvals of a box or a volume, and who has to sign yet.

Decides nothing: that is `sweepstack.teardown.check.may_end`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.teardown.signatures import Signers, verified_signers

if TYPE_CHECKING:
    from sweepstack.teardown.policy_in_force import Binding

SHORT = len("SHA256:") + 12


@dataclass(frozen=True)
class SignedBy:
    """One signature. `key`: the first part of its fingerprint; "" where it does not count, and `problem` says why.
    `listed`: whether the list of a policy in force has this name with this key; without a list a name is a claim."""

    name: str
    key: str
    listed: bool
    problem: str = ""

    @property
    def words(self) -> str:
        """`ann@lab.org (SHA256:AbCdEfGhIjKl)`, and what keeps it from counting."""
        if self.problem:
            return f"{self.name} (does not count: {self.problem})"
        return f"{self.name} ({self.key}{'' if self.listed else ', in no list of a policy'})"


@dataclass(frozen=True)
class OnRecord:
    """An approval of the end of a box or a volume. `where` it was found; `missing`: whose signatures the policy asks
    for besides."""

    where: str
    by: str
    until: datetime
    signed_by: tuple[SignedBy, ...] = ()
    missing: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The documented shape in `sweepctl status --json`."""
        return {
            "where": self.where,
            "by": self.by,
            "until": self.until.isoformat(),
            "signed_by": [vars(one) for one in self.signed_by],
            "missing": list(self.missing),
        }

    @property
    def words(self) -> str:
        """Who signed it and until when it holds, in one line."""
        names = ", ".join(one.words for one in self.signed_by) or "no one so far"
        return f"by {names}; until {self.until:%Y-%m-%d %H:%M} UTC (in {self.where})"


def signed(approvals: Iterable[OnRecord], reasons: Sequence[str]) -> list[str]:
    """A line for each approval that a person signed or has to sign, with what the reasons do not say yet."""
    return [
        "; ".join([one.words, *(more for more in one.missing if not any(more in reason for reason in reasons))])
        for one in approvals
        if one.signed_by or one.missing
    ]


def signature_states(
    approvals: Iterable[tuple[str, Approval | None, Sequence[str]]],
    native_id: str,
    sweep: SweepName,
    binds: Sequence[Binding],
    *,
    now: datetime,
) -> tuple[OnRecord, ...]:
    """Those of `approvals` (where it was found, the approval, whose signatures it misses) that name this box or volume,
    each once. `binds`: the policies that bind. Runs ssh-keygen where there are signatures. Raises nothing."""
    found: list[OnRecord] = []
    known: list[Approval] = []
    for where, approval, missing in approvals:
        if approval is None or approval in known or all(one.native_id != native_id for one in approval.actions):
            continue
        known.append(approval)
        people = _people(approval, sweep, binds, now)
        found.append(OnRecord(where, approval.by, approval.ends, people, tuple(missing)))
    return tuple(found)


def _people(approval: Approval, sweep: SweepName, binds: Sequence[Binding], now: datetime) -> tuple[SignedBy, ...]:
    if not approval.signatures:
        return ()
    plain = verified_signers(approval, sweep, None, at=now)
    listed = [verified_signers(approval, sweep, text, at=now) for text in _lists(binds)]
    names = dict.fromkeys(signature.principal for signature in approval.signatures)
    return tuple(_one(name, plain, listed) for name in names)


def _one(name: str, plain: Signers, listed: Sequence[Signers]) -> SignedBy:
    if name in plain.refused:
        return SignedBy(name, "", listed=False, problem=plain.refused[name])
    proved = any(name in each.valid for each in listed)
    return SignedBy(name, plain.valid[name][:SHORT], listed=proved)


def _lists(binds: Sequence[Binding]) -> list[str]:
    """The lists of signers of these policies, each once."""
    return [text for text in dict.fromkeys(one.policy.signers for one in binds) if text]
