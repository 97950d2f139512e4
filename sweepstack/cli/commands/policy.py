"""`sweepctl policy`: shows which policy binds a sweep, and approves a weaker one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from sweepstack.cli.commands.approve.sign import Signer, signer_of
from sweepstack.cli.options import AsJson, Expires, SignerName, SigningKey, Stack
from sweepstack.cli.output import NO, YES, No, Out, Unsure
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer
from sweepstack.cli.sources import Sources, open_sources, usable
from sweepstack.cli.target import NeverUp, Target, parse_expires
from sweepstack.config.policy import FILE, ReadPolicy
from sweepstack.core.policy_chain import NONE, PolicyText
from sweepstack.core.records import Action, Approval
from sweepstack.core.signature import SweepName
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.teardown.ownership import who
from sweepstack.teardown.policy_change import Change, change, waiting_approval
from sweepstack.teardown.policy_copies import PROPOSED, Found, in_evidence, in_state, on_box
from sweepstack.teardown.policy_in_force import FROM, TO, change_problem
from sweepstack.teardown.policy_order import stricter, weaker
from sweepstack.teardown.signatures import signed_words, verified_signers


def command(
    do: Annotated[
        str, typer.Argument(metavar="[show|approve]", help="What to do; `show` if nothing is named.")
    ] = "show",
    digest: Annotated[
        str | None,
        typer.Option("--policy", metavar="sha256:…", help="approve: the file's whole digest: naming it approves it."),
    ] = None,
    expires: Expires = "72h",
    sign: Annotated[
        bool, typer.Option("--sign", help="approve: sign it with your SSH key, or sign what another person approved.")
    ] = False,
    signing_key: SigningKey = None,
    signer: SignerName = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show which policy binds a sweep, or approve a weaker one. Exit 1: the file differs and does not count."""
    target, out = Target.find(stack), Out(as_json=json)
    if do not in ("show", "approve"):
        raise Unsure(f'sweepctl policy "{do}": it is show or approve')
    if (sign and do != "approve") or ((signing_key or signer) and not sign):
        raise Unsure("--sign is for sweepctl policy approve, and --signing-key and --signer are for --sign")
    by = signer_of(target.root, "--sign", signing_key, signer) if sign else None
    with Progress("looking"):
        sources = _sources(target)
        places = _places(sources) if sources is not None else []
    store = sources.store if sources is not None else None
    identity = store.marker.identity if store is not None else ""
    found = change(target.root, places, store, identity)
    if do == "show":
        return _show(target, found, out)
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


def _places(sources: Sources) -> list[Found]:
    """What state, evidence and boxes hold."""
    boxes = sources.state.boxes
    texts = dict.fromkeys(box.policy for box in boxes if box.policy is not None)
    places = [in_state(text) for text in texts] or [in_state(None)]
    if sources.store is not None:
        places.append(in_evidence(sources.store))
    for box in boxes:
        try:
            places.append(on_box(box.context().channel(), box.name))
        except PlatformError as error:
            places.append(Found(f"box {box.name}", problem=f"it can't be asked: {error}"))
    return places


def _show(target: Target, found: Change, out: Out) -> int:
    heads = found.before.heads
    state = _file_state(found)
    following = _next(target, found)
    out.document(
        {
            "stack": target.stack,
            "in_force": [{"digest": head.digest, "rules": _rules(found, head)} for head in heads],
            "copies": [
                {
                    "where": place.where,
                    "digests": [chain.head.digest for chain in place.copy.chains] if place.copy is not None else [],
                    "problem": place.problem or None,
                }
                for place in found.before.places
            ],
            "file": {"path": FILE, "digest": (found.file or NONE).digest if not found.problem else None, "is": state},
            "weaker": list(found.lost),
            "problem": found.problem or found.before.unreadable or None,
            "notes": list(found.before.notes),
            "next": following,
        }
    )
    if not heads:
        out.line("in force   none: every approval and every price counts as it is")
    for head in heads:
        out.line(f"in force   {head.digest}", style="bold", wrap=False)
        for key, value in _rules(found, head).items():
            words = ", ".join(value) if isinstance(value, list) else value
            out.line(f"           {key}: {words}")
    rows = [
        (place.where, ", ".join(chain.head.short for chain in place.copy.chains) if place.copy else "-", place.problem)
        for place in found.before.places
    ]
    if rows and found.before.any:
        out.table(("COPY", "POLICY", "PROBLEM"), rows)
    out.line(f"file       {FILE}: {state}")
    for line in found.lost:
        out.line(f"           weaker: {line}")
    for problem in dict.fromkeys(filter(None, (found.problem, found.before.unreadable, *found.before.notes))):
        out.line(f"note       {problem}")
    out.next(following)
    return NO if found.lost or found.problem or found.before.unreadable else YES


