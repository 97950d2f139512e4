"""`sweepctl policy`: shows which policy binds a sweep, and approves a weaker one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from sweepstack.cli.commands.approve.sign import Signer, signer_of
from sweepstack.cli.options import AsJson, Expires, Sign, Stack, one_of, parse_expires
from sweepstack.cli.output import NO, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer
from sweepstack.config import policy as policy_file
from sweepstack.config.policy import FILE
from sweepstack.core.policy_text import NONE, PolicyText
from sweepstack.core.records import Action, Approval
from sweepstack.core.signature import SweepName
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.operations.sweep.sources import Sources, open_sources, usable
from sweepstack.operations.sweep.target import NeverUp, Target
from sweepstack.status.engine.state import BoxEntry, GateEntry, IdentityEntry, StackState, VolumeEntry
from sweepstack.teardown.ownership import who
from sweepstack.teardown.policy_in_force import (
    FROM,
    PROPOSED,
    STATE,
    TO,
    Binding,
    Change,
    InState,
    asked,
    change,
    in_state,
    missing_consent,
    rule_of,
    waiting_approval,
)
from sweepstack.teardown.policy_strictness import stricter
from sweepstack.teardown.refusal import revoked_again
from sweepstack.teardown.revocation import given_at, torn
from sweepstack.teardown.signatures import signed_words, verified_signers


def command(
    do: Annotated[
        str, typer.Argument(metavar="[show|approve]", help="What to do; `show` if nothing is named.")
    ] = "show",
    digest: Annotated[
        str | None,
        typer.Argument(metavar="[sha256:…]", help="approve: the file's whole digest: naming it approves it."),
    ] = None,
    expires: Expires = "72h",
    sign: Sign = False,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show which policy binds a sweep, or approve a weaker one. Exit 1: the file differs and does not count."""
    one_of(do, "show", "approve")
    target, out = Target.find(stack), Out(as_json=json)
    if do == "show" and (sign or digest):
        raise Unsure("--sign and a digest are for sweepctl policy approve")
    by = signer_of(target.root) if sign else None
    with Progress("looking"):
        sources = _sources(target)
    entries = _entries(sources.state) if sources is not None else {}
    store = sources.store if sources is not None else None
    found = change(target.root, entries.values(), store, store.marker.identity if store is not None else "")
    if do == "show":
        return _show(target, found, entries, out)
    if sources is None:
        raise No(
            "no sweep was ever brought up: its first policy needs no approval", [f"pulumi up --stack {target.stack}"]
        )
    usable(sources, "policy approve")
    return _approve(target, sources, found, digest, expires, by, out)


def _sources(target: Target) -> Sources | None:
    """The sweep's state and evidence; None if it was never brought up."""
    try:
        return open_sources(target)
    except NeverUp:
        return None


def _entries(state: StackState) -> dict[str, str]:
    """The entries of the state that have a policy: name → its property `policy`."""
    kinds: dict[str, Sequence[IdentityEntry | BoxEntry | GateEntry | VolumeEntry]]
    kinds = {"identity": state.identities, "box": state.boxes, "gate": state.gates, "volume": state.volumes}
    return {
        f"{kind} {entry.urn.rpartition('::')[2]}": entry.policy
        for kind, entries in kinds.items()
        for entry in entries
        if entry.policy is not None
    }


def _show(target: Target, found: Change, entries: Mapping[str, str], out: Out) -> int:
    state, following = _file_state(found), _next(target, found)
    binds = [one for one in found.binding if one.policy in found.held.policies]
    rows = [
        (f"{STATE}: {name}", _shorts(in_state([text])), "".join(in_state([text]).problems))
        for name, text in entries.items()
    ]
    problems = [*found.held.problems, *(one.problem for one in binds if one.problem)]
    out.document(
        {
            "stack": target.stack,
            "in_force": [
                {"digest": one.policy.digest, "where": one.where, "rules": _rules(one)} for one in found.in_force
            ],
            "copies": [
                {"where": where, "digests": [p.digest for p in in_state([text]).policies], "problem": problem or None}
                for (where, _, problem), text in zip(rows, entries.values(), strict=True)
            ],
            "file": {
                "path": FILE,
                "digest": (found.file or NONE).digest if not found.file_problem else None,
                "is": state,
            },
            "weaker": list(found.lost) if found.refused else [],
            "problem": found.file_problem or next(iter(problems), None),
            "notes": found.notes,
            "next": following,
        }
    )
    if not found.in_force and not found.held.problems:
        out.line("in force   none: every approval and every price counts as it is")
    for one in found.in_force:
        out.line(f"in force   {one.policy.digest}    ({one.where})", style="bold", wrap=False)
        for key, value in _rules(one).items():
            words = ", ".join(value) if isinstance(value, list) else value
            out.line(f"           {key}: {words}{_at(one, key)}")
    if rows:
        out.table(("ENTRY", "POLICY", "PROBLEM"), rows)
    out.line(f"file       {FILE}: {state}")
    for line in found.lost if found.refused else ():
        out.line(f"           weaker: {line}")
    for problem in dict.fromkeys(filter(None, (found.file_problem, *problems))):
        out.line(f"note       {problem}")
    out.next(following)
    return NO if found.refused or found.file_problem or problems else YES


