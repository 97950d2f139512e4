"""`sweepctl approve`: writes a person's approval to end boxes or volumes into the stack file.

A person approves by giving the whole digest of what was shown, or by typing `yes` when asked. There is no `--yes`.

`sweepctl approve --cosign`: one more person signs the approval that stands in the stack file.

`sweepctl approve --revoke`: takes all approvals back that were given until now.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sweepstack.cli import completion
from sweepstack.cli.commands.approve.boxes import ask_for_boxes, boxes_to_sign
from sweepstack.cli.commands.approve.options import ApproveOptions, Asked, pair_reasons
from sweepstack.cli.commands.approve.sign import Signer, signer_of
from sweepstack.cli.commands.approve.volumes import ask_for_volumes, volumes_to_sign
from sweepstack.cli.options import AcceptFact, AsJson, Expires, Receipt, Sign, SignerName, SigningKey, Stack
from sweepstack.cli.output import UNSURE, YES, No, Out, Unsure
from sweepstack.cli.prompt import answer
from sweepstack.cli.sources import open_sources
from sweepstack.cli.target import Target, approval_of, parse_expires
from sweepstack.core.local_decisions import REVOKED_ALL, TAKEN_BACK, Decision, record_decision
from sweepstack.core.records import Approval, Birth
from sweepstack.core.signature import SweepName
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.status.engine.state import StackState
from sweepstack.teardown.ownership import who
from sweepstack.teardown.revocation import approval_digest, write_revocation
from sweepstack.teardown.signatures import signed_words, verified_signers


class Command(TyperCommand):
    """Keeps the raw arguments: each `--reason` belongs to the option before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = list(args)
        return super().parse_args(ctx, args)


