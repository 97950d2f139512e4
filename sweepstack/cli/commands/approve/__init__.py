"""`sweepctl approve`: writes a person's approval to end boxes or volumes into the stack file.

A person approves by giving the whole digest of what was shown, or by typing `yes` when asked. There is no `--yes`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sweepstack.cli.commands.approve.boxes import ask_for_boxes
from sweepstack.cli.commands.approve.options import (
    BOX,
    CELL,
    DATA,
    UNCLAIMED,
    ApprovalRequest,
    ApproveOptions,
    InOrder,
    pair_reasons,
)
from sweepstack.cli.commands.approve.sign import signer_of
from sweepstack.cli.commands.approve.volumes import ask_for_volumes
from sweepstack.cli.options import AsJson, Boxes, Expires, Receipt, Sign, Stack, Verb, parse_expires
from sweepstack.cli.output import YES, Out
from sweepstack.cli.prompt import answer
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.operations.sweep.target import Target, approval_of
from sweepstack.teardown.signatures import signed_words

Command = InOrder


def command(
    ctx: typer.Context,
    receipt: Receipt = None,
    box: Boxes = None,
    reason: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Why; of a --box on which nothing was launched.")
    ] = None,
    verb: Verb = "destroy",
    expires: Expires = "72h",
    sign: Sign = False,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Approve ending the named boxes on the ground of one receipt. There is no --yes."""
    target = Target.find(stack)
    return approve(target, chosen(ctx, target, receipt, box, verb, expires, sign), Out(as_json=json))


def chosen(
    ctx: typer.Context,
    target: Target,
    receipt: str | None,
    box: Sequence[str] | None,
    verb: str,
    expires: str,
    sign: bool,
    facts: tuple[str, ...] = (),
) -> ApproveOptions:
    """What was typed, each reason with what it belongs to. Raises Unsure."""
    if verb not in ("destroy", "stop"):
        raise Unsure(f'--verb "{verb}": it is destroy or stop')
    why, boxes = pair_reasons(ctx.meta["typed"]), tuple(dict.fromkeys(box or ()))
    if verb == "stop" and not (boxes or why[DATA]):
        raise Unsure("--verb stop needs --box BOX or data/BOX: a stop is approved box by box")
    return ApproveOptions(
        receipt,
        boxes,
        why[CELL],
        why[DATA],
        why[BOX],
        parse_expires(expires),
        verb,
        unclaimed=why[UNCLAIMED],
        accept_facts=facts,
        signer=signer_of(target.root) if sign else None,
    )


def approve(target: Target, options: ApproveOptions, out: Out) -> int:
    """Exit 0 if the approval is in the stack file, or none is needed. Raises No if it was refused or not given."""
    asked = (ask_for_volumes if target.is_store else ask_for_boxes)(target, options, out)
    if asked is None:
        return YES
    asked.show(out)
    for line in asked.facts.lines():
        out.line(line, style="yellow")
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
    return write_approval(asked, out)


def _ask(asked: ApprovalRequest) -> None:
    """Asks at the terminal. Raises No if there is no terminal, or if the answer is another one."""
    if not sys.stdin.isatty():
        words, command = asked.instead
        raise No(f"there is no terminal to ask at: {words}", [command])
    if not says_yes(asked, asked.question, f"the {asked.kind}'s name"):
        raise No("not approved; nothing was written", [f"sweepctl approve --stack {asked.target.stack}"])


def says_yes(asked: ApprovalRequest, question: str, name: str) -> bool:
    """Whether the person types yes; or the name of the first of what is given up, where something is."""
    expected = asked.given_up[0] if asked.given_up else "yes"
    counts = f"{name} to go on ({expected})" if asked.given_up else "yes to go on"
    return answer(f"{question} Type {counts}: ").lower() == expected


def write_approval(asked: ApprovalRequest, out: Out) -> int:
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