def _shorts(held: InState) -> str:
    return ", ".join(policy.short for policy in held.policies) or "-"


def _at(one: Binding, key: str) -> str:
    return f"    ({one.rule.at(key)})" if one.rule is not None else ""


def _file_state(found: Change) -> str:
    """How the project's file stands to what is in force, in a few words."""
    if found.file_problem:
        return "it can't be read, so nothing is rented, and nothing ends"
    policies, file = found.held.policies, found.file
    if not policies and not found.held.problems:
        return "there is none" if file is None else "new: it comes into force with the next `pulumi up`"
    if policies == ((file or NONE),) and not found.held.problems:
        return "the same"
    if found.refused:
        return f"{'missing' if file is None else 'weaker'}, and not approved: it does not count"
    if found.lost:
        how = "weaker, and approved"
    else:
        rules = [one.rule for one in found.in_force if one.rule is not None and one.where == STATE]
        new = policy_file.parse_policy(file or NONE)
        keys = sorted({key for rule in rules for key in stricter(rule, new)})
        how = f"stricter in {', '.join(keys)}" if keys else "as strict"
    return f"{how}: it comes into force with the next `pulumi up`"


def _next(target: Target, found: Change) -> list[str]:
    if found.file_problem:
        way, again = policy_file.mended(target.root), f"sweepctl policy --stack {target.stack}"
        return [f"{way} && {again}" if way.startswith("mv ") else f"{way}, then {again}"]
    if found.refused:
        return [f"sweepctl policy approve --stack {target.stack}    (or put the policy back into {FILE})"]
    if found.after != found.held.policies:
        return [f"pulumi up --stack {target.stack}    (brings the file into force)"]
    return [f"sweepctl status --stack {target.stack}"]


def _rules(one: Binding) -> dict[str, Any]:
    return one.rule.rules.model_dump(mode="json", exclude_defaults=True) if one.rule is not None else {}


