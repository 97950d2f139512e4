"""`sweepctl finish`: pulls, verifies, asks for approval, destroys, and checks that nothing bills.

That is `pulumi up` and `pulumi destroy` after `approve`.

Prints each command that it runs, asks once, and stops at the first that fails. The engine runs with `--yes`: the person
has just approved the same, and a stack file with another roster than the receipt is refused before.

With `--box BOX` the others run on: the same steps, but one `pulumi up` ends the box. It brings `boxes.BOX.want: gone`
and the approval from the stack file, as a pull request would. Cells of the box that did not start move to those that
stay. Of a stack of volumes: approve, `pulumi up`, `pulumi destroy`, last check.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.commands.approve import approve
from sweepstack.cli.commands.approve.boxes import facts_relied_on
from sweepstack.cli.commands.approve.options import ApproveOptions, facts_alone
from sweepstack.cli.commands.approve.sign import signer_of
from sweepstack.cli.commands.approve.volumes import volume_facts_relied_on
from sweepstack.cli.commands.confirm import gone
from sweepstack.cli.commands.pull import fetch as pulling
from sweepstack.cli.commands.verify import receipt as verifying
from sweepstack.cli.options import AsJson, Expires, Sign, Stack, parse_expires
from sweepstack.cli.output import NO, UNSURE, YES, Out, aside, following, keep_for_error
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer
from sweepstack.core import schema
from sweepstack.core.suggest import did_you_mean
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, No, PlatformError, SweepstackError
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.observe import look_up
from sweepstack.operations.sweep.accepted_facts import NoProfile
from sweepstack.operations.sweep.collect import take_snapshot, unrented
from sweepstack.operations.sweep.engine_mend import require_engine
from sweepstack.operations.sweep.sources import Sources, gives_up, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.volumes.end_check import VolumeContext
from sweepstack.operations.volumes.mounting_sweeps import survey
from sweepstack.operations.volumes.volumes_now import guarded, holding
from sweepstack.status.compose import compose
from sweepstack.status.engine.call import EngineCall, find_engine
from sweepstack.status.engine.state import VolumeEntry
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.status.ways_on import first_hung


def command(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[sha256:…|fact/NAME]",
            help="The receipt's whole digest: naming it is your approval. fact/NAME: rely on this old fact of the "
            "platform's profile, as `sweepctl profile check --old` names it.",
        ),
    ] = None,
    box: Annotated[
        str | None,
        typer.Option(metavar="BOX", help="End only this box; the others run on.", autocompletion=completion.boxes),
    ] = None,
    expires: Expires = "72h",
    sign: Sign = False,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Pull, verify, approve, `pulumi up` and `pulumi destroy`. Prints each; stops at the first that fails."""
    out = Out(as_json=json)
    boxes = () if box is None else (box,)
    facts, receipt = facts_alone(what or ())
    target = Target.find(stack) if box is None else Target.find_sweep(stack)
    who = signer_of(target.root) if sign else None
    options = ApproveOptions(receipt, boxes, expires=parse_expires(expires), accept_facts=facts, signer=who)
    if box is not None:
        return finish_box(target, options, box, out)
    return finish_all(target, options, out)


def finish_all(target: Target, options: ApproveOptions, out: Out) -> int:
    """Exit 0 only if the records and the platforms say that nothing of the stack is left that bills."""
    stack, steps = target.stack, Steps(target.stack, out)
    with Progress("looking"):
        sources = open_sources(target)
        require_engine(sources)
    left = _left(sources, steps)
    try:
        if left and _cleared(target):
            ask_once(target)
        elif left:
            if _approved(sources):
                _rent_nothing(target)
                ask_once(target)
            else:
                _prepare(sources, left, options, steps)
                steps.take(options.spelled(stack), lambda: approve(target, options, steps.quiet))
            no_up = () if target.is_store else gives_up(sources, "where no up goes through")
            steps.take(f"pulumi up --stack {stack} --yes", lambda: run_engine(target, "up", out, no_up))
            if not target.is_store and not _cleared(target):  # of volumes the destroy asks every stack again
                raise No("`pulumi up` went through, and a box is still locked", [f"sweepctl status --stack {stack}"])
        if left:
            steps.take(f"pulumi destroy --stack {stack} --yes", lambda: run_engine(target, "destroy", out))
    except Stop as stop:
        return stop.code
    look = _last_look_at_volumes if target.is_store else _last_look
    return look(target, out, steps.done, sources.evidence)


