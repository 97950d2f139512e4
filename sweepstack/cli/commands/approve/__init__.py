"""`sweepctl approve`: writes a person's approval to end boxes or volumes into the stack file."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sweepstack.cli import completion
from sweepstack.cli.commands.approve.cosign import cosign_store, cosign_sweep
from sweepstack.cli.commands.approve.options import ApproveOptions, pair_reasons
from sweepstack.cli.commands.approve.revoke import revoke as take_back
from sweepstack.cli.commands.approve.sign import signer_of
from sweepstack.cli.commands.approve.store import approve_store
from sweepstack.cli.commands.approve.sweep import approve
from sweepstack.cli.options import AcceptFact, AsJson, Expires, Receipt, Sign, SignerName, SigningKey, Stack
from sweepstack.cli.output import Out, Unsure
from sweepstack.cli.target import Target, parse_expires


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
    if revoke:
        if receipt or box or waive or abandon or waive_unclaimed or reason or accept_fact or sign or cosign:
            raise Unsure("--revoke takes the whole approval back: use it without other options")
        return take_back(target, out)
    if (signing_key or signer) and not (sign or cosign):
        raise Unsure("--signing-key and --signer are for --sign and --cosign")
    if approval and not cosign:
        raise Unsure("--approval is for --cosign; --receipt names what a new approval stands on")
    if cosign:
        if (
            receipt
            or box
            or waive
            or abandon
            or waive_unclaimed
            or reason
            or accept_fact
            or sign
            or (verb, expires) != ("destroy", "72h")
        ):
            raise Unsure("--cosign signs the approval as it stands: use it without options that make another one")
        who = signer_of(target.root, "--cosign", signing_key, signer)
        return (cosign_store if target.is_store else cosign_sweep)(target, who, approval, out)
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
    return (approve_store if target.is_store else approve)(target, options, out)
