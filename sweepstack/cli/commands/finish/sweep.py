"""`sweepctl finish`: pull, verify, approve, `pulumi up`, `pulumi destroy`, check that nothing bills.

Prints each command that it runs, asks once, and stops at the first that fails. The engine runs with `--yes`: the person
has just approved the same, and a stack file with another roster than the receipt is refused before.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from sweepstack.cli.accepted_facts import NoProfile
from sweepstack.cli.collect import look, unrented
from sweepstack.cli.commands.approve import sweep as approving
from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.cli.commands.confirm_gone import proved
from sweepstack.cli.commands.pull import fetch as pulling
from sweepstack.cli.commands.verify import receipt as verifying
from sweepstack.cli.engine_mend import require_engine
from sweepstack.cli.output import NO, UNSURE, YES, No, Out, aside, following, keep_for_error
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer
from sweepstack.cli.sources import gives_up, open_sources
from sweepstack.cli.target import Target
from sweepstack.core import schema
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.status.compose import compose
from sweepstack.status.engine.call import EngineCall, find_engine
from sweepstack.status.snapshot import BoxSnapshot


def finish(target: Target, options: ApproveOptions, out: Out) -> int:
    """Exit 0 only if the records and the platforms say that nothing bills any more."""
    stack, steps = target.stack, Steps(target.stack, out)
    step, quiet = steps.take, steps.quiet
    with Progress("looking"):
        sources = open_sources(target)
        require_engine(sources)
        snapshot = look(sources)
    if not snapshot.box_snapshots and snapshot.births:  # boxes were rented, and none is left to finish
        for box in snapshot.unclosed:
            with contextlib.suppress(No):  # what is not proved gone stays open: the last look says so
                step(f"sweepctl confirm-gone --stack {stack} {box}", partial(_closed, target, box, quiet))
        return _last_look(target, out, steps.done, sources.evidence)
    try:
        if not _cleared(target):
            if _approved(target):
                _rent_nothing(target)
                ask_once(target)
            else:
                without_profile = accept_facts(target, options, snapshot.box_snapshots)
                step(f"sweepctl pull --stack {stack}", lambda: pulling.pull(open_sources(target), quiet))
                step(f"sweepctl verify --stack {stack}", lambda: verifying.verify(open_sources(target), quiet))
                if without_profile:
                    raise without_profile
                _rent_nothing(target)
                step(spelled(stack, options), lambda: approving.approve(target, options, quiet))
            step(
                f"pulumi up --stack {stack} --yes",
                lambda: engine(target, "up", out, gives_up(sources, "where no up goes through")),
            )
            if not _cleared(target):
                raise No("`pulumi up` went through, and a box is still locked", [f"sweepctl status --stack {stack}"])
        else:
            ask_once(target)
        step(f"pulumi destroy --stack {stack} --yes", lambda: engine(target, "destroy", out))
    except Stop as stop:
        return stop.code
    return _last_look(target, out, steps.done, sources.evidence)


class Steps:
    """Runs the commands of one `finish`, and prints each before it runs. `quiet`: takes their own answers."""

    def __init__(self, stack: str, out: Out) -> None:
        self.done: list[dict[str, object]] = []
        keep_for_error(steps=self.done)
        self.quiet = Silent() if out.as_json else Out(as_json=False)
        self._stack, self._out = stack, out

    def take(self, command: str, run: Callable[[], int]) -> None:
        """Runs one command. Raises Stop if it fails."""
        print(f"$ {command}", file=sys.stderr if self._out.as_json else sys.stdout, flush=True)
        code = run()
        self.done.append({"command": command, "exit": code})
        if code != YES:
            self._out.document({"stack": self._stack, "finished": False, "steps": self.done})
            raise Stop(code)


class Stop(SweepstackError):
    """A step failed, and has said why."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


class Silent(Out):
    """Prints nothing: for the steps of a command that prints one document at its end."""

    def __init__(self) -> None:
        super().__init__(as_json=True)

    def document(self, value: object) -> None:
        """Nothing."""


def engine(target: Target, verb: str, out: Out, otherwise: Sequence[str] = ()) -> int:
    """Runs the engine. Its `--yes` is no approval: the boxes refuse to end without one. `otherwise`: further commands
    to show if it fails."""
    command = [find_engine(), verb, "--stack", target.stack, "--yes"]
    if not sys.stdin.isatty():
        command += ["--non-interactive"]
    stdout = sys.stderr if out.as_json else None
    code = subprocess.run(command, cwd=target.root, stdout=stdout, check=False).returncode
    if code != 0:
        aside(*following([*_update(target), f"sweepctl status --stack {target.stack}", *otherwise]))
    return YES if code == 0 else NO