def _file_state(found: Change) -> str:
    """How the project's file stands to what is in force, in a few words."""
    if found.problem:
        return "it can't be read, so nothing is rented"
    heads = {head.digest for head in found.before.heads}
    if heads == {(found.file or NONE).digest} or (not heads and found.file is None):
        return "the same" if heads else "there is none"
    missing = "missing" if found.file is None else "weaker"
    if found.lost:
        return f"{missing}, and not approved: it does not count"
    if not heads:
        return "new: it comes into force with the next `pulumi up`"
    pairs = [(rule, new) for rule in found.before.rules for new in found.after.rules]
    keys = sorted({key for rule, new in pairs for key in stricter(rule, new)})
    approved = any(weaker(rule, new) for rule, new in pairs)
    how = "weaker, and approved" if approved else f"stricter in {', '.join(keys)}" if keys else "as strict"
    return f"{how}: it comes into force with the next `pulumi up`"


def _next(target: Target, found: Change) -> list[str]:
    if found.problem:
        return [f"mend {FILE}, then sweepctl policy --stack {target.stack}"]
    if found.lost:
        return [f"sweepctl policy approve --stack {target.stack}    (or put the policy back into {FILE})"]
    if found.after.copy != found.before.copy:
        return [f"pulumi up --stack {target.stack}    (brings the file into force)"]
    return [f"sweepctl status --stack {target.stack}"]


def _rules(found: Change, head: PolicyText) -> dict[str, Any]:
    rule: ReadPolicy | None = next((r for r in found.before.rules if r.source.digest == head.digest), None)
    return rule.rules.model_dump(mode="json", exclude_defaults=True) if rule is not None else {}


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
    if found.problem:
        raise Unsure(found.problem)
    wanted = found.file or NONE
    if not found.lost:
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
    for head in found.before.heads:
        out.line(f"in force   {head.digest}", wrap=False)
    out.line(f"new        {wanted.digest}{' (no policy)' if wanted == NONE else ''}", wrap=False)
    for line in found.lost:
        out.line(f"weaker     {line}", style="bold")
    actions = _actions(store.marker.identity, found.before.heads, wanted)
    standing = _standing(store, actions)
    if standing is not None:
        out.line(
            f"begun      by {standing.by} at {standing.at:%Y-%m-%d %H:%M} UTC; it holds until "
            f"{standing.expires:%Y-%m-%d %H:%M} UTC"
        )
        out.line(f"signed     {signed_words(standing).removeprefix('signed ') or 'by none so far'}")
    people = next((rule for rule in found.before.rules if rule.rules.may_abandon is not None), None)
    if people is not None and signer is None:
        at = people.at("approvers" if people.rules.abandoners is None else "abandoners")
        raise No(
            f"not approved; nothing was written: the policy in force asks for signatures ({at})",
            [f"sweepctl policy approve --stack {target.stack} --sign"],
        )
    if signer is not None:
        out.line(f"signing    as {signer.name}, after your yes, with {signer.key}")
    if digest is None:
        _ask(target, wanted, signer)
    now = datetime.now(UTC).replace(microsecond=0)
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
    chains = found.before.copy.chains
    asked = (change_problem(chain, wanted, approval, store.marker.identity, at=now) for chain in chains)
    missing = list(dict.fromkeys(filter(None, asked)))
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
    command = f"sweepctl policy approve --stack {target.stack} --policy {wanted.digest}"
    command += f" {signer.options}" if signer is not None else ""
    if not sys.stdin.isatty():
        raise No("there is no terminal to ask at: to approve, give the whole digest of the new policy", [command])
    if answer("let the weaker policy come into force? Type yes to go on: ").lower() != "yes":
        raise No("not approved; nothing was written", [f"sweepctl policy --stack {target.stack}"])
