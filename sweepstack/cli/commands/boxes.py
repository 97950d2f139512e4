"""Boxes: a shell or a command on one, its ports, and a round of tending all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.app import AsJson, ErrorsAsJson, Stack, answer, app

Box = Annotated[str, typer.Argument(metavar="BOX", help="A box's name.", autocompletion=completion.boxes)]


@app.command()
def ssh(box: Box, stack: Stack = None, json: ErrorsAsJson = False) -> None:
    """Open a shell on a box. Its exit code is the shell's; 255: the box could not be reached."""

    def ask() -> int:
        from sweepstack.cli.box_access import visit
        from sweepstack.cli.target import Target

        return visit(Target.find_sweep(stack), box, (), terminal=True)

    answer(ask)


@app.command("exec")
def execute(
    box: Box,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD", help="The command, and its arguments.")],
    stack: Stack = None,
    json: ErrorsAsJson = False,
) -> None:
    """Run a command on a box, in its folder. Exit code: the command's; 255: the box could not be reached."""

    def ask() -> int:
        import sys

        from sweepstack.cli.box_access import visit
        from sweepstack.cli.target import Target

        return visit(Target.find_sweep(stack), box, command, terminal=sys.stdin.isatty() and sys.stdout.isatty())

    answer(ask)


@app.command("trust-host")
def trust_host(
    box: Box,
    fingerprint: Annotated[
        str, typer.Option("--fingerprint", metavar="SHA256:…", help="What you read on the box itself: pins that key.")
    ] = "",
    host: Annotated[
        str,
        typer.Option("--host", metavar="ADDRESS", help="A host of yours that it is on, or is to be on from now on."),
    ] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Compare the SSH host key of a box with the pinned one, and pin another, if you agree."""

    def ask() -> int:
        from sweepstack.cli.commands.trust_host import trust_host as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_sweep(stack), box, fingerprint, Out(as_json=json), host=host)

    answer(ask)


@app.command("confirm-gone")
def confirm_gone(
    box: Box,
    saw: Annotated[str, typer.Option("--saw", metavar="TEXT", help="What the provider's console shows of it.")],
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who saw it; you, by default.")] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="When, as 2026-11-21T14:05+08:00; now, by default.")
    ] = "",
    another: Annotated[
        str,
        typer.Option("--another", metavar="SHA256:…", help="The key of another machine that has its address by now."),
    ] = "",
    never_rented: Annotated[
        bool,
        typer.Option("--never-rented", help="A create whose answer was lost rented nothing, as the console shows."),
    ] = False,
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Say that a box is ended whose bill only a person can end, or was never rented. Refused while it shows."""

    def ask() -> int:
        from sweepstack.cli.commands.confirm_gone.ended import Word
        from sweepstack.cli.commands.confirm_gone.ended import confirm_gone as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        word = Word(box, saw, by, at, another.strip())
        if never_rented:
            from sweepstack.cli.commands.confirm_gone.never_rented import never_rented as none_was

            return none_was(Target.find_sweep(stack), word, Out(as_json=json))
        return run(Target.find_sweep(stack), word, Out(as_json=json))

    answer(ask)


@app.command()
def tend(
    interval: Annotated[str, typer.Option(metavar="60s", help="From the beginning of one round to the next.")] = "60s",
    once: Annotated[bool, typer.Option("--once", help="One round: for cron and CI.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Let `pulumi up` rent again the boxes that are proved gone. Costs money.")
    ] = False,
    timeout: Annotated[str, typer.Option(metavar="72h", help="When to end.")] = "72h",
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Pull, verify and stop what is done, round after round. Never deletes. Exit 0: nothing is left to tend."""

    def ask() -> int:
        from sweepstack.cli.commands.tend.loop import tend as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target, parse_duration

        return run(
            Target.find_sweep(stack),
            parse_duration(interval),
            once,
            replace,
            parse_duration(timeout),
            Out(as_json=json),
        )

    answer(ask)


@app.command()
def forward(
    box: Box,
    port: Annotated[str, typer.Argument(metavar="PORT[:PORT]", help="Here, and on the box where that differs.")],
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Reach a port of a box from this machine."""

    def ask() -> int:
        from sweepstack.cli.box_access import forward as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_sweep(stack), box, port, Out(as_json=json))

    answer(ask)