def command(
    ctx: typer.Context,
    receipt: Receipt = None,
    box: Annotated[
        list[str] | None,
        typer.Option(metavar="BOX", help="Only this box. Repeatable.", autocompletion=completion.boxes),
    ] = None,
    waive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CELL",
            help="End the boxes without a copy of this cell; needs --reason.",
            autocompletion=completion.cells,
        ),
    ] = None,
    abandon: Annotated[
        list[str] | None,
        typer.Option(metavar="BOX", help="Give up the data on it; needs --reason.", autocompletion=completion.boxes),
    ] = None,
    waive_unclaimed: Annotated[
        list[str] | None,
        typer.Option(metavar="BOX", help="Lose the bytes on it that belong to no cell; needs --reason."),
    ] = None,
    reason: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Why; belongs to the waiver or --abandon before it.")
    ] = None,
    verb: Annotated[str, typer.Option(metavar="destroy|stop", help="What the approval allows.")] = "destroy",
    expires: Expires = "72h",
    accept_fact: AcceptFact = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the approval back.")] = False,
    sign: Sign = False,
    cosign: Annotated[
        bool, typer.Option("--cosign", help="Sign the approval that stands in the stack file, as one more person.")
    ] = False,
    approval: Annotated[
        str | None,
        typer.Option(metavar="sha256:…", help="With --cosign: the whole digest of the approval, which is your yes."),
    ] = None,
    signing_key: SigningKey = None,
    signer: SignerName = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Approve ending the named boxes on the ground of one receipt. There is no --yes."""
    target, out = Target.find(stack), Out(as_json=json)
    new = any((receipt, box, waive, abandon, waive_unclaimed, reason, accept_fact, sign))
    if revoke:
        if new or cosign:
            raise Unsure("--revoke takes the whole approval back: use it without other options")
        return revoke_approvals(target, out)
    if (signing_key or signer) and not (sign or cosign):
        raise Unsure("--signing-key and --signer are for --sign and --cosign")
    if approval and not cosign:
        raise Unsure("--approval is for --cosign; --receipt names what a new approval stands on")
    if cosign:
        if new or (verb, expires) != ("destroy", "72h"):
            raise Unsure("--cosign signs the approval as it stands: use it without options that make another one")
        return cosign_approval(target, signer_of(target.root, "--cosign", signing_key, signer), approval, out)
    if verb not in ("destroy", "stop"):
        raise Unsure(f'--verb "{verb}": it is destroy or stop')
    if verb == "stop" and not (box or abandon):
        raise Unsure("--verb stop needs --box BOX or --abandon BOX: a stop is approved box by box")
    why = pair_reasons(ctx.meta["arguments"])
    boxes = tuple(dict.fromkeys(box or ()))
    options = ApproveOptions(
        receipt,
        boxes,
        why.waive,
        why.abandon,
        why.boxes,
        parse_expires(expires),
        verb,
        unclaimed=why.unclaimed,
        accept_facts=tuple(dict.fromkeys(accept_fact or ())),
        signer=signer_of(target.root, "--sign", signing_key, signer) if sign else None,
    )
    return approve(target, options, out)


def approve(target: Target, options: ApproveOptions, out: Out) -> int:
    """Exit 0 if the approval is in the stack file, or none is needed. Raises No if it was refused or not given."""
    asked = (ask_for_volumes if target.is_store else ask_for_boxes)(target, options, out)
    if asked is None:
        return YES
    asked.show(out)
    asked.facts.show(out)
    if options.signer is not None:
        out.line(f"signing   as {options.signer.name}, after your yes, with {options.signer.key}")
    earlier = approval_of(target)
    if earlier is not None and earlier.signatures:
        names = ", ".join(signature.principal for signature in earlier.signatures)
        out.line(f"note      this replaces an approval that was signed by {names}: it has to be signed again", "yellow")
    if not asked.given:
        _ask(asked)
    if options.signer is not None:
        asked.approval = options.signer.sign(asked.approval, asked.sweep())
    return _write(asked, out)


def _ask(asked: Asked) -> None:
    """Asks at the terminal. Raises No if there is no terminal, or if the answer is another one."""
    if not sys.stdin.isatty():
        words, command = asked.instead
        raise No(f"there is no terminal to ask at: {words}", [command])
    if not _says_yes(asked, asked.question, f"the {asked.kind}'s name"):
        raise No("not approved; nothing was written", [f"sweepctl approve --stack {asked.target.stack}"])


def _says_yes(asked: Asked, question: str, name: str) -> bool:
    """Whether the person types yes; or the name of the first of what is given up, where something is."""
    expected = asked.given_up[0] if asked.given_up else "yes"
    counts = f"{name} to go on ({expected})" if asked.given_up else "yes to go on"
    return answer(f"{question} Type {counts}: ").lower() == expected


def _write(asked: Asked, out: Out) -> int:
    """Writes the approval, and says where, until when it holds, and what comes next."""
    approval = asked.approval
    where, problems = asked.record(approval, asked.facts)
    then = asked.following()
    out.document(
        {
            "stack": asked.target.stack,
            "file": asked.target.file.shown,
            "approval": approval.model_dump(mode="json"),
            "approved": asked.names,
            "recorded": where,
            "accepted_facts": list(asked.facts.given),
            "problems": problems,
            "next": then,
        }
    )
    for problem in problems:
        out.line(f"note      not recorded there: {problem}", style="yellow")
    if approval.signatures:
        out.line(signed_words(approval))
    out.line(f"written to {', '.join(where)}; it holds until {approval.expires:%Y-%m-%d %H:%M} UTC")
    out.next(then)
    return YES


def cosign_approval(target: Target, signer: Signer, digest: str | None, out: Out) -> int:
    """Exit 0 if the signature is in the stack file. Raises No if it was refused or not given.

    `digest`: of the approval as it stands, which is the person's yes; None: asks at the terminal.
    """
    approval = _standing(target, signer)
    asked = (volumes_to_sign if target.is_store else boxes_to_sign)(target, approval)
    asked.show(out)
    _show_approval(approval, asked.sweep(), signer, out)
    if asked.reasons:
        lines = [
            "not signed; nothing was written: the approval as it stands ends nothing",
            *(f"  {one}" for one in asked.reasons),
        ]
        anew = f"sweepctl approve --stack {target.stack} --sign    (a new one, then signed again)"
        raise No("\n".join(lines), [anew])
    _ask_to_sign(asked, signer, digest)
    asked.approval = signer.sign(approval, asked.sweep())
    _require_unchanged(target, approval)
    up = f"pulumi up --stack {target.stack}    (with this stack file)"
    asked.following = lambda: [up, f"pulumi destroy --stack {target.stack}"]
    return _write(asked, out)


def _standing(target: Target, signer: Signer) -> Approval:
    """The approval that stands in the stack file. Raises No if there is none, ConfigError if it can't be read."""
    approval = target.file.approval() if target.file.path.exists() else None
    if approval is None:
        raise No(
            f"there is no approval in {target.file.shown} to sign: the first person writes it",
            [f"sweepctl approve --stack {target.stack} --sign"],
        )
    if any(signature.principal == signer.name for signature in approval.signatures):
        raise No(
            f"not signed: {signer.name} has signed this approval already, and a second signature is another person's. "
            "Is that you? Then --signer NAME names you"
        )
    return approval


