"""`sweepctl approve`: writes a person's approval to end boxes or volumes into the stack file.

A person approves by giving the whole digest of what was shown, or by typing `yes` when asked. There is no `--yes`.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sweepstack.cli import completion
from sweepstack.cli.commands.approve.boxes import ask_for_boxes
from sweepstack.cli.commands.approve.options import ApproveOptions, Asked, pair_reasons
from sweepstack.cli.commands.approve.sign import signer_of
from sweepstack.cli.commands.approve.volumes import ask_for_volumes
from sweepstack.cli.options import AcceptFact, AsJson, Expires, Receipt, Sign, SignerName, SigningKey, Stack
from sweepstack.cli.output import YES, No, Out, Unsure
from sweepstack.cli.prompt import answer
from sweepstack.cli.target import Target, approval_of, parse_expires
from sweepstack.teardown.signatures import signed_words


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
    sign: Sign = False,
    signing_key: SigningKey = None,
    signer: SignerName = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Approve ending the named boxes on the ground of one receipt. There is no --yes."""
    target, out = Target.find(stack), Out(as_json=json)
    if (signing_key or signer) and not sign:
        raise Unsure("--signing-key and --signer are for --sign")
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
    return write_approval(asked, out)


def _ask(asked: Asked) -> None:
    """Asks at the terminal. Raises No if there is no terminal, or if the answer is another one."""
    if not sys.stdin.isatty():
        words, command = asked.instead
        raise No(f"there is no terminal to ask at: {words}", [command])
    if not says_yes(asked, asked.question, f"the {asked.kind}'s name"):
        raise No("not approved; nothing was written", [f"sweepctl approve --stack {asked.target.stack}"])


def says_yes(asked: Asked, question: str, name: str) -> bool:
    """Whether the person types yes; or the name of the first of what is given up, where something is."""
    expected = asked.given_up[0] if asked.given_up else "yes"
    counts = f"{name} to go on ({expected})" if asked.given_up else "yes to go on"
    return answer(f"{question} Type {counts}: ").lower() == expected


def write_approval(asked: Asked, out: Out) -> int:
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