def _update(target: Target) -> list[str]:
    """The update of this checkout, where a newer sweepstack wrote the state: until then no command of the engine works,
    none that gives up either. What the engine showed went to the terminal, so it is asked once more, and only reads."""
    try:
        with Progress("asking the engine why"):
            call = EngineCall([find_engine(), "refresh", "--preview-only", "--stack", target.stack], target.root)
            _, out, complaint = call.answer()
    except SweepstackError:
        return []
    said = " ".join(f"{out.decode('utf-8', 'replace')} {complaint}".split())
    return [f"{schema.UPDATE_COMMAND}    (a newer sweepstack wrote the state)"] if schema.UPDATE in said else []


def ask_once(target: Target) -> None:
    """Asks at a terminal before a destroy that was approved earlier; elsewhere that approval is enough."""
    if not sys.stdin.isatty():
        return
    if answer(f"everything is approved. Destroy {target.stack} now? Type yes to go on: ").lower() != "yes":
        raise No("nothing was destroyed", [f"sweepctl finish --stack {target.stack}"])


def _cleared(target: Target) -> bool:
    """Whether every box of the state may end by the approval in the state."""
    with Progress("looking"):
        snapshot = look(open_sources(target))
    return bool(snapshot.box_snapshots) and all(box_snapshot.verdict.allowed for box_snapshot in snapshot.box_snapshots)


def _approved(target: Target) -> bool:
    """Whether every box may end by the approval in the state or in the stack file."""
    with Progress("looking"):
        snapshot = look(open_sources(target))
    if not snapshot.box_snapshots:
        raise No("there is no box in the state: nothing to finish", [f"sweepctl status --stack {target.stack}"])
    return all(
        box_snapshot.verdict.allowed or (box_snapshot.proposed is not None and box_snapshot.proposed.allowed)
        for box_snapshot in snapshot.box_snapshots
    )


def _rent_nothing(target: Target) -> None:
    """Raises No if the `pulumi up` of the finish would rent a box, which would then be ended at once."""
    with Progress("looking"):
        names = unrented(target, look(open_sources(target)))
    if names:
        wants = ", ".join(f"boxes.{name}.want" for name in names)
        raise No(
            f"{target.file.shown} wants {', '.join(names)} running, and no such box runs: the `pulumi up` of this "
            "finish would rent it. Nothing was changed",
            [f"sweepctl finish --stack {target.stack}    (after {wants} is set to gone in {target.file.shown})"],
        )


def accept_facts(target: Target, options: ApproveOptions, box_snapshots: Sequence[BoxSnapshot]) -> NoProfile | None:
    """Writes the old facts that the person accepts, before anything is pulled: another step may fail, and the next
    `finish` needs no option then. Raises No if one is not accepted.

    Returns the error where a profile does not hold, to be raised before the approval: what lies on the boxes is copied
    and verified without it, so that a person who then gives a box up loses less."""
    there = [box_snapshot for box_snapshot in box_snapshots if not box_snapshot.gone]
    try:
        approving.facts_relied_on(target, options, there, spelled(target.stack, options, "finish")).write(target)
    except NoProfile as error:
        return error
    return None


def spelled(stack: str, options: ApproveOptions, verb: str = "approve") -> str:
    """The command as a person would type it."""
    words = [f"sweepctl {verb} --stack {stack}", *([f"--receipt {options.receipt}"] if options.receipt else [])]
    words += [f"--box {name}" for name in options.boxes]
    return " ".join([*words, *(f"--accept-fact {name}" for name in options.accept_facts)]) + options.signing


def _closed(target: Target, box: str, out: Out) -> int:
    sources = open_sources(target)
    return proved.close(target, sources, proved.open_records(sources, box), out)


def _last_look(target: Target, out: Out, done: list[dict[str, object]], evidence: str | None) -> int:
    """Asks the records and the platforms whether something bills: the engine's exit code is no proof.

    `evidence`: where the records were before the destroy, for a stack without its file: the state no longer names them.
    """
    with Progress("looking"):
        sources = open_sources(target)
        if sources.evidence is None and evidence is not None:
            with contextlib.suppress(EvidenceError):
                sources = replace(sources, evidence=evidence, store=EvidenceStore.open(evidence), problem="")
        view = compose(look(sources))
    words = {"nothing": "nothing bills any more", "yes": "something still bills", "unknown": "what bills is not known"}
    out.document({"stack": target.stack, "finished": view.bills == "nothing", "bills": view.bills, "steps": done})
    out.line(f"{words[view.bills]}; ${view.meter.so_far:.2f} in all; the evidence stays at {sources.evidence}")
    if view.bills == "nothing":
        out.line(f"the stack may stay; `pulumi stack rm {target.stack} --preserve-config` takes it away, not its file")
        out.next([f"sweepctl results --stack {target.stack}"])
    else:
        out.next([f"sweepctl status --stack {target.stack}"])
    return {"nothing": YES, "yes": NO, "unknown": UNSURE}[view.bills]