def _left(sources: Sources, steps: Steps) -> Snapshot | list[VolumeEntry] | None:
    """What is left to finish; None where boxes were rented and none is: their records are closed then. Raises No for
    volumes that are not there."""
    target, stack = sources.target, sources.target.stack
    if target.is_store:
        if not (entries := guarded(sources)):
            why = f"there is no volume in the state of {stack}: nothing to finish"
            raise No(why, [f"sweepctl status --stack {stack}"])
        return entries
    with Progress("looking"):
        snapshot = take_snapshot(sources)
    if snapshot.box_snapshots or not snapshot.births:
        return snapshot
    for box in snapshot.unclosed:
        with contextlib.suppress(No):  # what is not proved gone stays open: the last look says so
            steps.take(f"sweepctl confirm gone --stack {stack} {box}", partial(_closed, target, box, steps.quiet))
    return None


def _prepare(sources: Sources, left: Snapshot | list[VolumeEntry], options: ApproveOptions, steps: Steps) -> None:
    """What comes before an approval: the old facts that it relies on, and of a sweep all copies, verified."""
    target, stack, quiet = sources.target, sources.target.stack, steps.quiet
    if not isinstance(left, Snapshot):
        volumes = [VolumeContext.of_entry(entry) for entry in left]
        volume_facts_relied_on(target, options, volumes, "finish").write(target)
        return
    without_profile = ask_for_facts(target, options, left.box_snapshots)
    steps.take(f"sweepctl pull --stack {stack}", lambda: pulling.pull(open_sources(target), quiet))
    steps.take(f"sweepctl verify --stack {stack}", lambda: verifying.verify(open_sources(target), quiet))
    if without_profile:
        raise without_profile
    _rent_nothing(target)


class Steps:
    """Runs the commands of one `finish`, and prints each before it runs. `quiet`: takes their own answers."""

    def __init__(self, stack: str, out: Out) -> None:
        self.done: list[dict[str, object]] = []
        keep_for_error(steps=self.done)
        self.quiet = SilentOut() if out.as_json else Out(as_json=False)
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


class SilentOut(Out):
    """Prints nothing: for the steps of a command that prints one document at its end."""

    def __init__(self) -> None:
        super().__init__(as_json=True)

    def document(self, value: object) -> None:
        """Nothing."""


def run_engine(target: Target, verb: str, out: Out, otherwise: Sequence[str] = ()) -> int:
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
    """Whether every box of the state may end by the approval in the state. Never of volumes: every stack is asked."""
    if target.is_store:
        return False
    with Progress("looking"):
        snapshot = take_snapshot(open_sources(target))
    return bool(snapshot.box_snapshots) and all(box_snapshot.verdict.allowed for box_snapshot in snapshot.box_snapshots)


def _approved(sources: Sources) -> bool:
    """Whether all of it may end by the approval in the state or in the stack file. Of volumes by the one in the file,
    and by what all stacks of the backend use."""
    target = sources.target
    if target.is_store:
        if not target.file.path.exists() or target.file.approval() is None:
            return False
        with Progress("reading from every stack which sweeps mounted them"):
            held = holding(sources, lambda ids: survey(target.root, sources.store, ids, but=target.stack))
        return all(one.verdict.allowed for one in held.volumes)
    with Progress("looking"):
        snapshot = take_snapshot(open_sources(target))
    if not snapshot.box_snapshots:
        raise No("there is no box in the state: nothing to finish", [f"sweepctl status --stack {target.stack}"])
    return all(
        box_snapshot.verdict.allowed or (box_snapshot.proposed is not None and box_snapshot.proposed.allowed)
        for box_snapshot in snapshot.box_snapshots
    )


