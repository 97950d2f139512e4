"""Looking at a sweep: new, status, wait, logs."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.app import AsJson, Evidence, Stack, answer, app
from sweepstack.cli.early_export import AsksState


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and -.")],
    store: Annotated[bool, typer.Option("--store", help="For volumes that outlive sweeps.")] = False,
    json: AsJson = False,
) -> None:
    """Write a stack file to start from: a sweep, or with --store the volumes that several sweeps use."""

    def ask() -> int:
        from sweepstack.cli.commands.new import new as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find(name), Out(as_json=json), store=store)

    answer(ask)


@app.command(cls=AsksState)
def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(metavar="5s", help="With --watch: how often.")] = "5s",
    timeout: Annotated[str, typer.Option(metavar="12h", help="With --watch: when to stop.")] = "24h",
    stack: Stack = None,
    json: AsJson = False,
) -> None:
    """Show cells, boxes, gates and cost. Exit 1: something runs that the state doesn't know; 2: could not tell."""

    def ask() -> int:
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target, parse_duration

        target, out = (Target.find_sweep if watch else Target.find)(stack), Out(as_json=json)
        if watch:
            from sweepstack.cli.commands.status.watch import watch as follow

            return follow(target, parse_duration(interval), parse_duration(timeout), out)
        from sweepstack.status.engine_state import Export

        export = Export(target.stack, target.root, begun=context.obj)
        from sweepstack.cli.commands.status.sweep import status as run

        return run(target, out, export)

    answer(ask)


@app.command()
def patrol(stack: Stack = None, json: AsJson = False) -> None:
    """One probe of all boxes, a line each, for cron. Exit 0: healthy or cleanly done; 1: look at it; 2: unreachable."""

    def ask() -> int:
        from sweepstack.cli.commands.patrol import patrol as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_sweep(stack), Out(as_json=json))

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

        from sweepstack.cli.commands.wait import What
        from sweepstack.cli.commands.wait import wait as run
        from sweepstack.cli.output import Out, Unsure
        from sweepstack.cli.target import Target, parse_duration

        for one in get_args(What):
            if what == one:
                return run(Target.find_sweep(stack), one, parse_duration(timeout), Out(as_json=json))
        raise Unsure(f'--for "{what}": it is done, verified or first-step')

    answer(ask)


@app.command()
def logs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CELL", help="A cell's name; a box's with the two below.", autocompletion=completion.cells_or_boxes
        ),
    ] = None,
    setup: Annotated[bool, typer.Option("--setup", help="What the set-up step of a box printed.")] = False,
    runner: Annotated[bool, typer.Option("--runner", help="What the runner of a box says of itself.")] = False,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on while it grows.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Another attempt than the last.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, metavar="N", help="Only the last N lines.")] = None,
    timeout: Annotated[str, typer.Option(metavar="12h", help="When to stop following.")] = "24h",
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> None:
    """Print what a cell printed; -f goes on through restarts, outages and new attempts. Exit 0: printed, or sealed."""

    def ask() -> int:
        from sweepstack.cli.commands.logs.show import logs, runner_log, setup_log
        from sweepstack.cli.output import Out, Unsure
        from sweepstack.cli.target import Target, parse_duration

        if follow and json:
            raise Unsure("--json prints one document, and -f never ends: use one of them")
        if setup and runner:
            raise Unsure("--setup and --runner are two logs: use one of them")
        if attempt and (setup or runner):
            raise Unsure("--attempt is for the log of a cell")
        until = parse_duration(timeout) if follow else None
        target, out = Target.find_to_read(stack, evidence), Out(as_json=json)
        if setup or runner:
            return (setup_log if setup else runner_log)(target, name, tail, until, out)
        if name is None:
            raise Unsure("whose log? Name a cell, or use --setup or --runner")
        return logs(target, name, attempt, tail, until, out)

    answer(ask)


@app.command()
def curves(
    cells: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CELL]...", help="Names or patterns; none: what runs.", autocompletion=completion.cells
        ),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Any key of the metrics file. Repeatable.")
    ] = None,
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> None:
    """Draw a metric of cells over its x. Exit 1: a cell that was named has no curve yet."""

    def ask() -> int:
        from sweepstack.cli.commands.curves import curves as run
        from sweepstack.cli.output import Out
        from sweepstack.cli.target import Target

        return run(Target.find_to_read(stack, evidence), cells or (), metric or (), Out(as_json=json))

    answer(ask)


@app.command()
def results(
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS", help="Average over this axis (default: seed); none: a row a cell."),
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this value. Repeatable.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also what is not verified; it is marked.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="For a spreadsheet.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="For a paper or a pull request.")] = False,
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> None:
    """One table over all cells: axes, values, mean ± std over seeds. Exit 0: no cell is missing; 1: some are."""

    def ask() -> int:
        from sweepstack.cli.commands.results import Style
        from sweepstack.cli.commands.results import results as run
        from sweepstack.cli.output import Out, Unsure
        from sweepstack.cli.target import Target

        if sum((csv, markdown, json)) > 1:
            raise Unsure("--csv, --markdown and --json are three ways to write one table: use one of them")
        style: Style = "csv" if csv else "markdown" if markdown else "table"
        return run(Target.find_to_read(stack, evidence), over or (), metric or (), all_, style, Out(as_json=json))

    answer(ask)