def _require_unchanged(target: Target, shown: Approval) -> None:
    """Raises No if the file has another approval by now than the one that was shown: a person may take minutes to say
    yes, and another one may have signed, approved anew or revoked since then."""
    now = target.file.approval() if target.file.path.exists() else None
    if now != shown:
        how = "was taken out of" if now is None else "was changed in"
        raise No(
            f"not signed; nothing was written: the approval {how} {target.file.shown} while you looked at it",
            [f"sweepctl approve --stack {target.stack} --cosign    (shows it as it stands now)"],
        )


def _show_approval(approval: Approval, sweep: SweepName, signer: Signer, out: Out) -> None:
    """Prints what the screen of `approve` does not have: who gave it, until when, who signed, and the digest."""
    for entry in approval.abandon:
        out.line(f"given up  {entry.box} ({entry.verb}): {entry.reason}", style="yellow")
    out.line(f"given     by {approval.by} at {approval.at:%Y-%m-%d %H:%M} UTC, until {approval.expires:%Y-%m-%d %H:%M}")
    found = verified_signers(approval, sweep, None, at=datetime.now(UTC))
    for name, key in found.valid.items():
        out.line(f"signed    by {name}: it verifies, with the key {key}")
    for problem in found.problems:
        out.line(f"signed    {problem}", style="bold red")
    if not approval.signatures:
        out.line("signed    by none so far")
    out.line(f"signing   as {signer.name}, after your yes, with {signer.key}")
    out.line(f"approval {approval_digest(approval)}")


def _ask_to_sign(asked: Asked, signer: Signer, digest: str | None) -> None:
    """The person's yes. Raises No if it is not given, or if `digest` is not this approval's."""
    target, stands = asked.target, approval_digest(asked.approval)
    again = f"sweepctl approve --stack {target.stack} {signer.options} --approval {stands}"
    if digest is not None:
        if digest != stands:
            raise No(
                f"not signed: {digest} is not the approval that stands in {target.file.shown}. Look at it first",
                [again],
            )
        return
    if not sys.stdin.isatty():
        raise No(
            "there is no terminal to ask at: to sign, give the whole digest of the approval that is shown", [again]
        )
    losing = ", with what is on it lost for good" if asked.given_up else ""
    if not _says_yes(asked, f"sign that {', '.join(asked.names)} may be ended{losing}?", "the name"):
        raise No("not signed; nothing was written")


@dataclass(frozen=True)
class _Records:
    """The evidence, where the revocation is recorded, and the engine's state, as far as they can be read."""

    store: EvidenceStore | None
    state: StackState
    problem: str = ""