def _rent_nothing(target: Target) -> None:
    """Raises No if the `pulumi up` of the finish would rent a box, which would then be ended at once."""
    if target.is_store:
        return
    with Progress("looking"):
        names = unrented(target, take_snapshot(open_sources(target)))
    if names:
        wants = ", ".join(f"boxes.{name}.want" for name in names)
        raise No(
            f"{target.file.shown} wants {', '.join(names)} running, and no such box runs: the `pulumi up` of this "
            "finish would rent it. Nothing was changed",
            [f"sweepctl finish --stack {target.stack}    (after {wants} is set to gone in {target.file.shown})"],
        )


def ask_for_facts(target: Target, options: ApproveOptions, box_snapshots: Sequence[BoxSnapshot]) -> NoProfile | None:
    """Writes the old facts that the person accepts, before anything is pulled: another step may fail, and the next
    `finish` needs no option then. Raises No if one is not accepted.

    Returns the error where a profile does not hold, to be raised before the approval: what lies on the boxes is copied
    and verified without it, so that a person who then gives a box up loses less."""
    there = [box_snapshot for box_snapshot in box_snapshots if not box_snapshot.gone]
    try:
        facts_relied_on(target, options, there, "finish").write(target)
    except NoProfile as error:
        return error
    return None


def _closed(target: Target, box: str, out: Out) -> int:
    sources = open_sources(target)
    return gone.close_proved(target, sources, gone.open_records(sources, box), out)


def _last_look(target: Target, out: Out, done: list[dict[str, object]], evidence: str | None) -> int:
    """Asks the records and the platforms whether something bills: the engine's exit code is no proof.

    `evidence`: where the records were before the destroy, for a stack without its file: the state no longer names them.
    """
    with Progress("looking"):
        sources = open_sources(target)
        if sources.evidence is None and evidence is not None:
            with contextlib.suppress(EvidenceError):
                sources = replace(sources, evidence=evidence, store=EvidenceStore.open(evidence), problem="")
        view = compose(take_snapshot(sources))
    words = {"nothing": "nothing bills any more", "yes": "something still bills", "unknown": "what bills is not known"}
    out.document({"stack": target.stack, "finished": view.bills == "nothing", "bills": view.bills, "steps": done})
    out.line(f"{words[view.bills]}; ${view.meter.so_far:.2f} in all; the evidence stays at {sources.evidence}")
    if view.bills == "nothing":
        out.line(f"the stack may stay; `pulumi stack rm {target.stack} --preserve-config` takes it away, not its file")
        out.next([f"sweepctl results --stack {target.stack}"])
    else:
        out.next([f"sweepctl status --stack {target.stack}"])
    return {"nothing": YES, "yes": NO, "unknown": UNSURE}[view.bills]


def finish_box(target: Target, options: ApproveOptions, box: str, out: Out) -> int:
    """Exit 0 only if the platform proves that the box is gone; the rest of the sweep stays as it is."""
    stack = target.stack
    quiet = Out(as_json=False) if not out.as_json else SilentOut()
    with Progress("looking"):
        sources = open_sources(target)
        require_engine(sources)
        snapshot = take_snapshot(sources)
    box_snapshot = _box_snapshot(snapshot, box, stack)
    approved = box_snapshot.verdict.allowed or (box_snapshot.proposed is not None and box_snapshot.proposed.allowed)
    if not approved:
        _refuse_at_work(box_snapshot, stack)
        without_profile = ask_for_facts(target, options, [box_snapshot])
        _say(out, f"sweepctl pull --stack {stack}")
        if (code := pulling.pull(open_sources(target), quiet)) != YES:
            return code
        _say(out, f"sweepctl verify --stack {stack}")
        # A No may be about cells that still run elsewhere; the approval checks the cells of this box.
        if (code := verifying.verify(open_sources(target), quiet)) == UNSURE:
            return code
        if without_profile:
            raise without_profile
        _say(out, options.spelled(stack))
        if (code := approve(target, options, quiet)) != YES:
            return code
    if target.file.write_want(box, "gone"):
        _say(out, f"boxes.{box}.want: gone    (written to {target.file.shown})")
    _say(out, f"pulumi up --stack {stack} --yes")
    code = run_engine(target, "up", out)
    return code if code != YES else _last_look_at_box(target, box_snapshot, out)


