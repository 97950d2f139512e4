"""`sweepctl cosign`: one more person signs the approval that stands in the stack file."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from sweepstack.cli.commands.approve import says_yes, write_approval
from sweepstack.cli.commands.approve.boxes import boxes_to_sign
from sweepstack.cli.commands.approve.options import ApprovalRequest
from sweepstack.cli.commands.approve.sign import Signer, signer_of
from sweepstack.cli.commands.approve.volumes import volumes_to_sign
from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import Out
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.onbox.common.errors import No
from sweepstack.operations.sweep.target import Target
from sweepstack.teardown.revocation import approval_digest
from sweepstack.teardown.signatures import verified_signers


def command(
    approval: Annotated[
        str | None,
        typer.Argument(metavar="[sha256:…]", help="The whole digest of the approval: naming it is your yes."),
    ] = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Sign the approval in the stack file, as one more person. There is no --yes."""
    target = Target.find(stack)
    return cosign_approval(target, signer_of(target.root), approval, Out(as_json=json))


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
    _ask_to_sign(asked, digest)
    asked.approval = signer.sign(approval, asked.sweep())
    _require_unchanged(target, approval)
    up = f"pulumi up --stack {target.stack}    (with this stack file)"
    asked.following = lambda: [up, f"pulumi destroy --stack {target.stack}"]
    return write_approval(asked, out)


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
            "Is that you? Then SWEEPSTACK_SIGNER=NAME names you"
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
            [f"sweepctl cosign --stack {target.stack}    (shows it as it stands now)"],
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


def _ask_to_sign(asked: ApprovalRequest, digest: str | None) -> None:
    """The person's yes. Raises No if it is not given, or if `digest` is not this approval's."""
    target, stands = asked.target, approval_digest(asked.approval)
    again = f"sweepctl cosign --stack {target.stack} {stands}"
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
    if not says_yes(asked, f"sign that {', '.join(asked.names)} may be ended{losing}?", "the name"):
        raise No("not signed; nothing was written")
