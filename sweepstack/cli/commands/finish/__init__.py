"""`sweepctl finish`: pulls, verifies, asks for approval, and destroys the sweep."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.cli.commands.approve.sign import signer_of
from sweepstack.cli.commands.finish.box import finish_box
from sweepstack.cli.commands.finish.store import finish_store
from sweepstack.cli.commands.finish.sweep import finish
from sweepstack.cli.options import AcceptFact, AsJson, Expires, Receipt, Sign, SignerName, SigningKey, Stack
from sweepstack.cli.output import Out, Unsure
from sweepstack.cli.target import Target, parse_expires


def command(
    receipt: Receipt = None,
    box: Annotated[
        str | None,
        typer.Option(metavar="BOX", help="End only this box; the others run on.", autocompletion=completion.boxes),
    ] = None,
    expires: Expires = "72h",
    accept_fact: AcceptFact = None,
    sign: Sign = False,
    signing_key: SigningKey = None,
    signer: SignerName = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Pull, verify, approve, `pulumi up`, `pulumi destroy`: prints each command, and stops at the first that fails."""
    out = Out(as_json=json)
    boxes = () if box is None else (box,)
    facts = tuple(dict.fromkeys(accept_fact or ()))
    if (signing_key or signer) and not sign:
        raise Unsure("--signing-key and --signer are for --sign")
    target = Target.find(stack) if box is None else Target.find_sweep(stack)
    who = signer_of(target.root, "--sign", signing_key, signer) if sign else None
    options = ApproveOptions(receipt, boxes, expires=parse_expires(expires), accept_facts=facts, signer=who)
    if box is not None:
        return finish_box(target, options, box, out)
    return (finish_store if target.is_store else finish)(target, options, out)