def _box_snapshot(snapshot: Snapshot, box: str, stack: str) -> BoxSnapshot:
    by_name = {box_snapshot.box.name: box_snapshot for box_snapshot in snapshot.box_snapshots}
    if box not in by_name:
        hint = did_you_mean(box, by_name)
        raise No(
            f"there is no box {box} in the state (there: {', '.join(by_name) or 'none'}){hint}",
            [f"sweepctl status --stack {stack}"],
        )
    return by_name[box]


def _refuse_at_work(box_snapshot: BoxSnapshot, stack: str) -> None:
    """Raises No now if the box still runs cells: the approval would refuse that only after a long pull."""
    if box_snapshot.journal is None or not box_snapshot.seen.runner_alive:
        return
    running = [name for name, progress in box_snapshot.journal.cells.items() if progress.state == "running"]
    if running:
        box = box_snapshot.box.name
        wait = f"sweepctl wait --stack {stack} done && sweepctl finish --stack {stack} --box {box}"
        raise No(
            f"box {box} is at work: {', '.join(running[:5])}",
            [
                *(first_hung(stack, [box_snapshot]) or [wait]),  # a hung cell never becomes done
                f'sweepctl give-up --stack {stack} data/{box} --reason "…"    (gives up its data)',
            ],
        )


def _say(out: Out, command: str) -> None:
    if not out.as_json:
        out.line(f"$ {command}")


def _last_look_at_box(target: Target, box_snapshot: BoxSnapshot, out: Out) -> int:
    """Asks the platform for this native id: the engine's exit code is no proof."""
    box = box_snapshot.box
    try:
        record = look_up(box.context().platform, box.native_id, box.account, rented=box.teardown.rented)
        gone, problem = record.phase is Phase.GONE, record.note if record.emptied else "it is still there"
    except PlatformError as error:
        gone, problem = False, str(error)
    following = [f"sweepctl status --stack {target.stack}"]
    out.document({"stack": target.stack, "box": box.name, "native_id": box.native_id, "gone": gone, "next": following})
    if gone:
        out.line(f"box {box.name} ({box.native_id}) is gone and bills no more; the others run on")
    else:
        out.line(f"UNKNOWN box {box.name} ({box.native_id}): {problem}; it may still bill", style="yellow")
    out.next(following)
    return YES if gone else NO


def _last_look_at_volumes(target: Target, out: Out, done: list[dict[str, object]], evidence: str | None) -> int:
    """Asks the platform whether a volume of the stack is left: the engine's exit code is no proof."""
    stack = target.stack
    with Progress("looking"):
        held = holding(open_sources(target))
    left = [one.facts.native_id for one in held.volumes if one.state != "gone"]
    left += [record.native_id for record in held.orphans]
    code = NO if left else UNSURE if held.problems else YES
    out.document({"stack": stack, "finished": code == YES, "bills": held.bills, "left": left, "steps": done})
    if left:
        out.line(f"still there: {', '.join(left)}")
    elif held.problems:
        out.line(f"whether one is left is not known: {'; '.join(held.problems)}")
    else:
        out.line(f"no volume of {stack} is left, and nothing of it bills; the records stay at {evidence}")
    if code != YES:
        out.next([f"sweepctl status --stack {stack}"])
    return code
