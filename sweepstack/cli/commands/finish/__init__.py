"""`sweepctl finish`: pulls, verifies, asks for approval, and destroys the sweep."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.cli.commands.finish.box import finish_box
from sweepstack.cli.commands.finish.store import finish_store
from sweepstack.cli.commands.finish.sweep import finish
from sweepstack.cli.options import AcceptFact, AsJson, Expires, Receipt, Stack
from sweepstack.cli.output import Out
from sweepstack.cli.target import Target, parse_expires


def command(
    receipt: Receipt = None,
    box: Annotated[
        str | None,
        typer.Option(metavar="BOX", help="End only this box; the others run on.", autocompletion=completion.boxes),
    ] = None,
    expires: Expires = "72h",
    accept_fact: AcceptFact = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Pull, verify, approve, `pulumi up`, `pulumi destroy`: prints each command, and stops at the first that fails."""
    out = Out(as_json=json)
    boxes = () if box is None else (box,)
    facts = tuple(dict.fromkeys(accept_fact or ()))
    options = ApproveOptions(receipt, boxes, expires=parse_expires(expires), accept_facts=facts)
    if box is not None:
        return finish_box(Target.find_sweep(stack), options, box, out)
    target = Target.find(stack)
    return (finish_store if target.is_store else finish)(target, options, out)
