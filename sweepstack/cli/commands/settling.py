"""From sealed cells to nothing that bills: pull, verify, approve, finish."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sweepstack.cli import completion
from sweepstack.cli.app import AsJson, Evidence, Stack, answer, app

Receipt = Annotated[
    str | None, typer.Option(metavar="sha256:…", help="The receipt's whole digest: naming it is your approval.")
]
Expires = Annotated[str, typer.Option(metavar="72h", help="How long the approval holds, 30d at most.")]


class WithOrder(TyperCommand):
    """Keeps the raw arguments: `--reason` belongs to what stands before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = list(args)
        return super().parse_args(ctx, args)


@app.command()
def pull(stack: Stack = None, json: AsJson = False) -> None:
    """Copy sealed cells, journals, and the logs of attempts that failed into the evidence. Resumable."""

    def ask() -> int:
        from sweepstack.cli.commands.pull import pull as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_sweep(stack), Out(as_json=json))

    answer(ask)


@app.command()
def verify(stack: Stack = None, evidence: Evidence = None, json: AsJson = False) -> None:
    """Load every artifact and write the receipt. Exit 0: all verified or waived; 1: not; 2: could not tell."""

    def ask() -> int:
        from sweepstack.cli.commands.verify.receipt import verify as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_to_read(stack, evidence), Out(as_json=json))

    answer(ask)


@app.command(cls=WithOrder)
def approve(
    ctx: typer.Context,
    receipt: Receipt = None,
    box: Annotated[
        list[str] | None,
        typer.Option(metavar="BOX", help="Only this box. Repeatable.", autocompletion=completion.boxes),
    ] = None,
    waive: Annotated[
        list[str] | None,
        typer.Option(metavar="CELL", help="Let go without this cell; needs --reason.", autocompletion=completion.cells),
    ] = None,
    abandon: Annotated[
        list[str] | None,
        typer.Option(metavar="BOX", help="What is on it may be lost; needs --reason.", autocompletion=completion.boxes),
    ] = None,
    waive_unclaimed: Annotated[
        list[str] | None,
        typer.Option(metavar="BOX", help="Let bytes on it that belong to no cell die with it; needs --reason."),
    ] = None,
    reason: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Why; belongs to the waiver or --abandon before it.")
    ] = None,
    verb: Annotated[str, typer.Option(metavar="destroy|stop", help="What the word is for.")] = "destroy",
    expires: Expires = "72h",
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the approval back.")] = False,
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Give a person's word for one receipt and named boxes. There is no --yes."""

    def ask() -> int:
        from sweepstack.cli.commands.approve.options import Words, pair_reasons
        from sweepstack.cli.commands.approve.revoke import revoke as take_back
        from sweepstack.cli.commands.approve.sweep import approve as run
        from sweepstack.cli.output import Out, Unsure
        from sweepstack.cli.target import Target, parse_expires

        target, out = Target.find(stack), Out(as_json=json)
        if revoke:
            if receipt or box or waive or abandon or waive_unclaimed or reason:
                raise Unsure("--revoke takes the whole approval back: it goes with none of the other options")
            return take_back(target, out)
        if verb not in ("destroy", "stop"):
            raise Unsure(f'--verb "{verb}": it is destroy or stop')
        if verb == "stop" and not (box or abandon):
            raise Unsure("--verb stop needs --box BOX or --abandon BOX: a stop is approved box by box")
        why = pair_reasons(ctx.meta["arguments"])
        boxes = tuple(dict.fromkeys(box or ()))
        words = Words(
            receipt, boxes, why.waive, why.abandon, why.boxes, parse_expires(expires), verb, unclaimed=why.unclaimed
        )
        return run(target, words, out)

    answer(ask)


@app.command()
def finish(
    receipt: Receipt = None,
    box: Annotated[
        str | None,
        typer.Option(metavar="BOX", help="End this box early; the others run on.", autocompletion=completion.boxes),
    ] = None,
    expires: Expires = "72h",
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Pull, verify, approve, `pulumi up`, `pulumi destroy`: prints each command, stops at the first no."""

    def ask() -> int:
        from sweepstack.cli.commands.approve.options import Words
        from sweepstack.cli.commands.finish.sweep import finish as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target, parse_expires

        if box is not None:
            from sweepstack.cli.commands.finish.box import finish_box

            words = Words(receipt, (box,), expires=parse_expires(expires))
            return finish_box(Target.find_sweep(stack), words, box, Out(as_json=json))
        return run(Target.find(stack), Words(receipt, expires=parse_expires(expires)), Out(as_json=json))

    answer(ask)