def _approve(
    target: Target,
    sources: Sources,
    found: Change,
    digest: str | None,
    expires: str,
    signer: Signer | None,
    out: Out,
) -> int:
    """Writes the approval of a weaker policy into the evidence, or one more signature under the one that waits there.
    The next `pulumi up` takes it."""
    store = sources.store
    assert store is not None
    if found.file_problem:
        raise Unsure(found.file_problem)
    wanted = found.file or NONE
    if not found.refused:
        out.document(
            {
                "stack": target.stack,
                "approved": None,
                "by": None,
                "signed": [],
                "missing": [],
                "next": _next(target, found),
            }
        )
        out.line("the file is as strict as what is in force, or approved already: nothing to approve")
        out.next(_next(target, found))
        return YES
    if digest is not None and digest != wanted.digest:
        raise No(f"{FILE} is {wanted.digest}, and not {digest}", [f"sweepctl policy --stack {target.stack}"])
    for policy in found.held.policies:
        out.line(f"in force   {policy.digest}", wrap=False)
    out.line(f"new        {wanted.digest}{' (no policy)' if wanted == NONE else ''}", wrap=False)
    for line in found.lost:
        out.line(f"weaker     {line}", style="bold")
    actions = _actions(store.marker.identity, found.held.policies, wanted)
    standing = _standing(store, actions)
    if standing is not None:
        out.line(
            f"begun      by {standing.by} at {standing.at:%Y-%m-%d %H:%M} UTC; it holds until "
            f"{standing.expires:%Y-%m-%d %H:%M} UTC"
        )
        out.line(f"signed     {signed_words(standing).removeprefix('signed ') or 'by none so far'}")
    if signer is None and (at := _asks_people(found, wanted)):
        raise No(
            f"not approved; nothing was written: the policy in force asks for signatures ({at})",
            [f"sweepctl policy approve --stack {target.stack} --sign"],
        )
    if signer is not None:
        out.line(f"signing    as {signer.name}, after your yes, with {signer.key}")
    if torn(store):
        words = "not approved; nothing was written: whether it was revoked could not be told afterwards"
        raise No(words, [revoked_again(target.stack)])
    if digest is None:
        _ask(target, wanted, signer)
    now = given_at(store, datetime.now(UTC), [store.marker.identity])
    approval = Approval(
        actions=actions,
        waivers_digest=Approval.digest_waivers((), ()),
        by=who(),
        at=now,
        expires=now + parse_expires(expires),
    )
    if signer is not None:
        marker = store.marker
        sweep = SweepName(project=marker.project, stack=marker.stack, identity=marker.identity)
        approval = signer.sign(_signed_before(standing, approval, sweep) or approval, sweep)
    _put(target, store, standing, approval, actions)
    missing = list(dict.fromkeys(missing_consent(found.held, wanted, approval, store.marker.identity)))
    following = [f"pulumi up --stack {target.stack}    (brings it into force)"]
    if missing:
        following = [f"sweepctl policy approve --stack {target.stack} --sign    (each person whom it asks for)"]
    out.document(
        {
            "stack": target.stack,
            "approved": wanted.digest,
            "by": approval.by,
            "signed": [signature.principal for signature in approval.signatures],
            "missing": missing,
            "next": following,
        }
    )
    for words in missing:
        out.line(f"unsigned   {words}; it counts once they signed it", style="yellow")
    out.line(f"written to the evidence; it holds until {approval.expires:%Y-%m-%d %H:%M} UTC, for this sweep alone")
    out.next(following)
    return YES


def _asks_people(found: Change, wanted: PolicyText) -> str:
    """Where a policy that is asked before `wanted` may follow names people; "" if none does."""
    for policy in asked(found.held, wanted):
        rule = rule_of(policy)
        if rule is not None and rule.rules.may_abandon is not None:
            return rule.at("approvers" if rule.rules.abandoners is None else "abandoners")
    return ""


def _standing(store: EvidenceStore, actions: tuple[Action, ...]) -> Approval | None:
    """The approval of this very change that waits in the evidence; None if there is none."""
    found = waiting_approval(store)
    return found if found is not None and found.actions == actions else None


def _put(
    target: Target, store: EvidenceStore, shown: Approval | None, approval: Approval, actions: tuple[Action, ...]
) -> None:
    """Writes it in place of what was shown. Raises No if another person signed, or approved anew, since then: their
    signature would be lost."""
    if _standing(store, actions) != shown:
        raise No(
            "not approved; nothing was written: the approval was changed in the evidence while you looked at it",
            [f"sweepctl policy approve --stack {target.stack}    (shows it as it stands now)"],
        )
    store.write_record(PROPOSED, approval)


def _signed_before(standing: Approval | None, approval: Approval, sweep: SweepName) -> Approval | None:
    """The approval that waits, if it has good signatures; else None."""
    if standing is None or not standing.signatures:
        return None
    return standing if not verified_signers(standing, sweep, None, at=approval.at).problems else None


def _actions(identity: str, old: Sequence[PolicyText], new: PolicyText) -> tuple[Action, ...]:
    ends = tuple(Action(verb=FROM, box=identity, native_id=head.digest) for head in old)
    return (*ends, Action(verb=TO, box=identity, native_id=new.digest))


def _ask(target: Target, wanted: PolicyText, signer: Signer | None) -> None:
    """Asks at the terminal. Raises No if there is none, or if the answer is another one."""
    command = f"sweepctl policy approve --stack {target.stack} {wanted.digest}{' --sign' if signer else ''}"
    if not sys.stdin.isatty():
        raise No("there is no terminal to ask at: to approve, give the whole digest of the new policy", [command])
    if answer("let the weaker policy come into force? Type yes to go on: ").lower() != "yes":
        raise No("not approved; nothing was written", [f"sweepctl policy --stack {target.stack}"])
