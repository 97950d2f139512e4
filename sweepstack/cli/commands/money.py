"""What a sweep costs, and what is checked before it costs anything: ledger, smoke, doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.app import AsJson, Stack, answer, app


@app.command()
def ledger(stack: Stack = None, json: AsJson = False) -> None:
    """Show every box ever rented: hours, rate, USD, why it ended. Exit 2: a part of the bill is not known."""

    def ask() -> int:
        from sweepstack.cli.commands.ledger import ledger as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_sweep(stack), Out(as_json=json))

    answer(ask)


@app.command()
def place(
    next_one: Annotated[bool, typer.Option("--next", help="The offer after the one that is placed now.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show the offers; write nothing.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Take the placement out of the stack file.")] = False,
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Show what the candidates have now, and write the cheapest that fits into the stack file. Exit 1: nothing fits."""

    def ask() -> int:
        from sweepstack.cli.commands.place import place as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_sweep(stack), Out(as_json=json), next_one=next_one, show=show, clear=clear)

    answer(ask)


@app.command()
def audit(
    end: Annotated[
        str | None,
        typer.Option("--end", metavar="PLATFORM:ID", help="End one thing that no state has, after the check. Asks."),
    ] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="With --end and --reason: what is on it may be lost. Kept on record.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="WHY", help="With --abandon: why.")] = "",
    owner_agreed: Annotated[
        str,
        typer.Option("--owner-agreed", metavar="USER@HOST", help="With --end: the owner who holds it, and has agreed."),
    ] = "",
    yes: Annotated[str | None, typer.Option("--yes", metavar="ID", help="With --end: the id once more.")] = None,
    json: AsJson = False,
) -> None:
    """Compare what your accounts hold with what any state knows. Deletes nothing. Exit 1: something bills unknown."""

    def ask() -> int:
        from pathlib import Path

        from sweepstack.cli.output import Out
        from sweepstack.status.engine_call import find_project_root

        root, out = find_project_root(Path.cwd().resolve()), Out(as_json=json)
        if end is not None:
            from sweepstack.cli.commands.audit.end import end as run_end

            return run_end(root, end, out, typed=yes, abandon=abandon, reason=reason, agreed=owner_agreed)
        from sweepstack.cli.commands.audit.accounts import audit as run

        return run(root, out)

    answer(ask)


@app.command()
def smoke(
    force: Annotated[bool, typer.Option("--force", help="Also when it has passed with this code and config.")] = False,
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Run a batch or two of the job here (job.smoke), as `pulumi up` does before it rents. Exit 0: passed."""

    def ask() -> int:
        from sweepstack.cli.commands.smoke import smoke as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_sweep(stack), Out(as_json=json), force=force)

    answer(ask)


@app.command()
def doctor(stack: Stack = None, json: AsJson = False) -> None:
    """Check what this machine, and with --stack one stack, needs. Exit 1: something fails; 2: could not tell."""

    def ask() -> int:
        from sweepstack.cli.commands.doctor import doctor as run
        from sweepstack.cli.output import Out

        return run(stack, Out(as_json=json))

    answer(ask)
