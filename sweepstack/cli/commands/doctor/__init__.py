"""`sweepctl doctor`: checks what this machine and a stack need, and says how to fix what is missing.

It only reads, except for one empty file in the backend's folder: it reads that folder's clock from it, and deletes it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.commands.doctor import engine, machine, store
from sweepstack.cli.commands.doctor import sweep as one_sweep
from sweepstack.cli.commands.doctor.finding import Check, Finding, unknown
from sweepstack.cli.commands.doctor.holders import holders
from sweepstack.cli.commands.doctor.smoke import smoke as smoke_run
from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import NO, UNSURE, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.errors import ConfigError, Unsure
from sweepstack.operations.sweep.target import Target, project_root

SECONDS = 60.0
"""The most seconds for all checks; a check without an answer by then is unknown."""


def command(
    box: Annotated[
        str | None,
        typer.Argument(
            metavar="BOX",
            help="Only: which processes beside the cells hold this box's GPUs.",
            autocompletion=completion.boxes,
        ),
    ] = None,
    end: Annotated[
        int | None, typer.Option("--end", metavar="PID", help="End this one: SIGTERM, and SIGKILL after 10 s.")
    ] = None,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="Only: try the job here for a batch or two (job.smoke), as `pulumi up` does."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --smoke: also if it passed with this code and config.")
    ] = False,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Check what this machine, and with --stack one stack, needs. Exit 1: something fails; 2: could not tell."""
    out = Out(as_json=json)
    if (end is not None and not box) or (force and not smoke) or (box and smoke):
        raise Unsure("--end goes with BOX, --force with --smoke, and BOX and --smoke are two questions")
    if box:
        return holders(Target.find_sweep(stack), box, end, out)
    if smoke:
        return smoke_run(Target.find_sweep(stack), force, out)
    return doctor(stack, out)


def doctor(stack: str | None, out: Out) -> int:
    """Exit 0: nothing fails; 1: something does; 2: something could not be told."""
    target = None
    root: Path | None
    try:
        root = project_root(stack)
        target = Target.find(stack) if stack else None
    except ConfigError:
        root = None
    checks: dict[str, Check] = dict(machine.checks()) | dict(engine.checks(root))
    if target is not None:
        checks |= dict((store if target.is_store else one_sweep).checks(target))
    with Progress("looking"):
        found = in_parallel({name: _safely(name, check) for name, check in checks.items()}, SECONDS)
    findings = [
        finding
        for name in checks
        for finding in found.get(name, [unknown(name, f"no answer within {SECONDS:.0f} s", "try again")])
    ]
    counts: Counter[str] = Counter(finding.verdict for finding in findings)
    out.document({"stack": target.stack if target else None, "checks": [vars(one) for one in findings], **counts})
    out.table(("CHECK", "VERDICT", "FOUND"), ((one.name, one.verdict, one.found) for one in findings))
    for one in findings:
        if one.fix and one.verdict != "ok":
            out.line(f"{one.verdict:<6} {one.name}: {one.fix}", style="red" if one.verdict == "fail" else "yellow")
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("ok", "warn", "fail", "unknown") if counts[verdict])
    out.line(said, style="bold")
    missing = next((one.fix for one in findings if one.name == "state" and one.verdict == "warn"), "")
    out.next([missing] if missing and not counts["fail"] else _following(target, root is not None, counts))
    return NO if counts["fail"] else UNSURE if counts["unknown"] else YES


def _following(target: Target | None, in_project: bool, counts: Counter[str]) -> list[str]:
    if counts["fail"]:
        again = f"sweepctl doctor{f' --stack {target.stack}' if target else ''}"
        return [f"fix what fails, then {again}"]
    if target is not None:
        return [f"pulumi preview --stack {target.stack}"]
    return ["sweepctl doctor --stack NAME    (looks at a sweep, too)" if in_project else "cd into a sweepstack project"]


def _safely(name: str, check: Check) -> Check:
    def run() -> list[Finding]:
        try:
            return check()
        except Exception as error:  # a check that fails itself must not hide the others
            return [
                unknown(name, f"{type(error).__name__}: {error}", "look at what it says; SWEEPCTL_DEBUG=1 shows more")
            ]

    return run
