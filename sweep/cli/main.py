"""`sweepctl`: what Pulumi has no verb for. Each command imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

app = typer.Typer(
    name="sweepctl",
    help="Runs beside `pulumi`: where a sweep is, what it left behind, and a person's word before anything is ended.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Stack = Annotated[
    str | None, typer.Option("--stack", "-s", envvar="PULUMI_STACK", help="The stack, as in `pulumi --stack`.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for programs.")]
Receipt = Annotated[
    str | None, typer.Option(metavar="sha256:…", help="The receipt's whole digest: naming it is a person's word.")
]
Expires = Annotated[str, typer.Option(metavar="72h", help="How long the approval holds.")]


class WithOrder(TyperCommand):
    """Keeps the raw arguments: `--reason` belongs to what stands before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = list(args)
        return super().parse_args(ctx, args)


def answer(ask: Callable[[], int]) -> None:
    """Runs one command. Every error is one clear message; what nobody foresaw, too. Exit codes: see `output`."""
    from sweep.cli.output import NO, UNSURE, No, Unsure, complain
    from sweep.errors import SweepstackError

    code = UNSURE
    try:
        code = ask()
    except No as error:
        complain(str(error), error.next)
        code = UNSURE if isinstance(error, Unsure) else NO
    except SweepstackError as error:
        complain(str(error))
    except KeyboardInterrupt:
        complain("interrupted; nothing is half done: run it again")
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has left: no second complaint
        code = UNSURE
    except Exception as error:
        if os.environ.get("SWEEPCTL_DEBUG"):
            raise
        complain(
            f"{type(error).__name__}: {error}\nthis is a mistake in sweepctl, and the answer is not known; "
            "SWEEPCTL_DEBUG=1 shows where it happened"
        )
    raise typer.Exit(code)


@app.command()
def new(name: Annotated[str, typer.Argument(help="Lower-case letters, digits and -.")], json: AsJson = False) -> None:
    """Write a stack file to start from."""

    def ask() -> int:
        from sweep.cli.new import new as run
        from sweep.cli.output import Out
        from sweep.cli.target import Target

        return run(Target.find(name), Out(as_json=json))

    answer(ask)


@app.command()
def status(stack: Stack = None, json: AsJson = False) -> None:
    """Show cells, boxes, gates and cost. Exit 1: something runs that the state doesn't know; 2: could not tell."""

    def ask() -> int:
        from sweep.cli.output import Out
        from sweep.cli.status import status as run
        from sweep.cli.target import Target

        return run(Target.find(stack), Out(as_json=json))

    answer(ask)


@app.command()
def wait(
    what: Annotated[str, typer.Option("--for", metavar="done|verified|first-step")] = "done",
    timeout: Annotated[str, typer.Option(metavar="12h", help="When to stop waiting.")] = "24h",
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Wait until all cells are done, or verified, or one has made a step. Exit 0 only for yes."""

    def ask() -> int:
        from typing import get_args

        from sweep.cli.output import Out, Unsure
        from sweep.cli.target import Target, parse_duration
        from sweep.cli.wait import What
        from sweep.cli.wait import wait as run

        for one in get_args(What):
            if what == one:
                return run(Target.find(stack), one, parse_duration(timeout), Out(as_json=json))
        raise Unsure(f'--for "{what}": it is done, verified or first-step')

    answer(ask)


@app.command()
def logs(
    cell: Annotated[str, typer.Argument(help="A cell's name.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on while the cell runs.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Another attempt than the last.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, metavar="N", help="Only the last N lines.")] = None,
    timeout: Annotated[str, typer.Option(metavar="12h", help="When to stop following.")] = "24h",
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Print what a cell printed."""

    def ask() -> int:
        from sweep.cli.logs import logs as run
        from sweep.cli.output import Out, Unsure
        from sweep.cli.target import Target, parse_duration

        if follow and json:
            raise Unsure("--json prints one document, and -f never ends: use one of them")
        until = parse_duration(timeout) if follow else None
        return run(Target.find(stack), cell, attempt, tail, until, Out(as_json=json))

    answer(ask)


@app.command()
def pull(stack: Stack = None, json: AsJson = False) -> None:
    """Copy every sealed cell, and the journals, into the evidence. Resumable."""

    def ask() -> int:
        from sweep.cli.output import Out
        from sweep.cli.pull import pull as run
        from sweep.cli.target import Target

        return run(Target.find(stack), Out(as_json=json))

    answer(ask)


@app.command()
def verify(stack: Stack = None, json: AsJson = False) -> None:
    """Load every artifact and write the receipt. Exit 0: all verified or waived; 1: not; 2: could not tell."""

    def ask() -> int:
        from sweep.cli.output import Out
        from sweep.cli.target import Target
        from sweep.cli.verify import verify as run

        return run(Target.find(stack), Out(as_json=json))

    answer(ask)


@app.command(cls=WithOrder)
def approve(
    ctx: typer.Context,
    receipt: Receipt = None,
    box: Annotated[list[str] | None, typer.Option(metavar="BOX", help="Only this box. Repeatable.")] = None,
    waive: Annotated[
        list[str] | None, typer.Option(metavar="CELL", help="Let go without this cell; needs --reason.")
    ] = None,
    abandon: Annotated[
        list[str] | None, typer.Option(metavar="BOX", help="What is on it may be lost; needs --reason.")
    ] = None,
    reason: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Why; belongs to the --waive or --abandon before it.")
    ] = None,
    expires: Expires = "72h",
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the approval back.")] = False,
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Give a person's word for one receipt and named boxes. There is no --yes."""

    def ask() -> int:
        from sweep.cli.approve import approve as run
        from sweep.cli.approve import revoke as take_back
        from sweep.cli.output import Out, Unsure
        from sweep.cli.target import Target, parse_duration
        from sweep.cli.words import Words, pair_reasons

        target, out = Target.find(stack), Out(as_json=json)
        if revoke:
            if receipt or box or waive or abandon or reason:
                raise Unsure("--revoke takes the whole approval back: it goes with none of the other options")
            return take_back(target, out)
        waived, abandoned, explained = pair_reasons(ctx.meta["arguments"])
        boxes = tuple(dict.fromkeys(box or ()))
        words = Words(receipt, boxes, waived, abandoned, explained, parse_duration(expires))
        return run(target, words, out)

    answer(ask)


@app.command()
def finish(receipt: Receipt = None, expires: Expires = "72h", stack: Stack = None, json: AsJson = False) -> None:
    """Pull, verify, approve, `pulumi up`, `pulumi destroy`: prints each command, stops at the first no."""

    def ask() -> int:
        from sweep.cli.finish import finish as run
        from sweep.cli.output import Out
        from sweep.cli.target import Target, parse_duration
        from sweep.cli.words import Words

        return run(Target.find(stack), Words(receipt, expires=parse_duration(expires)), Out(as_json=json))

    answer(ask)


def main() -> None:
    """The entry point of the `sweepctl` script."""
    app()