def revoke_approvals(target: Target, out: Out) -> int:
    """Records that every approval given until now no longer counts, and removes it from the stack file.

    The record is written first: a running teardown reads it before its next step.
    """
    records = _open(target)
    now = datetime.now(UTC)
    problem, closed = _close_records(target, records, now)
    here = _named(records)
    try:
        for native_id, line in here.items():
            by = who()
            record_decision(
                line.model_copy(update={"native_id": native_id, "stack": target.stack, "by": by, "at": now})
            )
    except SweepstackError as error:
        here, problem = {}, "; ".join(filter(None, (problem, str(error))))
    removed = target.file.write_approval(None) if target.file.path.exists() else False
    following = [f"pulumi up --stack {target.stack}    (locks again)"]
    out.document(
        {
            "stack": target.stack,
            "file": target.file.shown,
            "removed": removed,
            "revoked": not problem,
            "teardown_closed": closed,
            "problem": problem or None,
            "next": following,
        }
    )
    out.line(f"{target.file.shown}: {'the approval is removed' if removed else 'there was no approval'}")
    if not problem:
        out.line("on record as revoked: approvals given until now end nothing any more, not even in a running teardown")
    if closed:
        out.line("the open teardown is closed: the sweep may go on")
    if problem:
        out.line(f"UNKNOWN the revocation could not be recorded: {problem}", style="yellow")
        where = "on another computer " if here else ""
        out.line(
            f"        {where}`pulumi destroy` obeys the approval in the engine's state until `pulumi up` removes it"
        )
    out.next(following)
    return UNSURE if problem else YES


def _open(target: Target) -> _Records:
    try:
        sources = open_sources(target)
        return _Records(sources.store, sources.state, sources.problem)
    except SweepstackError as error:  # the evidence can be found without the backend
        state, problem = StackState(stack=target.stack), str(error)
    try:
        evidence = target.likely_evidence()
        store = EvidenceStore.open(evidence) if evidence else None
        return _Records(store if store and store.marker.stack == target.stack else None, state, problem)
    except EvidenceError as error:
        return _Records(None, state, f"{problem}; {error}")


def _close_records(target: Target, records: _Records, now: datetime) -> tuple[str, bool]:
    """Records the revocation; deletes clearances and closes the open teardown. Only locks, never unlocks."""
    store = records.store
    if store is None:
        return records.problem or "the evidence is not known", False
    try:
        write_revocation(store, _known(target, records.state), at=now, by=who())
        was_open = store.teardown() is not None
        store.write_teardown(None)
        for birth in store.readable("births", Birth)[0]:
            if birth.native_id is not None and birth.ended_at is None:
                store.write_clearance(birth.native_id, None)
        for volume in records.state.volumes:
            if volume.guarded:
                store.write_clearance(volume.native_id, None)
    except EvidenceError as error:
        return str(error), False
    return "", was_open


def _named(records: _Records) -> dict[str, Decision]:
    """A line for this computer for each box and volume that the state or the records name: native id → line."""
    found: dict[str, Decision] = {}

    def add(native_id: str | None, name: str, platform: str, account: str, identity: str, evidence: str) -> None:
        if native_id is not None:
            found[native_id] = Decision(
                what=TAKEN_BACK,
                by="",
                at=datetime.now(UTC),
                reason=REVOKED_ALL,
                platform=platform,
                native_id=native_id,
                box=name,
                account=account,
                identity=identity,
                evidence=evidence,
            )

    for entry in records.state.identities:  # what may follow the sweep's policy
        add(entry.identity, "", "", "", entry.identity, entry.evidence)
    if records.store is not None:
        place = records.store.marker.identity, records.store.objects.uri
        add(place[0], "", "", "", *place)
        with contextlib.suppress(EvidenceError):
            for birth in records.store.readable("births", Birth)[0]:
                add(
                    birth.native_id if birth.ended_at is None else None,
                    birth.box,
                    birth.platform,
                    birth.account,
                    *place,
                )
    for box in records.state.boxes:
        add(box.native_id, box.name, box.adapter, box.account, box.identity, box.evidence)
    for one in records.state.volumes:
        if one.guarded:
            add(one.native_id, one.name, one.adapter, one.account or "", one.identity, one.evidence)
    return found


def _known(target: Target, state: StackState) -> Iterator[Approval]:
    """The approvals that can be found: in the stack file, and in the engine's state."""
    found = [approval_of(target) if target.file.path.exists() else None]
    found += [entry.approval_in_state()[0] for entry in (*state.boxes, *state.gates, *state.volumes)]
    yield from (approval for approval in found if approval is not None)
