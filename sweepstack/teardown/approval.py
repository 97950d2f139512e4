"""The one judgement of an approval: whether it lets this verb end this box or volume now.

Boxes, volumes, and stops ask `judge_approval`. What no state has any more ends by a person's request
(`judge_request`), which may need an approval on record. What an approval was given for, such as a receipt, is judged by
the endings (`teardown.check`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.teardown.policy_check import ask_policy, orphan_problems
from sweepstack.teardown.revocation import revocation_problem
from sweepstack.teardown.signatures import signature_problems

if TYPE_CHECKING:
    from sweepstack.teardown.policy_in_force import Binding

Given = Literal["before", "now", "cosigned"]
"""When a person gave an approval. `now`: just now, so that an abandonment in it can't have been revoked, and it is
signed after this. `cosigned`: before, and one more person signs it after this."""


@dataclass(frozen=True)
class Subject:
    """What is to end. `what`: box or volume, for people. `name`: "" where no state names it; then only the id is
    compared. `sweep`: "" in it is not compared."""

    what: str
    name: str
    native_id: str
    verb: str
    sweep: SweepName


@dataclass(frozen=True)
class Judged:
    """`problems`: why the approval does not let it end; empty if it does. `unsigned`: whose signatures one that is
    given just now needs, and does not have yet. `given_up`: it says by name that what is on it may be lost."""

    problems: tuple[str, ...] = ()
    unsigned: tuple[str, ...] = ()
    given_up: bool = False


def judge_approval(
    subject: Subject,
    approval: Approval,
    store: EvidenceStore | None,
    policies: Callable[[], Sequence[Binding]],
    *,
    now: datetime,
    given: Given = "before",
) -> Judged:
    """Judges form, signatures, expiry, revocation and policy, in this order. The first that fails says why.

    `store`: None if the evidence can't be opened. `policies`: what binds the end; asked last. Reads files;
    runs ssh-keygen where there are signatures. Raises nothing but what `policies` raises.
    """
    given_up = gives_up(subject, approval)
    if problem := _form_problem(subject, approval):
        return Judged((problem,))
    if problems := signature_problems(approval, subject.sweep, None, at=now):
        return Judged(tuple(problems))
    if now >= approval.ends and not begun(store, subject.native_id, approval):
        return Judged((f"the approval expired at {approval.ends:%Y-%m-%d %H:%M} UTC",))
    if not (given_up and given == "now"):
        identity = subject.sweep.identity
        if problem := revocation_problem(store, approval, subject.native_id, identity, given_up=given_up):
            return Judged((problem,))
    asked = ask_policy(policies(), subject.sweep, approval, given_up=given_up, now=now, to_sign=given != "before")
    return Judged(asked.problems, asked.unsigned, given_up)


def judge_request(
    stores: Sequence[EvidenceStore],
    native_id: str,
    verb: str,
    binds: Sequence[Binding],
    *,
    identity: str,
    given_up: bool,
    now: datetime,
) -> Judged:
    """Judges the end of a box or a volume that no state has, which a person asks for. A policy that names people lets
    it go only by an approval that `stores` have on record. `given_up`: what is on it may be lost. Raises nothing."""
    given = _on_record(stores, native_id, verb, binds, given_up=given_up, now=now)
    return Judged(orphan_problems(binds, identity, given, given_up=given_up, now=now), (), given_up)


def _on_record(
    stores: Iterable[EvidenceStore],
    native_id: str,
    verb: str,
    binds: Sequence[Binding],
    *,
    given_up: bool,
    now: datetime,
) -> list[Approval]:
    """The approvals on record that hold now, also by the policies that bind (`binds`), and are for this very end.
    `given_up`: only those that abandon it: who signed that it may end once all is verified did not sign that it may be
    lost. Raises nothing: what can't be read is none."""
    standing = []
    for store in stores:
        subject = Subject("box", "", native_id, verb, SweepName(project="", stack="", identity=store.marker.identity))
        try:
            found = store.clearance(native_id)
        except EvidenceError:
            continue
        if found is None or (given_up and not gives_up(subject, found)):
            continue
        if not judge_approval(subject, found, store, lambda: binds, now=now).problems:
            standing.append(found)
    return standing


def gives_up(subject: Subject, approval: Approval) -> bool:
    """Whether a person gave up this very box or volume, by name and with a reason."""
    return any(
        (one.native_id, one.verb) == (subject.native_id, subject.verb) and subject.name in ("", one.box)
        for one in approval.abandon
    )


def _form_problem(subject: Subject, approval: Approval) -> str:
    """Why the approval is not for this verb and native id; "" if it is."""
    if approval.waivers_digest != Approval.digest_waivers(approval.waive, approval.abandon, approval.unclaimed):
        return "the waivers of the approval were edited after it was given"
    named = [action for action in approval.actions if subject.name in ("", action.box)]
    ours = [action for action in named if action.native_id == subject.native_id]
    if not named or (not ours and not subject.name):
        return f"the approval does not name this {subject.what}"
    if not ours:
        return f"the approval is for {named[0].native_id}, and this {subject.what} is {subject.native_id}"
    if not any(action.verb == subject.verb for action in ours):
        return f"the approval allows {ours[0].verb}, not {subject.verb}"
    return ""


def begun(store: EvidenceStore | None, native_id: str, approval: Approval) -> bool:
    """Whether a teardown by this approval's receipt has begun for this native id: then it may be finished after the
    expiry. It includes stopping the runner, which the journal records. If it began after the approval had expired, it
    belongs to another approval: abandonments have no receipt to tell them apart."""
    try:
        teardown = store.teardown() if store is not None else None
    except EvidenceError:
        return False
    if teardown is None or teardown.begun_at > approval.ends:
        return False
    return teardown.receipt == approval.receipt and native_id in teardown.native_ids
